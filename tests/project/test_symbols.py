# SPDX-License-Identifier: Apache-2.0
"""The binary interface: symbols, dependencies, SONAME, no mutable globals.

test_symbols.py ROOT LIBFERRY_SO LIBFERRY_A
"""
import pathlib
import re
import subprocess
import sys

import tree

SHARED, ARCHIVE = sys.argv[2:4]
# Where there is a thread_local, the loader itself is needed on some machines.
NEEDED = re.compile(r"(libc|libm|ld-linux[\w-]*)\.so\.\d+")


def output(*command):
    """Standard output of a command that must work."""
    return subprocess.run(command, capture_output=True, text=True,
                          check=True).stdout


def exported():
    """Functions that the shared library defines, without their version."""
    lines = output("nm", "-D", "--defined-only", SHARED).splitlines()
    return {line.split()[-1].split("@")[0] for line in lines
            if line.split()[1] != "A"}


def mapped(root):
    """Names in the export map."""
    text = tree.code_only((root / "src/ferry.map").read_text())
    return set(re.findall(r"\b(ferry_\w+);", text))


def exports_are_the_map(root):
    """nm -D, ferry.map and the FERRY_API declarations are one list."""
    declared = set(tree.public_functions(root))
    listed, found = mapped(root), exported()
    for name in sorted(declared - listed):
        yield f"{name} is declared FERRY_API, but not in ferry.map"
    for name in sorted(listed - declared):
        yield f"{name} is in ferry.map, but no header declares it"
    for name in sorted(declared - found):
        yield f"{name} is declared, but the library does not define it"
    for name in sorted(found - listed):
        yield f"{name} is exported, but not in ferry.map"


def library_needs_only_libc(_root):
    """So that it loads anywhere, with or without a GPU."""
    for name in re.findall(r"\(NEEDED\).*\[(.*)\]",
                           output("readelf", "-d", SHARED)):
        if not NEEDED.fullmatch(name):
            yield f"needs {name}"


def soname_is_the_minor_version(root):
    """Before 1.0 a minor release may change the interface."""
    base = (root / "include/ferry/base.h").read_text()
    major, minor = (re.search(rf"VERSION_{part} (\d+)", base).group(1)
                    for part in ("MAJOR", "MINOR"))
    soname = re.findall(r"\(SONAME\).*\[(.*)\]",
                        output("readelf", "-d", SHARED))
    if soname != [f"libferry.so.{major}.{minor}"]:
        yield f"SONAME is {soname}"


def no_mutable_globals(_root):
    """Objects in .data and .bss; a thread_local is elsewhere."""
    member = ""
    for line in output("objdump", "-t", ARCHIVE).splitlines():
        head = re.match(r"(\S+):\s+file format", line)
        if head:
            member = head.group(1)
        # nvcc's registration of kernels has some of its own.
        elif not member.endswith(".cu.o") and re.search(
                r" O \.(data|bss)(?!\.rel\.ro)", line):
            yield f"{member}: {line.split()[-1]} is a mutable global"


def every_symbol_has_the_prefix(_root):
    """A static library has no other protection against clashes."""
    for line in output("nm", "-g", "--defined-only", ARCHIVE).splitlines():
        parts = line.split()
        if len(parts) == 3 and parts[1] in "TDBRC" and \
                not parts[2].startswith(("ferry_", "_Z", "__cuda", "fatbin")):
            yield f"{parts[2]} is global in libferry.a"


if not pathlib.Path(SHARED).exists():
    tree.skip("the shared library is not built")
tree.main(exports_are_the_map, library_needs_only_libc,
          soname_is_the_minor_version, no_mutable_globals,
          every_symbol_has_the_prefix)
