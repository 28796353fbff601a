#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of docs/freebalance.md, and its pictures, from what
bench/freebalance.py measured. Text outside of the marks stays as it is.

    bench/freebalance_page.py RESULT.json docs/freebalance.md PICTURES

PICTURES is a folder.
"""
import collections
import json
import pathlib
import re
import statistics
import sys

from plot import LEFT, text
from plot_layers import drawing

POLICIES = ("off", "freebalance", "eplb", "eplb+freebalance", "ferry",
            "eplb+ferry")


def domain(path):
    """Name of a text."""
    return pathlib.Path(path).stem


class Result:
    """What was measured, and the numbers that tables want of it."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.all = json.load(file)
        if self.all.get("schema") != "ferry-freebalance-1":
            sys.exit(f"freebalance_page: {path} is not of freebalance.py")
        self.meta = self.all["meta"]

    def runs(self, what, balance, **facts):
        """Runs of a policy in the rows of a kind."""
        return [run for row in self.all["rows"]
                if row["what"] == what
                and all(row[key] == facts[key] for key in facts)
                for run in row["runs"] if run["balance"] == balance]

    def median(self, what, balance, key, name=None, **facts):
        """Median over repeats; of one text, or of all. None: not known."""
        values = []
        for run in self.runs(what, balance, **facts):
            part = run if name is None else next(
                t for t in run["texts"] if domain(t["text"]) == name)
            values.append(part[key])
        known = [value for value in values if value is not None]
        return statistics.median(known) if known else None

    def facts(self, what, key):
        """What the rows of a kind have of a fact."""
        return sorted({row[key] for row in self.all["rows"]
                       if row["what"] == what})

    def texts(self):
        """Names of the texts."""
        run = self.runs("mixed", "off")[0]
        return [domain(t["text"]) for t in run["texts"]]


def cell(value, digits):
    """A number, or a dash."""
    return "-" if value is None else f"{value:.{digits}f}"


def table(head, rows):
    """Markdown."""
    yield "| " + " | ".join(head) + " |"
    yield "|---|" + "---:|" * (len(head) - 1)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def each_text(result, key, digits):
    """A row for each text and one for mixed texts, a column a policy."""
    rows = [[name] + [cell(result.median("by-text", p, key, name), digits)
                      for p in POLICIES] for name in result.texts()]
    rows.append(["mixed"] + [cell(result.median("mixed", p, key), digits)
                             for p in POLICIES])
    return table(["text", *POLICIES], rows)


def ratios(result):
    """Imbalance under every policy."""
    return each_text(result, "ratio_after", 3)


def latency(result):
    """Milliseconds under every policy."""
    return each_text(result, "total_ms", 0)


def prediction(result):
    """Hidden cosine, logit cosine, top-k hit of every text."""
    rows = [[name] + [cell(result.median("by-text", "ferry", key, name), 4)
                      for key in ("hidden_cosine", "logit_cosine",
                                  "topk_hit")] for name in result.texts()]
    return table(["text", "hidden cosine", "logit cosine", "top-k hit"], rows)


def improved(result):
    """What was moved, and how often it was right."""
    rows = []
    for policy in POLICIES[1:]:
        row = [policy]
        for what in ("by-text", "mixed"):
            moved = result.median(what, policy, "layers_moved_share")
            better = result.median(what, policy, "layers_improved_share")
            row += [cell(result.median(what, policy, "moves_mean"), 2),
                    cell(moved and 100 * moved, 1),
                    cell(better and 100 * better, 1)]
        rows.append(row)
    return table(["policy", "moves a layer", "moved %", "improved %",
                  "mixed: moves", "moved %", "improved %"], rows)


