#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replays real routing under every policy and prints the ratios as tables of
Markdown. README.md has some of them, docs/balance.md says what is behind them. Needs
`ferry` and the traces.

    bench/replay_figures.py FERRY DATA [RESULT.json]

DATA is the folder of gptoss20b_expert_freq_by_task.csv and
gptoss20b_token_trace.bin. RESULT.json gets what `ferry replay --json` said, without
the figures of single layers.
"""
import json
import pathlib
import subprocess
import sys

TRACES = {"tables": "gptoss20b_expert_freq_by_task.csv",
          "tokens": "gptoss20b_token_trace.bin"}
RANKS = (4, 8, 16)
# Title of a column, options.
COLUMNS = [
    ("fixed", "--policy fixed"),
    ("history", "--policy eplb"),
    ("history, 2 spare slots, even split",
     "--policy eplb --replicas 2 --split even"),
    ("history, 2 spare slots, exact split",
     "--policy eplb --replicas 2 --split exact"),
    ("FreeBalance, 2 swaps, gamma 0",
     "--policy freebalance --swaps 2 --gamma 0"),
    ("FreeBalance, 2 swaps, gamma 0.5",
     "--policy freebalance --swaps 2 --gamma 0.5"),
    ("1 swap", "--policy ferry --swaps 1"),
    ("2 swaps", "--policy ferry --swaps 2"),
    ("4 swaps", "--policy ferry --swaps 4"),
    ("unlimited", "--policy ferry --swaps 256"),
    ("history + 2 swaps", "--policy ferry --swaps 2 --start eplb"),
    ("2 swaps, hit rate 0.75", "--policy ferry --swaps 2 --predict noise:0.75"),
    ("2 swaps + 2 copies", "--policy ferry --swaps 2 --replicas 2"),
    ("2 swaps, all spare slots filled", "--policy ferry --swaps 2 --replicas 2 --fill"),
    ("all spare slots filled, hit rate 0.75",
     "--policy ferry --swaps 2 --replicas 2 --fill --predict noise:0.75"),
]


def replay(ferry, data, trace, ranks, options):
    """What ferry replay says."""
    done = subprocess.run(
        [ferry, "replay", "--trace", data / TRACES[trace], "--ranks",
         str(ranks), *options.split(), "--json"],
        capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    result = json.loads(done.stdout)
    del result["rows"]
    return result


def table(ferry, data, trace, kept):
    """Ratios of one trace: a column for each number of ranks."""
    print(f"\n{TRACES[trace]}, max/mean:\n")
    print("| | " + " | ".join(f"{ranks} ranks" for ranks in RANKS)
          + " | plan p50 of 8 |")
    print("|---|" + "---|" * (len(RANKS) + 1))
    for title, options in COLUMNS:
        results = [replay(ferry, data, trace, ranks, options)
                   for ranks in RANKS]
        kept.extend({"trace": trace, "ranks": ranks, "what": title, **result}
                    for ranks, result in zip(RANKS, results))
        print(f"| {title} | "
              + " | ".join(f"{r['ratio_mean']:.3f}" for r in results)
              + f" | {results[1]['plan_us_p50']:.1f} us |", flush=True)


def main():
    """Command line."""
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    ferry, data = sys.argv[1], pathlib.Path(sys.argv[2])
    kept = []
    for trace in TRACES:
        table(ferry, data, trace, kept)
    if len(sys.argv) == 4:
        meta = kept[0]["meta"]
        for row in kept:
            row["command"] = " ".join(row.pop("meta")["command"])
        with open(sys.argv[3], "w", encoding="utf-8") as file:
            json.dump({"schema": "ferry-replay-figures-1", "meta": meta,
                       "rows": kept}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
