# SPDX-License-Identifier: Apache-2.0
"""Each public header alone, as C11 and as C++17, and inner ones as C11.

test_headers.py ROOT CC CXX [CUDA-INCLUDES...]
"""
import re
import subprocess
import sys

import tree

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror",
            "-fsyntax-only"]
CC = sys.argv[2]
CXX = sys.argv[3] or None
CUDA = [word for path in sys.argv[4:] for word in ("-isystem", path)]


def compile_alone(root, command, path):
    """First line of the compiler's complaint, or None."""
    source = f'#include "{path}"\nstruct ferry_alone {{ int x; }};\n'
    run = subprocess.run([*command, *WARNINGS, "-I", root / "include", "-"],
                         input=source, capture_output=True, text=True,
                         check=False)
    if run.returncode == 0:
        return None
    return next((line for line in run.stderr.splitlines() if "error" in line),
                run.stderr[:200])


def as_c11(root):
    """Without extensions, as a strict user compiles."""
    for path in tree.public_headers(root):
        complaint = compile_alone(root, [CC, "-std=c11", "-xc"], path)
        if complaint:
            yield f"{path.name}: {complaint}"


def as_cpp17(root):
    """C++ users include the same headers."""
    for path in tree.public_headers(root):
        complaint = compile_alone(root, [CXX, "-std=c++17", "-xc++"], path)
        if complaint:
            yield f"{path.name}: {complaint}"


def inner_as_c11(root):
    """Headers of src include what they use."""
    for path in tree.files(root, "src", suffixes=(".h",)):
        complaint = compile_alone(
            root, [CC, "-std=c11", "-D_GNU_SOURCE", *CUDA, "-xc"], path)
        if complaint and not CUDA and re.search(r"error: cuda\w*\.h: No such",
                                                complaint):
            print(f"# no CUDA: {path.relative_to(root)} not tried")
        elif complaint:
            yield f"{path.relative_to(root)}: {complaint}"


def inits_in_cpp(root):
    """The FERRY_X_INIT macros initialise in C++ too."""
    source = ["#include <ferry/ferry.h>"]
    for path in tree.public_headers(root):
        for word in path.read_text().split():
            if word.startswith("FERRY_") and word.endswith("_INIT"):
                name = word[:-len("_INIT")].lower()
                source.append(f"struct {name} {name}_x = {word};")
    run = subprocess.run([CXX, "-std=c++17", "-xc++", "-Wall", "-Wextra",
                          "-Werror", "-fsyntax-only", "-I", root / "include",
                          "-"], input="\n".join(source) + "\n",
                         capture_output=True, text=True, check=False)
    if run.returncode:
        yield run.stderr


checks = [as_c11, inner_as_c11]
if CXX:
    checks += [as_cpp17, inits_in_cpp]
else:
    print("# no C++ compiler: C++17 not tried")
tree.main(*checks)
