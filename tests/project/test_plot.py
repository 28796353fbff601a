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
            words = " ".join(ElementTree.fromstring(done.stdout).itertext())
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


tree.main(draws_a_bench)
