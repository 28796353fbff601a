# SPDX-License-Identifier: Apache-2.0
"""The release preset, on which make demo and make install stand, configures
with what scripts/setup installs for the group build, and nothing else.

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


if not shutil.which("pkg-config"):
    tree.skip("no pkg-config")
tree.main(release_needs_no_more)
