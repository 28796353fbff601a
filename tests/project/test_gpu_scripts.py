# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu-test, gpu-sanitize, gpu-pack and gpu-all without a GPU: what they
make of programs that pass, fail, skip and hang, and of a tool's reports."""
import importlib.machinery
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

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


# What is not a test: of these, one is not built.
TOOLS = {
    "tools/ferry": "echo 'ferry 0.1.0 (0123456789ab, gcc)'",
    "dev/cuda_try": "[ $2 = chunks ] && exec sleep 60; echo $*: 0 wrong",
    "dev/cuda_bulk": "echo $*: 3 wrong; exit 1",
}


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


def add_programs(folder, programs):
    """More shell programs of a build."""
    for name, text in programs.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)


def two_lanes(root):
    """--beside: tests that hang hold up no other, and all are logged."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_build(folder)
        begin = time.monotonic()
        subprocess.run(
            [sys.executable, "-B", root / "scripts/gpu-test", folder,
             "--beside", "slow|good", "--timeout", "2", "--log",
             folder / "log.json"],
            capture_output=True, check=False, timeout=60)
        seconds = time.monotonic() - begin
        log = json.loads((folder / "log.json").read_text())
    names = [test["name"] for test in log["tests"]]
    if sorted(names) != sorted(["test_good", "test_bad", "test_elsewhere",
                                "test_slow", "test_killed", "test_absent"]):
        yield f"lanes: {names}"
    if names[-1] != "test_slow" or seconds > 10:
        yield f"who hangs does not end last: {names}, {seconds:.1f} s"


def what_is_kept(root):
    """Of a long output: who failed first, and the end."""
    text = "rank 1 of 2: why\n" + "more\n" * 60 + "FAILED\n"
    kept = module_of(root, "gpu-test").kept(text)
    if kept[0] != "rank 1 of 2: why" or kept[-1] != "FAILED":
        yield f"kept: {kept}"


def a_build_without_tests_is_named(root):
    """One line that says what to build, and no traceback."""
    with tempfile.TemporaryDirectory() as name:
        for build, text in ((name, "has no gpu_tests.txt: it was built"),
                            (name + "/x", "/x: no such folder")):
            done = subprocess.run(
                [sys.executable, "-B", root / "scripts/gpu-test", build],
                capture_output=True, text=True, check=False, timeout=60)
            if done.returncode != 2 or done.stderr.count("\n") != 1 or \
                    text not in done.stderr:
                yield f"status {done.returncode}: {done.stdout}{done.stderr}"


def what_comes_first(root):
    """--first moves tests before the others, which keep their order."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_build(folder)
        done = subprocess.run(
            [sys.executable, "-B", root / "scripts/gpu-test", folder,
             "--skip", "slow", "--first", "elsewhere|killed"],
            capture_output=True, text=True, check=False, timeout=60)
    names = [line.split()[-1] for line in done.stdout.splitlines()
             if " s  test_" in line]
    if names != ["test_elsewhere", "test_killed", "test_good", "test_bad",
                 "test_absent"]:
        yield f"order: {names}"


def run_session(root, folder):
    """Packs a build, and runs parts of a session: (exit status, log, pack)."""
    build, pack, out = folder / "b", folder / "pack", folder / "out"
    build.mkdir()
    make_build(build)
    for name in ("test_slow", "test_absent"):
        lines = (build / "gpu_tests.txt").read_text().splitlines(True)
        (build / "gpu_tests.txt").write_text(
            "".join(line for line in lines if name not in line))
    add_programs(build, TOOLS)
    subprocess.run([root / "scripts/gpu-pack", build, pack],
                   check=True, capture_output=True, timeout=60)
    parts = ("kernels", "combine", "tests", "bulk")
    done = subprocess.run(
        [sys.executable, "-B", pack / "gpu-all", pack, out, "--limit", "12",
         "--seed", "5", *(word for p in parts for word in ("--part", p))],
        capture_output=True, text=True, check=False, timeout=60)
    return done, json.loads((out / "gpu-all.json").read_text()), out


def a_session_goes_on(root):
    """What fails, hangs or is not there ends none of the other parts."""
    if not shutil.which("xz"):
        print("# a_session_goes_on: no xz here, not tried")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        done, log, out = run_session(root, folder)
        text = json.dumps(log)
        tests = json.loads((out / "gpu-test.json").read_text())
        first_log = (out / "01-kernels.log").read_text()
    commands = {c["command"]: c for p in log["parts"] for c in p["commands"]}
    results = {command: c["result"] for command, c in commands.items()}
    want = {"dev/cuda_try check lines 2 5 60": "passed",
            "dev/cuda_try check chunks 2 5 60": "failed",
            "dev/cuda_try_combine check lines 2 5 40": "skipped",
            "dev/cuda_bulk chunks 0 4096": "failed"}
    for command, result in want.items():
        if results.get(command) != result:
            yield f"{command}: {results.get(command)}, not {result}"
    if done.returncode != 1:
        yield f"exit status {done.returncode}, though parts failed"
    hung = commands["dev/cuda_try check chunks 2 5 60"]
    if "no end after" not in str(hung["said"]) or hung["seconds"] > 5:
        yield f"a hang is not named or not ended: {hung}"
    if "check lines 2 5 60: 0 wrong" not in first_log:
        yield f"log of a part: {first_log}"
    if tests["passed"] != 1 or tests["commit"] != "0123456789ab":
        yield f"tests: {tests}"
    if log["commit"] != "0123456789ab" or log["seed"] != 5:
        yield f"commit or seed: {log['commit']}, {log['seed']}"
    if sum(p["seconds"] for p in log["parts"]) > 16:
        yield f"longer than allowed: {log['parts']}"
    if str(folder) in text:
        yield "a path of this machine is in the log"


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
    tree.main(a_build_without_tests_is_named, a_log_says_what_happened,
              what_comes_first, two_lanes, what_is_kept, a_session_goes_on,
              reports_are_sorted_out)
