#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What correcting predictions and a margin do for ferry prefill: max/mean before and
after, the share of layers and steps that moved experts, the share of those that were
more even for it, and moves, as a table in Markdown.

    bench/margin.py FERRY MODEL TEXTS [--margins LIST] [--ranks N]

TEXTS is a folder of .txt files, one a domain. No limit of time: so all numbers follow
from model, texts and policy, whatever the machine. Some 5 minutes on 2 cores.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from freebalance import write_history


def runs(texts, past):
    """Names and options of what is run."""
    alone = ["--order", "by-text", "--warm-up", "4", "--steps", "4", "--text",
             past, *texts]
    turns = ["--order", "mixed", "--warm-up", str(len(texts)), "--steps", "4",
             "--text", *texts]
    return (("one after the other", "ferry", alone),
            ("in turn", "ferry", turns),
            ("one after the other", "freebalance", alone),
            ("in turn", "freebalance", turns),
            ("in turn, 64 tokens each", "ferry", ["--length", "64", *turns]),
            ("in turn, 2 spare slots", "ferry", ["--replicas", "2", *turns]))


def measure(args, policy, options, more):
    """The last run of ferry prefill."""
    command = [args.ferry, "prefill", "--model", args.model, "--ranks",
               str(args.ranks), "--budget", "none", "--balance", policy,
               *more, *map(str, options), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def cell(run):
    """Ratio, layers moved, improved, moves."""
    better = run["layers_improved_share"]
    return (f"{run['ratio_after']:.3f}, {100 * run['layers_moved_share']:.0f} %, "
            f"{'-' if better is None else format(100 * better, '.1f')} %, "
            f"{run['moves_mean']:.1f}")


def main():
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("ferry")
    parser.add_argument("model")
    parser.add_argument("texts")
    parser.add_argument("--margins", default="0,0.5,1,2")
    parser.add_argument("--ranks", type=int, default=8)
    args = parser.parse_args()
    texts = sorted(pathlib.Path(args.texts).glob("*.txt"))
    ways = [("as foreseen", ["--calibrate", "off", "--margin", "0"])]
    ways += [(f"margin {m}", ["--margin", m]) for m in args.margins.split(",")]
    print("| texts | policy | before | "
          + " | ".join(name for name, _ in ways) + " |")
    print("|---" * (3 + len(ways)) + "|")
    with tempfile.TemporaryDirectory() as folder:
        past = pathlib.Path(folder) / "history.txt"
        write_history(texts, past)
        for name, policy, options in runs(texts, past):
            found = [measure(args, policy, options, more) for _, more in ways]
            print(f"| {name} | {policy} | {found[0]['ratio_before']:.3f} | "
                  + " | ".join(map(cell, found)) + " |", flush=True)


if __name__ == "__main__":
    main()
