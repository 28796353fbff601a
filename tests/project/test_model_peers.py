# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/performance.md that bench/model_peers.py makes are what it makes
today.

test_model_peers.py ROOT FERRY
"""
import subprocess
import sys

import tree

FERRY = sys.argv[2]


def tables_are_up_to_date(root):
    """Every line that the script prints stands in the document."""
    done = subprocess.run(
        [sys.executable, "-B", root / "bench/model_peers.py", FERRY],
        capture_output=True, text=True, check=False)
    if done.returncode:
        yield f"model_peers.py: {done.returncode}: {done.stderr}"
    lines = [line for line in done.stdout.splitlines() if line]
    if len(lines) < 20:
        yield f"model_peers.py printed {len(lines)} lines"
    have = set((root / "docs/performance.md").read_text().splitlines())
    for line in lines:
        if line not in have:
            yield f"docs/performance.md lacks: {line}"


def wants_a_tool(root):
    """Without one it says how it is called."""
    done = subprocess.run([sys.executable, "-B",
                           root / "bench/model_peers.py"],
                          capture_output=True, text=True, check=False)
    if done.returncode != 1 or "model_peers.py FERRY" not in done.stderr:
        yield f"{done.returncode}: {done.stderr}"


tree.main(tables_are_up_to_date, wants_a_tool)
