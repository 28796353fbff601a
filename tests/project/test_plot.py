# SPDX-License-Identifier: Apache-2.0
"""bench/plot.py draws what ferry bench wrote, and refuses what is no figure.

test_plot.py ROOT FERRY
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

import tree

FERRY = sys.argv[2]


def draw(root, *arguments):
    """Runs plot.py."""
    return subprocess.run([sys.executable, root / "bench/plot.py", *arguments],
                          capture_output=True, text=True, check=False)


def words_of(done):
    """The words of a picture."""
    return " ".join(ElementTree.fromstring(done.stdout).itertext())


def draws_a_bench(root):
    """A tiny bench becomes a well-formed picture with its numbers."""
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "result.json"
        bench = subprocess.run(
            [FERRY, "bench", "--ranks", "2", "--tokens", "1,8", "--hidden",
             "256", "--iters", "3", "--rounds", "1", "--json", result],
            capture_output=True, text=True, timeout=100, check=False)
        if bench.returncode:
            yield f"ferry bench: {bench.stderr}"
            return
        for phase in ("dispatch", "combine", "pair"):
            done = draw(root, "--phase", phase, result)
            if done.returncode:
                yield f"{phase}: {done.stderr}"
                continue
            words = words_of(done)
            for wanted in (f"{phase}: 2 ranks", "hidden 256", "ferry bench",
                           "floor"):
                if wanted not in words:
                    yield f"{phase}: no {wanted!r} in the picture"

        spoiled = json.loads(result.read_text())
        spoiled["rows"][0]["wrong"] = 3
        phase = spoiled["rows"][0]["phase"]
        result.write_text(json.dumps(spoiled))
        done = draw(root, "--phase", phase, result)
        if not done.returncode or "3 wrong" not in done.stderr:
            yield "a figure with wrong data is drawn"


def gpu_row(tokens, impl="ferry", **members):
    """A row as ferry bench --device cuda writes it."""
    row = {"phase": "dispatch", "impl": impl, "ranks": 2, "tokens": tokens,
           "hidden": 7168, "topk": 8, "experts": 256, "dtype": "fp8",
           "combine": "reduced", "layout": "token", "routing": "uniform",
           "p50_us": 5.0 + tokens / 50, "p99_us": 6.0 + tokens / 50,
           "max_us": 9.0 + tokens, "wire_bytes": tokens * 2 * 7392,
           "floor_us": tokens / 60, "wrong": 0}
    return row | members


def gpu_document():
    """Several shapes in one file, an exchange, and a special row."""
    rows = [gpu_row(tokens) for tokens in (1, 128, 4096)]
    rows += [gpu_row(tokens, layout="packed", combine="exact")
             for tokens in (1, 128)]
    rows += [gpu_row(128, "nccl", layout="packed", p50_us=28, p99_us=29),
             gpu_row(4096, max_sms=32), gpu_row(128, split_us=20)]
    return {"schema": "ferry-bench-1", "rows": rows,
            "meta": {"device": "cuda", "version": "1", "commit": "abc",
                     "gpu": {"name": "NVIDIA H200", "count": 2,
                             "driver": "driver 1"},
                     "store_bytes_per_s": 365e9, "date": "today",
                     "command": ["ferry", "bench"]}}


def draws_gpus(root):
    """One shape of many, beside an exchange and other systems."""
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "gpus.json"
        result.write_text(json.dumps(gpu_document()))
        shape = ("--phase", "dispatch", "--where", "layout=token")
        cases = [
            (shape, ("fp8, reduced, token", "2 x NVIDIA H200", "DeepEP V1",
                     "floor", "nccl", "microseconds")),
            (shape + ("--bandwidth",), ("GB/s", "stores", "nccl")),
            (shape + ("--where", "max_sms=32"), ("4096",)),
        ]
        for arguments, wanted in cases:
            done = draw(root, *arguments, result)
            if done.returncode:
                yield f"{arguments}: {done.stderr}"
                continue
            words = words_of(done)
            for word in wanted:
                if word not in words:
                    yield f"{arguments}: no {word!r} in the picture"
        done = draw(root, "--phase", "dispatch", result)
        if not done.returncode or "draw them apart" not in done.stderr:
            yield "two shapes are drawn as one"
        done = draw(root, *shape, "--where", "tokens=7", result)
        if not done.returncode or "no row" not in done.stderr:
            yield "nothing is drawn"


def draws_a_replay(root):
    """A replay becomes a line for each policy, and one for the start."""
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "result.json"
        replay = subprocess.run(
            [FERRY, "replay", "--generate", "lognormal:1.2", "--experts", "32",
             "--layers", "5", "--draws", "4", "--swaps", "2", "--json"],
            capture_output=True, text=True, timeout=100, check=False)
        result.write_text(replay.stdout)
        for options, names in (([], ("start", "eplb", "freebalance", "ferry")),
                               (["--policy", "ferry"], ("start", "ferry"))):
            done = subprocess.run(
                [sys.executable, root / "bench/plot_layers.py", *options,
                 result], capture_output=True, text=True, check=False)
            if done.returncode:
                yield done.stderr
                continue
            words = words_of(done)
            for name in names + ("lognormal:1.2: 4 steps",):
                if name not in words:
                    yield f"plot_layers.py {options}: no {name}"
            if done.stdout.count('fill="none"') != len(names):
                yield f"plot_layers.py {options}: not {len(names)} lines"


tree.main(draws_a_bench, draws_a_replay, draws_gpus)
