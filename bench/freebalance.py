#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures ferry prefill as FreeBalance's paper measures: latency and imbalance of
every text and of mixed texts under every policy, the quality of prediction, fixed
numbers of swaps against the budget, several lengths; and, on as many ranks as cores,
what balancing costs and gains. bench/freebalance.sh calls it.

    bench/freebalance.py FERRY MODEL TEXTS RESULT.json [--repeats N] [--quick]

TEXTS is a folder of .txt files, one a domain. Times are medians of N repeats (3).
--quick: once and few steps, to try the script. RESULT.json keeps what `ferry prefill --json` said, without single steps.
docs/freebalance.md is made from it by bench/freebalance_page.py.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

POLICIES = "off,freebalance,eplb,eplb+freebalance,ferry,eplb+ferry"
HISTORY_BYTES = 24576
RANKS = 8
# Of single layers.
KEPT = ("ratio_before", "ratio_after", "topk_hit", "moves_mean")
LENGTHS = (128, 256, 512)
SWAPS = (1, 2, 4)


class Bench:
    """Where things are, and what was found."""

    def __init__(self, args):
        self.ferry, self.model = args.ferry, args.model
        self.texts = sorted(pathlib.Path(args.texts).glob("*.txt"))
        if not self.texts:
            sys.exit(f"freebalance.py: {args.texts}: no .txt files")
        self.quick = args.quick
        self.repeats = 1 if args.quick else args.repeats
        self.meta = None
        self.rows = []

    def prefill(self, what, options, texts=None, length=512, **facts):
        """Runs ferry prefill, keeps and returns what it said; with facts that the
        tables look for."""
        if "--ranks" not in options:
            options = f"--ranks {RANKS} {options}"
        options += f" --batch 16 --length {length}"
        command = [self.ferry, "prefill", "--model", str(self.model),
                   *options.split(), "--json", "--text",
                   *map(str, texts or self.texts)]
        done = subprocess.run(command, capture_output=True, text=True,
                              check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)}\n{done.stderr or 'bits differ'}")
        result = json.loads(done.stdout)
        meta = result.pop("meta")
        if self.meta is None:
            self.meta = {key: value for key, value in meta.items()
                         if key not in ("command", "steps")}
        for run in result["runs"]:
            del run["steps_each"]
            run["layers"] = {key: run["layers"][key] for key in KEPT}
        self.rows.append({"what": what, "length": length, **facts,
                          "command": " ".join(map(str, meta["command"])),
                          "bits_equal": result["bits_equal"],
                          "runs": result["runs"]})
        print(f"{what}: {options}: "
              + ", ".join(f"{r['balance']} {r['ratio_after']:.3f} "
                          f"{r['total_ms']:.0f} ms" for r in result["runs"]),
              file=sys.stderr, flush=True)
        return result

    def write(self, path):
        """What was found so far: who is stopped loses one part."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"schema": "ferry-freebalance-1", "meta": self.meta,
                       "cores": len(os.sched_getaffinity(0)),
                       "rows": self.rows}, file, separators=(",", ":"))
            file.write("\n")

    def steps(self):
        """Options for the number of steps of a text."""
        return f"--steps {1 if self.quick else 3}"


def write_history(texts, path):
    """A little of each text, whole lines, so that no character is cut: what
    history knows before it meets a text."""
    with open(path, "wb") as file:
        for text in texts:
            part = text.read_bytes()[-HISTORY_BYTES:]
            file.write(part[part.find(b"\n") + 1:])


def by_text(bench, folder):
    """Every text for itself, after a warm-up on a little of each of them."""
    history = folder / "history.txt"
    write_history(bench.texts, history)
    probe = bench.prefill("probe", "--balance off --warm-up 0 "
                          f"{bench.steps()}", [history])
    warm_up = probe["runs"][0]["steps"]
    bench.rows.pop()
    for _ in range(bench.repeats):
        bench.prefill("by-text", f"--order by-text --warm-up {warm_up} --eplb-every 4 "
                      f"--balance {POLICIES} {bench.steps()}",
                      [history, *bench.texts])


def mixed(bench):
    """Texts take turns; the first round is the warm-up."""
    for _ in range(bench.repeats):
        bench.prefill("mixed", "--order mixed "
                      f"--warm-up {len(bench.texts)} --eplb-every 4 --balance "
                      f"{POLICIES} {bench.steps()}")


def lengths(bench):
    """Fixed numbers of swaps, and the budget, for several lengths."""
    common = (f"--order mixed --warm-up {len(bench.texts)} "
              f"--steps {1 if bench.quick else 2}")
    for length in LENGTHS:
        bench.prefill("length", f"{common} --budget auto --balance "
                      "off,freebalance,ferry", length=length)
        for swaps in SWAPS:
            bench.prefill("swaps", f"{common} --budget none --swaps {swaps} "
                          "--balance freebalance,ferry", length=length,
                          swaps=swaps)


def replicas(bench):
    """Copies and the exact split."""
    for split in ("even", "quota", "exact"):
        bench.prefill("replicas", "--order mixed --warm-up "
                      f"{len(bench.texts)} --replicas 2 --budget none --split "
                      f"{split} --balance off,ferry {bench.steps()}",
                      split=split)


def cores(bench):
    """As many ranks as cores, 2 at least: what it costs, and what it gains."""
    ranks = max(2, min(8, len(os.sched_getaffinity(0))))
    for _ in range(bench.repeats):
        for start in ("even", "hot"):
            bench.prefill(f"cores-{start}", f"--ranks {ranks} --order by-text "
                          f"--start {start} --recheck 8 --balance off,ferry "
                          f"{bench.steps()}")


def main():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ferry")
    parser.add_argument("model")
    parser.add_argument("texts")
    parser.add_argument("result")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    bench = Bench(args)
    with tempfile.TemporaryDirectory() as folder:
        by_text(bench, pathlib.Path(folder))
    bench.write(args.result)
    for part in (mixed, lengths, replicas, cores):
        part(bench)
        bench.write(args.result)


if __name__ == "__main__":
    main()
