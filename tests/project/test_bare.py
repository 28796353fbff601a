# SPDX-License-Identifier: Apache-2.0
"""The release preset, on which make install stands, configures with what
scripts/setup installs for the group build, and nothing else. make demo builds
without CUDA, and says how far it is.

test_bare.py ROOT
"""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile

import tree


def modules_of_build(root):
    """pkg-config's names of what the group build brings."""
    setup = (root / "scripts/setup").read_text()
    return re.findall(r"^build +\S+ +module (\S+)$", setup, re.M)


def write_pkg_config(path, modules):
    """A pkg-config that has not heard of anything but these modules."""
    path.write_text(f"""#!/bin/sh
for word in "$@"; do
	case $word in
	-* | [0-9=\\<\\>]* | {" | ".join(modules)}) ;;
	*) exit 1 ;;
	esac
done
exec {shlex.quote(shutil.which("pkg-config"))} "$@"
""")
    path.chmod(0o755)


def release_needs_no_more(root):
    """Configures; the compiler and CMake are there as for any test."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        pkg_config = scratch / "pkg-config"
        write_pkg_config(pkg_config, modules_of_build(root))
        done = subprocess.run(
            ["cmake", "--preset", "release", "-B", scratch / "build",
             "-DFERRY_CUDA=OFF"],
            cwd=root, env={**os.environ, "PKG_CONFIG": str(pkg_config)},
            capture_output=True, text=True, timeout=200, check=False)
        if done.returncode:
            yield f"cmake --preset release: {done.stderr[-2000:]}"


def demo_has_no_cuda(root):
    """Kernels take minutes, and the demo has no use for them."""
    steps = subprocess.run(
        ["make", "-n", "demo", "SETUP=:"], cwd=root, capture_output=True,
        text=True, timeout=60, check=False).stdout
    if "scripts/build demo" not in steps or "demo build/demo" not in steps:
        yield f"make demo does not build the preset demo: {steps}"
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            ["cmake", "--preset", "demo", "-B", scratch], cwd=root,
            capture_output=True, text=True, timeout=200, check=False)
        if "cuda     off: FERRY_CUDA=OFF" not in done.stdout:
            yield f"the preset demo: {done.stdout[-2000:]}{done.stderr}"


def build_says_how_far(root):
    """Where nobody looks on, with a CMake that only takes its time."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        cmake = scratch / "cmake"
        cmake.write_text("#!/bin/sh\n[ \"$1\" = --preset ] && exit\n"
                         "echo '[3/7] Building C object x.c.o'\nsleep 3\n")
        cmake.chmod(0o755)
        done = subprocess.run(
            ["sh", root / "scripts/build", "demo", "1"],
            env={**os.environ, "PROGRESS_S": "1",
                 "PATH": f"{scratch}:{os.environ['PATH']}"},
            capture_output=True, text=True, timeout=60, check=False)
        if done.returncode or "# built 3 of 7\n" not in done.stdout:
            yield f"scripts/build: {done.stdout}{done.stderr}"


if not shutil.which("pkg-config"):
    tree.skip("no pkg-config")
tree.main(release_needs_no_more, demo_has_no_cuda, build_says_how_far)
