# SPDX-License-Identifier: Apache-2.0
"""The rules of the house that a machine can read: rooms, names, sizes, and
what the library must not call. CONTRIBUTING.md says why."""
import collections
import os
import re

import tree

# A room may include rooms of a smaller number, and itself.
ROOMS = {"core": 0, "trace": 1, "balance": 1, "boot": 2, "fabric": 3,
         "migrate": 4, "proto": 4, "cpu": 5, "cuda": 5, "nvshmem": 6,
         "moe": 6}
# Names that belong to one folder each by convention.
SHARED_NAMES = {".clang-tidy", "CMakeLists.txt", "README.md", "__init__.py"}

HEADER_LINES, SOURCE_LINES, FUNCTION_LINES, KERNEL_LINES = 300, 600, 80, 150

FORBIDDEN = [
    ("the library must not exit, print or hook signals",
     r"(?<![>.\w])(exit|_Exit|quick_exit|abort|printf|vprintf|puts|putchar|perror|"
     r"signal|sigaction|atexit)\s*\("),
    ("assert in the library: a status with a message instead",
     r"(?<!\w)assert\s*\("),
    ("typedef of a struct or enum", 
     r"\btypedef\s+(struct|enum|union)\b[^;(]*;"),
]
# Puts back what a library that it opens has hooked.
SIGNAL_FILES = {"src/fabric/ofi_signals.c"}
ATOMIC = r"__atomic_|__sync_|\bstdatomic\b|\bmemory_order_|__threadfence"
ASM = r"\basm\b|__asm"
ORDER_FILES = {"src/core/order.h", "src/cuda/order.cuh", "src/cuda/copy.cuh"}
# What C has no word for: the rounding mode of Arm, small floats on GPUs.
ASM_FILES = {"src/cpu/fp_mode.c", "src/cuda/number.cuh"}

# Kernels that wait for nobody.
LONE_KERNELS = {"cuda_yard.cu"}


def includes(path):
    """Quoted includes of a file, as resolved paths."""
    for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(),
                           re.M):
        yield name, (path.parent / name).resolve()


def room_of(root, path):
    """Room of a file of src, else None."""
    parts = path.relative_to(root).parts
    return parts[1] if parts[0] == "src" and len(parts) > 2 else None


def rooms_point_down(root):
    """core < trace < boot < fabric < proto < cpu, cuda < moe < tools."""
    for path in tree.files(root, "src"):
        room = room_of(root, path)
        if room is None:
            continue
        if room not in ROOMS:
            yield f"{path.relative_to(root)}: room {room} is not known here"
            continue
        for name, target in includes(path):
            if not target.is_file():
                yield f"{path.relative_to(root)}: {name} is not beside it"
                continue
            other = room_of(root, target)
            if other is None or (other != room
                                 and ROOMS[other] >= ROOMS[room]):
                yield f"{path.relative_to(root)}: {room} includes {name}"


def public_headers_stand_alone(root):
    """Only ferry/ and three headers of C."""
    allowed = {"stdbool.h", "stddef.h", "stdint.h"}
    for path in tree.public_headers(root):
        for name in re.findall(r"#\s*include\s+[<\"]([^>\"]+)",
                               path.read_text()):
            if name not in allowed and not name.startswith("ferry/"):
                yield f"{path.name} includes {name}"


def examples_are_outsiders(root):
    """Examples use what an installed library gives."""
    for path in tree.files(root, "examples"):
        for name, target in includes(path):
            if root / "src" in target.parents or "src/" in name:
                yield f"{path.relative_to(root)} includes {name}"


def file_names_are_unique(root):
    """A name says which file is meant."""
    by_name = collections.defaultdict(list)
    suffixes = tree.CODE + (".py", ".md", ".def", ".cmake", ".sh", "")
    for path in tree.files(root, suffixes=suffixes):
        if path.name not in SHARED_NAMES:
            by_name[path.name].append(str(path.relative_to(root)))
    for name, paths in sorted(by_name.items()):
        if len(paths) > 1:
            yield f"{name}: {' '.join(paths)}"


def functions(text):
    """(name, first line, lines) of what has its braces in column 0."""
    lines = text.splitlines()
    start = None
    for i, line in enumerate(lines):
        if line == "{":
            start = i
        elif line.startswith("}") and start is not None:
            head = " ".join(lines[max(0, start - 6):start])
            name = re.findall(r"(\w+)\s*\(", head)
            if name:
                yield name[-1], start + 1, i - start - 1
            start = None


def functions_are_short(root):
    """Report of the longest; findings beyond the limit."""
    found = []
    for path in tree.files(root, "src", "include", "tools", "tests",
                           "examples", "bench"):
        limit = KERNEL_LINES if path.suffix == ".cu" else FUNCTION_LINES
        for name, line, n in functions(tree.code_only(path.read_text())):
            found.append((n, f"{path.relative_to(root)}:{line} {name}"))
            if n > limit:
                yield f"{found[-1][1]} has {n} lines, limit {limit}"
    lengths = sorted(n for n, _ in found) or [0]
    print(f"# {len(found)} functions, median {lengths[len(lengths) // 2]} "
          f"lines; longest:")
    for n, where in sorted(found, reverse=True)[:8]:
        print(f"#   {n:4} {where}")


