# SPDX-License-Identifier: Apache-2.0
"""Installs the build into a scratch folder, moves it, and builds and runs
consumers against it: find_package and pkg-config, C11 and C++17, shared and
static.

test_install.py ROOT BUILD CC [CXX]
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import tree

BUILD, CC = sys.argv[2:4]
CXX = sys.argv[4] if len(sys.argv) > 4 and sys.argv[4] else None


class Failed(Exception):
    """A command that should have worked."""


def run(*command, **options):
    """Runs a command; its output on failure is the finding."""
    done = subprocess.run([str(word) for word in command],
                          capture_output=True, text=True, timeout=100,
                          check=False, **options)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))}: status "
                     f"{done.returncode}\n{done.stdout[-2000:]}"
                     f"{done.stderr[-2000:]}")
    return done.stdout


def library_folder(prefix):
    """lib, lib64 or lib/TRIPLET."""
    return next(prefix.rglob("ferry.pc")).parent.parent


def environment(prefix):
    """Where a user would point to an installation of their own."""
    library = library_folder(prefix)
    return {**os.environ, "LD_LIBRARY_PATH": str(library),
            "PKG_CONFIG_PATH": str(library / "pkgconfig"),
            "CMAKE_PREFIX_PATH": str(prefix)}


def with_find_package(root, prefix, scratch):
    """The consumer's own CMake project."""
    folder = scratch / "cmake"
    run("cmake", "-S", root / "tests/project/consumer", "-B", folder,
        f"-DCMAKE_C_COMPILER={CC}", f"-DCMAKE_CXX_COMPILER={CXX}",
        env=environment(prefix))
    run("cmake", "--build", folder)
    for name in ("c_ferry", "c_ferry_static", "cpp_ferry", "cpp_ferry_static"):
        run(folder / name, env=environment(prefix))


def with_pkg_config(root, prefix, scratch, compiler, static):
    """One compiler command with what pkg-config says."""
    env = environment(prefix)
    options = run("pkg-config", "--cflags", "--libs",
                  *(["--static"] if static else []), "ferry", env=env).split()
    if static:
        options = [f"{library_folder(prefix)}/libferry.a"
                   if option == "-lferry" else option for option in options]
    source = root / "tests/project/consumer/consumer.c"
    program = scratch / "program"
    run(*compiler, source, "-x", "none", "-o", program, *options)
    run(program, env=env)


def installed_tree_serves_consumers(root):
    """Everything in one go: each step stands on the one before."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        first, prefix = scratch / "first", scratch / "moved"
        try:
            run("cmake", "--install", BUILD, "--prefix", first)
            shutil.move(first, prefix)
            for static in (False, True):
                with_pkg_config(root, prefix, scratch,
                                [CC, "-std=c11", "-x", "c"], static)
                if CXX:
                    with_pkg_config(root, prefix, scratch,
                                    [CXX, "-std=c++17", "-x", "c++"], static)
            if CXX:
                with_find_package(root, prefix, scratch)
            else:
                print("# no C++ compiler: find_package not tried")
            yield from complete(root, prefix)
        except Failed as failure:
            yield str(failure)


def complete(root, prefix):
    """Headers, libraries, manual, tool are all there."""
    for header in tree.public_headers(root):
        if not (prefix / "include/ferry" / header.name).is_file():
            yield f"{header.name} is not installed"
    if (pathlib.Path(BUILD) / "man").is_dir():
        for source in (root / "docs/man").glob("*.md"):
            page = source.stem
            if not (prefix / "share/man" / f"man{page[-1]}" / page).is_file():
                yield f"manual page {page} is not installed"
    if (pathlib.Path(BUILD) / "tools/ferry").is_file():
        run(prefix / "bin/ferry", "--version")


tree.main(installed_tree_serves_consumers)
