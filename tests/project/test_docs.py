# SPDX-License-Identifier: Apache-2.0
"""What the documents say against what the code has.

test_docs.py ROOT BUILD
"""
import pathlib
import re
import subprocess
import sys
import tempfile

import tree

BUILD = pathlib.Path(sys.argv[2])


def documents(root):
    """Markdown that is for readers."""
    return tree.files(root, suffixes=(".md",))


def headers_text(root):
    """All public headers in one."""
    return "\n".join(path.read_text() for path in tree.public_headers(root))


def environment_names(root):
    """FERRY_ variables of env.def."""
    text = (root / "src/core/env.def").read_text()
    return {f"FERRY_{name}" for name in re.findall(r"^X\(\w+, (\w+),", text,
                                                   re.M)}


def declarations_are_documented(root):
    """A /** comment right before each FERRY_API."""
    for name, (header, before) in tree.public_functions(root).items():
        comment = before.rstrip().rpartition("/*")[2]
        if not before.rstrip().endswith("*/") or comment[:1] != "*":
            yield f"{header.name}: {name} has no /** comment"


def functions_are_in_the_manual(root):
    """Each public function stands in a page of section 3."""
    pages = "\n".join(path.read_text()
                      for path in (root / "docs/man").glob("*.3.md"))
    for name in sorted(tree.public_functions(root)):
        if not re.search(rf"\b{name}\b", pages):
            yield f"{name} is in no page of section 3"


def names_in_documents_exist(root):
    """ferry_x() and FERRY_X of documents are in the code."""
    code = "\n".join(path.read_text() for path in tree.files(
        root, "include", "src", "tools", "tests", "examples",
        suffixes=tree.CODE + (".def", ".map")))
    build = "\n".join(path.read_text() for path in tree.files(
        root, suffixes=(".cmake", ".txt")))
    functions = set(re.findall(r"\b(ferry_\w+)", code + build))
    capitals = set(re.findall(r"\b(FERRY_\w+)", code + build))
    capitals |= environment_names(root)
    capitals |= {f"FERRY_{name}" for name in
                 re.findall(r"\bX\((\w+), -?\d+,", code)}
    for path in documents(root):
        text = re.sub(r"\Atitle: .*", "", path.read_text())
        for match in re.finditer(r"\b(ferry_[a-z]\w*)(?=\()|\b(FERRY_[A-Z]\w*)",
                                 text):
            name = match.group(0)
            if name not in functions and name not in capitals:
                yield f"{tree.at(root, path, text, match.start())}: no {name}"


def guide_has_the_statuses(root):
    """The table in the guide is FERRY_STATUS_MAP."""
    wanted = re.findall(r'X\((\w+), (-?\d+),\s*"([^"]*)"\)',
                        (root / "include/ferry/status.h").read_text())
    guide = (root / "docs/guide.md").read_text()
    found = re.findall(r"^\| `FERRY_(\w+)` \| (-?\d+) \| ([^|]*?) \|", guide,
                       re.M)
    for row in wanted:
        if row not in found:
            yield f"guide.md lacks the status {' '.join(row)}"
    for row in found:
        if row not in wanted:
            yield f"guide.md has {' '.join(row)}, the header has not"


def links_lead_somewhere(root):
    """Relative links of documents."""
    for path in documents(root):
        for target in tree.links(path.read_text()):
            if not (path.parent / target).exists():
                yield f"{path.relative_to(root)}: no {target}"


def manual_pages_are_whole(root):
    """NAME, EXAMPLES and SEE ALSO, and a title that fits the file."""
    for path in sorted((root / "docs/man").glob("*.md")):
        text = path.read_text()
        name, section = path.stem.rsplit(".", 1)
        for wanted in (f"title: {name.upper()}\n", f"section: {section}\n",
                       "\n# NAME\n", "\n# EXAMPLES\n", "\n# SEE ALSO\n"):
            if wanted not in text:
                yield f"{path.name} lacks {wanted.strip()!r}"
        for other, number in re.findall(r"\b(ferry[\w-]*)\((\d)\)", text):
            if not (root / f"docs/man/{other}.{number}.md").exists():
                yield f"{path.name} refers to {other}({number})"


def manual_has_the_environment(root):
    """The built page names every variable; so does no other."""
    page = BUILD / "man/ferry-env.7"
    if not page.exists():
        print("# no built manual: lowdown is missing")
        return
    text = page.read_text().replace("\\-", "-").replace("\\_", "_")
    for name in sorted(environment_names(root)):
        if name not in text:
            yield f"ferry-env.7 lacks {name}"


def programs(root):
    """C in the documents as whole programs: (document, source)."""
    around = (root / "tests/project/consumer/around_readme.c").read_text()
    for path in documents(root):
        for block in re.findall(r"^```c\n(.*?)^```", path.read_text(),
                                re.S | re.M):
            if "int main" not in block:
                block = around.replace("/* @README@ */", block)
            yield path, block


def programs_in_documents_run(root):
    """As one rank, against the static library of this build."""
    cache = (BUILD / "CMakeCache.txt").read_text()
    compiler = re.search(r"^CMAKE_C_COMPILER:\w+=(.*)$", cache, re.M).group(1)
    flags = re.search(r"^FERRY_SANITIZE:\w+=(\w*)$", cache, re.M).group(1)
    flags = [f"-fsanitize={flags}"] if flags else []
    for path, source in programs(root):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "program"
            command = [compiler, "-std=c11", "-Wall", "-Wextra", "-Werror",
                       *flags, "-I", root / "include", "-xc", "-", "-o",
                       program, "-L", BUILD / "src", "-lferry",
                       f"-Wl,-rpath,{BUILD / 'src'}"]
            for step, text in ((command, source), ([program], "")):
                run = subprocess.run(step, input=text, capture_output=True,
                                     text=True, timeout=60, check=False)
                if run.returncode:
                    yield (f"{path.relative_to(root)}: program fails: "
                           f"{run.stdout}{run.stderr}"[:2000])
                    break


def options_of(text, begin):
    """Option -> values of a command over several lines that begins so."""
    command = re.search(rf"{begin} prefill ((?:.*\\\n)*.*)", text).group(1)
    words = command.replace("\\\n", " ").split()
    found, option = {}, None
    for word in words:
        if word.startswith("--"):
            option = word
        found.setdefault(option, []).append(word)
    return {name: values for name, values in found.items()
            if name not in ("--model", "--text", "--report")}


def readme_has_the_demo(root):
    """The command above the README's table is the one that makes it."""
    shown = options_of((root / "README.md").read_text(), "    ferry")
    run = options_of((root / "scripts/demo").read_text(), '"\\$ferry"')
    if shown != run:
        yield f"README.md has {shown}, scripts/demo has {run}"


tree.main(declarations_are_documented, functions_are_in_the_manual,
          names_in_documents_exist, guide_has_the_statuses,
          links_lead_somewhere, manual_pages_are_whole,
          manual_has_the_environment, readme_has_the_demo,
          programs_in_documents_run)