def files_are_short(root):
    """Report of the longest; findings beyond the limit."""
    found = []
    for path in tree.files(root, "src", "include", "tools", "tests",
                           "examples", "bench"):
        n = path.read_text().count("\n")
        limit = HEADER_LINES if path.suffix == ".h" else SOURCE_LINES
        found.append((n, path.relative_to(root)))
        if n > limit:
            yield f"{path.relative_to(root)} has {n} lines, limit {limit}"
    lengths = sorted(n for n, _ in found) or [0]
    print(f"# {len(found)} files, median {lengths[len(lengths) // 2]} "
          f"lines; longest:")
    for n, where in sorted(found, reverse=True)[:8]:
        print(f"#   {n:4} {where}")


def library_keeps_quiet(root):
    """No call that a library must not make."""
    for path in tree.files(root, "src", "include"):
        text = path.read_text()
        code = tree.code_only(text)
        for why, pattern in FORBIDDEN:
            for match in re.finditer(pattern, code):
                if (str(path.relative_to(root)) in SIGNAL_FILES
                        and match.group(0) == "sigaction("):
                    continue
                yield (f"{tree.at(root, path, code, match.start())}: "
                       f"{match.group(0)}: {why}")


def order_is_in_one_place(root):
    """Atomics and asm in the files that are there for them only."""
    for path in tree.files(root, "src", "include"):
        name = str(path.relative_to(root))
        if name in ORDER_FILES:
            continue
        pattern = ATOMIC if name in ASM_FILES else f"{ATOMIC}|{ASM}"
        code = tree.code_only(path.read_text())
        for match in re.finditer(pattern, code):
            yield (f"{tree.at(root, path, code, match.start())}: "
                   f"{match.group(0)} belongs in order.h, order.cuh or "
                   "copy.cuh")


def nothing_is_left_open(root):
    """Work that is left belongs in an issue."""
    words = r"\b(TODO|FIXME|XXX)\b|not implemented|stub out"
    for path in tree.files(root, "src", "include", "tools", "bindings",
                           "examples", "bench"):
        text = path.read_text()
        for match in re.finditer(words, text):
            yield f"{tree.at(root, path, text, match.start())}: {match.group(0)}"


def licence_stands_on_top(root):
    """SPDX in the first two lines, and a paragraph after it."""
    suffixes = tree.CODE + (".def", ".py", ".cmake", ".sh", ".map", ".in")
    for path in tree.files(root, suffixes=suffixes):
        head = path.read_text().splitlines()[:2]
        if path.stat().st_size and not any("SPDX-License-Identifier: "
                                           "Apache-2.0" in x for x in head):
            yield f"{path.relative_to(root)}: no SPDX line on top"


def files_say_what_they_are(root):
    """Every C file opens with a comment of its own."""
    for path in tree.files(root, "src", "include", "tools", "tests",
                           "examples", "bench"):
        text = path.read_text()
        text = re.sub(r"\A/\* SPDX[^\n]*\*/\n|\A// SPDX[^\n]*\n", "", text)
        if not text.lstrip().startswith(("/*", "//")):
            yield f"{path.relative_to(root)}: no comment after SPDX"


def protocols_have_their_headings(root):
    """Kernels that speak with other GPUs say how, under seven headings."""
    wanted = ("Does", "Buffers", "Steps", "Flags", "Threads", "Waits", "Cost")
    for path in tree.files(root, "src/cuda", suffixes=(".cu",)):
        text = path.read_text()
        head = text.split("#include", 1)[0]
        for word in wanted:
            if ("__global__" in tree.code_only(text)
                    and path.name not in LONE_KERNELS
                    and not re.search(rf"^ \*\s+{word}\b", head, re.M)):
                yield f"{path.relative_to(root)}: no heading {word}"


def comments_have_80_columns(root):
    """clang-format leaves comments as they are."""
    for path in tree.files(root, "src", "include", "tools", "tests",
                           "examples", "bench", "dev"):
        for i, line in enumerate(path.read_text().splitlines(), 1):
            if (re.match(r"\s*(/\*|\*|//)", line)
                    and len(line.expandtabs(8)) > 80):
                yield f"{path.relative_to(root)}:{i}: over 80 columns"


def tree_is_self_contained(root):
    """No path of somebody's machine."""
    # Written so that this file does not find itself.
    pattern = re.compile("/" + r"work/|\." + r"library\b")
    for path in tree.files(root, suffixes=tree.CODE + (
            ".py", ".md", ".cmake", ".sh", ".txt", ".json", "")):
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for match in pattern.finditer(text):
            yield (f"{tree.at(root, path, text, match.start())}: "
                   f"{match.group(0)}")


def scripts_are_executable(root):
    """What is called by name can be called."""
    for path in tree.files(root, "scripts", ".ci", suffixes=("",)):
        if not os.access(path, os.X_OK):
            yield f"{path.relative_to(root)} is not executable"


tree.main(rooms_point_down, public_headers_stand_alone,
          examples_are_outsiders, file_names_are_unique, functions_are_short,
          files_are_short, library_keeps_quiet, order_is_in_one_place,
          nothing_is_left_open, licence_stands_on_top,
          files_say_what_they_are, protocols_have_their_headings,
          comments_have_80_columns, tree_is_self_contained,
          scripts_are_executable)
