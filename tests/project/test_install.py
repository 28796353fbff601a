# SPDX-License-Identifier: Apache-2.0
"""Installs the build into a scratch folder, moves it, and builds and runs
consumers against it: find_package and pkg-config, C11 and C++17, shared and
static.

test_install.py ROOT BUILD CC [CXX]
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import tree

NOT_HERE = 77  # a build without ferry prefill
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
            yield from links_hold(next(prefix.rglob("doc/ferry")))
            yield from manual_finds_the_model(root, prefix, scratch)
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


def links_hold(folder):
    """Relative links of the installed documents."""
    documents = list(folder.rglob("*.md"))
    if not folder / "README.md" in documents:
        yield "README.md is not installed"
    for path in documents:
        for link in tree.links(path.read_text()):
            if not (path.parent / link).exists():
                yield f"installed {path.relative_to(folder)}: no {link}"


def manual_finds_the_model(root, prefix, scratch):
    """The first example of ferry-prefill(1), as it says where models is."""
    ferry = prefix / "bin/ferry"
    models = next(prefix.rglob("share/ferry/models"), None)
    if not ferry.is_file() or subprocess.run(
            [ferry, "prefill"], capture_output=True,
            check=False).returncode == NOT_HERE:
        print("# no ferry prefill: its model is not looked for")
    elif not models:
        yield "no share/ferry/models"
    else:
        page = (root / "docs/man/ferry-prefill.1.md").read_text()
        line = re.search(r"^    (ferry prefill.*)$",
                         page.partition("# EXAMPLES")[2], re.M).group(1)
        folder = scratch / "user"
        folder.mkdir()
        (folder / "models").symlink_to(models)
        done = subprocess.run([ferry, *line.split()[1:]], cwd=folder,
                              capture_output=True, text=True, timeout=100,
                              check=False)
        if done.returncode:
            yield f"{line}: status {done.returncode}\n{done.stderr[-2000:]}"


tree.main(installed_tree_serves_consumers)