def lengths(result):
    """The length's influence."""
    policies = ("off", "freebalance", "ferry")
    rows = []
    for n in result.facts("length", "length"):
        rows.append([str(n)]
                    + [cell(result.median("length", p, "ratio_after",
                                          length=n), 3) for p in policies]
                    + [cell(result.median("length", p, "total_ms", length=n),
                            0) for p in policies]
                    + [cell(result.median("length", "ferry", "window_us",
                                          length=n), 0)])
    return table(["tokens", *policies, *(f"{p} ms" for p in policies),
                  "window us"], rows)


def swaps(result):
    """Fixed numbers of swaps against the budget."""
    numbers = result.facts("swaps", "swaps")
    rows = []
    for n in result.facts("length", "length"):
        for policy in ("freebalance", "ferry"):
            rows.append(
                [str(n), policy,
                 cell(result.median("length", "off", "ratio_after", length=n),
                      3)]
                + [cell(result.median("swaps", policy, "ratio_after",
                                      length=n, swaps=k), 3) for k in numbers]
                + [cell(result.median("length", policy, "ratio_after",
                                      length=n), 3),
                   cell(result.median("length", policy, "moves_mean",
                                      length=n), 2)])
    return table(["tokens", "policy", "none", *map(str, numbers), "budget",
                  "its moves"], rows)


def replicas(result):
    """Two spare slots on every rank."""
    rows = [[split] + [cell(result.median("replicas", p, "ratio_after",
                                          split=split), 3)
                       for p in ("off", "ferry")]
            + [cell(result.median("replicas", "ferry", "moves_mean",
                                  split=split), 2)]
            for split in ("even", "quota", "exact")]
    return table(["split", "off", "ferry", "moves a layer"], rows)


def cores(result):
    """As many ranks as cores."""
    rows = []
    for what, name in (("cores-even", "experts in order"),
                       ("cores-hot", "hottest on one rank")):
        off = result.median(what, "off", "total_ms")
        ours = result.median(what, "ferry", "total_ms")
        rows.append([name,
                     cell(result.median(what, "off", "ratio_after"), 3),
                     cell(result.median(what, "ferry", "ratio_after"), 3),
                     cell(off, 0), cell(ours, 0),
                     f"{100 * (ours / off - 1):+.1f}"])
    return table(["start", "off", "ferry", "off ms", "ferry ms", "%"], rows)


TABLES = {f.__name__: f for f in (ratios, latency, prediction, improved,
                                  lengths, swaps, replicas, cores)}


def layers_picture(result, what, title):
    """Ratio of every layer under every policy."""
    curves = []
    for policy in POLICIES:
        runs = result.runs(what, policy)
        ratios = [statistics.median(values) for values in zip(
            *(run["layers"]["ratio_after"] for run in runs))]
        # The margin has room for a short name.
        name = policy.replace("+freebalance", "+fb")
        curves.append((f"{name} {statistics.mean(ratios):.3f}", ratios))
    return drawing(text(LEFT, 24, title, "start", 15), curves,
                   max(max(ratios) for _, ratios in curves),
                   {**result.meta, "command": ["bench/freebalance.sh"]})


def fill(page, result):
    """The page with its tables anew."""
    missing = collections.Counter(re.findall(r"<!-- table (\w+) -->", page))
    for name in TABLES:
        if missing[name] != 1:
            sys.exit(f"freebalance_page: no place for table {name}")
        body = "\n".join(TABLES[name](result))
        page = re.sub(rf"(<!-- table {name} -->\n).*?(<!-- end -->)",
                      lambda m, body=body: f"{m[1]}{body}\n{m[2]}", page,
                      count=1, flags=re.S)
    return page


def main():
    """Command line."""
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    result = Result(sys.argv[1])
    path, pictures = pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    path.write_text(fill(path.read_text(encoding="utf-8"), result),
                    encoding="utf-8")
    for what, title in (("by-text", "ratio of each layer, text by text"),
                        ("mixed", "ratio of each layer, texts taking turns")):
        (pictures / f"freebalance-{what}.svg").write_text(
            "\n".join(layers_picture(result, what, title)) + "\n",
            encoding="utf-8")


if __name__ == "__main__":
    main()
