# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu-test and scripts/gpu-sanitize without a GPU: what they make of
programs that pass, fail, skip and hang, and of a tool's reports."""
import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile

import tree

PROGRAMS = {
    "good": "echo TEST_SEED=42; echo '# 2 GPUs'; exit 0",
    "bad": "echo it went wrong; exit 1",
    "elsewhere": "echo no GPU here; exit 77",
    "slow": "sleep 60 & wait",
    "killed": "kill -9 $$",
}

REPORTS = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at kernel(int *)+0x50 in file.cu:7
=========     by thread (3,0,0) in block (0,0,0)
========= 
========= Uninitialized __global__ memory read of size 8 bytes
=========     at kernel(int *)+0x90
========= ERROR SUMMARY: 2 errors
"""


def module_of(root, name):
    """A script as a module."""
    loader = importlib.machinery.SourceFileLoader(
        name.replace("-", "_"), str(root / "scripts" / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def make_build(folder):
    """A build of shell programs."""
    lines = []
    for name, text in PROGRAMS.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        lines.append(f"test_{name} {name} --path lines\n")
    lines.append("test_absent absent\n")
    (folder / "gpu_tests.txt").write_text("".join(lines))
    (folder / "gpu_commit.txt").write_text("0123456789ab\n")


def a_log_says_what_happened(root):
    """Results, seed, reason, commit, counts."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_build(folder)
        log_path = folder / "logs/log.json"
        done = subprocess.run(
            [sys.executable, "-B", root / "scripts/gpu-test", folder,
             "--timeout", "1", "--log", log_path],
            capture_output=True, text=True, check=False, timeout=60)
        log = json.loads(log_path.read_text())
    results = {t["name"]: t["result"] for t in log["tests"]}
    want = {"test_good": "passed", "test_bad": "failed",
            "test_elsewhere": "skipped", "test_slow": "failed",
            "test_killed": "failed", "test_absent": "failed"}
    by_name = {t["name"]: t for t in log["tests"]}
    if results != want:
        yield f"results are {results}"
    if done.returncode != 1:
        yield f"exit status {done.returncode}, though tests failed"
    if "1 passed, 4 failed, 1 skipped" not in done.stdout:
        yield f"last line: {done.stdout.splitlines()[-1:]}"
    if by_name["test_good"].get("seed") != 42:
        yield "the seed is not in the log"
    if by_name["test_elsewhere"].get("reason") != "no GPU here":
        yield "the reason is not in the log"
    if "no end after" not in str(by_name["test_slow"].get("output")):
        yield "a hang is not named"
    if by_name["test_good"]["command"] != "good --path lines":
        yield f"command: {by_name['test_good']['command']}"
    if log["commit"] != "0123456789ab" or not log["machine"]["cores"]:
        yield f"commit or machine: {log['commit']}, {log['machine']}"
    if str(folder) in json.dumps(log):
        yield "a path of this machine is in the log"


def reports_are_sorted_out(root):
    """What counts, what is suppressed, and by which reason."""
    sanitize = module_of(root, "gpu-sanitize")
    found = sanitize.reports(REPORTS)
    if [r[0].split(" of size")[0] for r in found] != [
            "Invalid __global__ write",
            "Uninitialized __global__ memory read"]:
        yield f"reports: {found}"
    rest, suppressed = sanitize.sort_out("initcheck", found)
    if len(rest) != 1 or sum(suppressed.values()) != 1:
        yield f"initcheck: {rest}, {suppressed}"
    rest, suppressed = sanitize.sort_out("memcheck", found)
    if len(rest) != 2 or suppressed:
        yield f"memcheck: {rest}, {suppressed}"


if __name__ == "__main__":
    tree.main(a_log_says_what_happened, reports_are_sorted_out)
