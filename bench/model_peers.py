#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `ferry model` with measured latencies, as tables of Markdown for
docs/performance.md: those that others have published (bench/published.json), and
our own on two H200s (bench/results).

    bench/model_peers.py FERRY [RESULT.json]

Between hosts one number is fitted for each system and operation, alpha, what it takes
without bytes: the median of what is left when the nominal link has carried the bytes of
the formulas. Inside of a host, where nobody reaches the link, bandwidth is fitted, too
(least squares of relative errors). RESULT.json gets what was computed.
"""
import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
OWN = HERE / "results/h200x2-2026-11-30/figures-d741607.json"
# A ConnectX-7, or two EFA NICs of 200 Gb/s; NVLink as stores reach it.
NOMINAL = {"between": 50.0, "inside": 365.0}
PHASES = ("dispatch", "combine")
# Percent, beyond which a fit predicts nothing.
FITS = 15


def model(ferry, *options):
    """Rows of ferry model by (ranks, tokens, phase)."""
    done = subprocess.run([ferry, "model", *map(str, options), "--json"],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return {(row["ranks"], row["tokens"], row["phase"]): row
            for row in json.loads(done.stdout)["rows"]}


def lists(entry):
    """Options --ranks and --tokens for all points of an entry."""
    tokens = sorted({int(t) for at in entry["ep"].values() for t in at})
    return ("--ranks", ",".join(entry["ep"]),
            "--tokens", ",".join(map(str, tokens)))


def points(ferry, entry, once, combine, tables="--no-tables"):
    """(ranks, tokens, phase): microseconds of the link, without alpha."""
    links = [f"--{name}=0,{rate}" for name, rate in NOMINAL.items()]
    rows = model(ferry, *lists(entry), *links, "--base=0", "--memory=0",
                 "--dtype", entry["dtype"], "--once", once,
                 "--combine", combine, *([tables] if tables else []))
    return {at: row[f"{entry['link']}_us"] for at, row in rows.items()}


def fit_alpha(points_):
    """The median of what is left; the link is as it is."""
    return max(0.0, statistics.median(us - link for us, link in points_)), 1.0


def fit_both(points_):
    """alpha and slope: least squares of (alpha + slope * link) / us - 1."""
    n = x = y = xx = xy = 0.0
    for us, link in points_:
        weight = 1 / us ** 2
        n, x, y = n + weight, x + weight * link, y + weight * us
        xx, xy = xx + weight * link ** 2, xy + weight * link * us
    slope = (n * xy - x * y) / (n * xx - x * x)
    return (y - slope * x) / n, slope


def fit(entry, wire, phase):
    """alpha, slope, and rows of (ranks, tokens, published, link)."""
    index = PHASES.index(phase)
    rows = [(int(ranks), int(tokens), us[index],
             wire[int(ranks), int(tokens), phase])
            for ranks, at in entry["ep"].items() for tokens, us in at.items()]
    how = fit_both if entry["link"] == "inside" else fit_alpha
    return *how([row[2:] for row in rows]), rows


def published(ferry):
    """Every point: published, link, alpha, and Ferry's bytes with that alpha."""
    result = []
    for entry in json.loads((HERE / "published.json").read_text())["rows"]:
        wire = points(ferry, entry, entry["once"], entry["combine"])
        host = points(ferry, entry, "host", "per-host", None)
        for phase in PHASES:
            alpha, slope, rows = fit(entry, wire, phase)
            for ranks, tokens, us, link in rows:
                result.append({
                    "who": entry["who"], "where": entry["where"],
                    "source": entry["source"], "link": entry["link"],
                    "phase": phase, "ranks": ranks, "tokens": tokens,
                    "published_us": us, "link_us": link,
                    "alpha_us": round(alpha, 1),
                    "gb_per_s": round(NOMINAL[entry["link"]] / slope),
                    "model_us": round(alpha + slope * link, 1),
                    "once_per_host_us": round(
                        alpha + host[ranks, tokens, phase], 1)})
    return result


def error(row):
    """Of the model, in percent of what was published."""
    return 100 * (row["model_us"] / row["published_us"] - 1)


def print_published(rows):
    """A line for each system and operation: the points, and how they fit."""
    print("| system | | alpha, us | GB/s | published / model, us | error | "
          "once per host |\n|---|---|---|---|---|---|---|")
    groups = {}
    for row in rows:
        key = (row["who"], row["where"], row["phase"])
        groups.setdefault(key, []).append(row)
    for (who, where, phase), group in groups.items():
        tokens = len({row["ranks"] for row in group}) == 1
        shown = ", ".join(
            f"{'T' if tokens else 'EP'}{row['tokens' if tokens else 'ranks']} "
            f"{row['published_us']:.0f} / {row['model_us']:.0f}"
            for row in group)
        worst = max((error(row) for row in group), key=abs)
        fits = group[0]["link"] == "between" and abs(worst) <= FITS
        better = "" if not fits else " / ".join(
            f"{row['once_per_host_us']:.0f}" for row in group)
        print(f"| {who}, {where} | {phase} | {group[0]['alpha_us']:.0f} | "
              f"{group[0]['gb_per_s']} | {shown} | {worst:+.0f} % | {better} |")


def own(ferry):
    """Our figures on two H200s against the link that was measured there."""
    result = []
    forms = {("fp8-in", "token", "reduced"), ("bf16", "token", "reduced"),
             ("fp8-in", "packed", "reduced"), ("bf16", "padded", "exact")}
    rows = json.loads(OWN.read_text())["rows"]
    for dtype, layout, combine in sorted(forms):
        said = model(ferry, "--ranks=2", "--tokens=1,32,128,512,4096",
                     "--dtype", dtype.removesuffix("-in"),
                     "--once=rank", "--combine", combine)
        for row in rows:
            if ((row["dtype"], row["layout"], row["combine"]) !=
                    (dtype, layout, combine) or row["hidden"] != 7168 or
                    row["experts"] != 256 or row.get("max_sms") or
                    row.get("split_us") or
                    row["phase"] not in PHASES or
                    (2, row["tokens"], row["phase"]) not in said):
                continue
            at = said[2, row["tokens"], row["phase"]]
            result.append({
                "dtype": dtype, "layout": layout, "combine": combine,
                "tokens": row["tokens"], "phase": row["phase"],
                "measured_us": row["p50_us"],
                "latency_us": at["latency_us"], "serial_us": at["serial_us"],
                "bound_by": at["bound_by"]})
    return result


def print_own(rows):
    """A line for each operation, a column for each number of tokens."""
    tokens = sorted({row["tokens"] for row in rows})
    print("\n| operation | " + " | ".join(f"{t} tokens" for t in tokens) +
          " |\n|" + "---|" * (len(tokens) + 1))
    groups = {}
    for row in rows:
        how = row["dtype"] if row["phase"] == "dispatch" else row["combine"]
        groups.setdefault((row["phase"], how, row["layout"]), {})[
            row["tokens"]] = row
    for (phase, how, layout), at in sorted(groups.items(), reverse=True):
        cells = [f"{at[t]['measured_us']:.1f} / {at[t]['latency_us']:.1f}"
                 if t in at else "" for t in tokens]
        print(f"| {phase} {how}, {layout.upper()} | " + " | ".join(cells) +
              " |")


def main():
    """Both tables."""
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    result = {"published": published(sys.argv[1]), "own": own(sys.argv[1])}
    print_published(result["published"])
    print_own(result["own"])
    if len(sys.argv) == 3:
        pathlib.Path(sys.argv[2]).write_text(
            json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
