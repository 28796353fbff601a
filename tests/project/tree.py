# SPDX-License-Identifier: Apache-2.0
"""What the checks of this folder share: the files of the tree, C without its
comments, the public declarations, and the way to report.

A check is a function that takes the root and yields findings, one line each.
"""
import pathlib
import re
import subprocess
import sys

CODE = (".c", ".h", ".cu", ".cuh", ".cpp")


def files(root, *folders, suffixes=CODE):
    """Files that git knows or would know, below the folders, sorted."""
    listed = subprocess.run(
        ["git", "-C", root, "ls-files", "-co", "--exclude-standard"],
        capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        paths = [root / line for line in listed.stdout.splitlines()]
    else:  # an unpacked archive
        paths = [path for path in root.rglob("*")
                 if "build" not in path.relative_to(root).parts]
    tops = [root / folder for folder in folders] or [root]
    return sorted({path for path in paths
                   if path.is_file() and path.suffix in suffixes
                   and any(top in path.parents for top in tops)})


def code_only(text):
    """C with comments and the inside of strings blanked, lines kept."""
    def blank(match):
        found = match.group(0)
        if found[0] in "\"'":
            return found[0] * 2
        return re.sub(r"[^\n]", " ", found)
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"'
                  r"|'(?:\\.|[^'\\\n])*'", blank, text, flags=re.S)


def links(text):
    """Where the relative links of a document lead to, in its own words."""
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target and not target.startswith("mailto:"):
            yield target


def public_headers(root):
    """The installed headers."""
    return sorted((root / "include/ferry").glob("*.h"))


def public_functions(root):
    """name -> (header, text before the declaration)."""
    found = {}
    for header in public_headers(root):
        text = header.read_text()
        for match in re.finditer(r"^FERRY_API\b[^;]*?\b(ferry_\w+)\s*\(", text,
                                 re.M):
            found[match.group(1)] = (header, text[:match.start()])
    return found


def at(root, path, text, offset):
    """file:line of an offset."""
    return f"{path.relative_to(root)}:{text.count(chr(10), 0, offset) + 1}"


def skip(why):
    """Ends the test as skipped."""
    print(why)
    sys.exit(77)


def main(*checks):
    """Runs the checks on the root that the command line names."""
    root = pathlib.Path(sys.argv[1]).resolve()
    n_found = 0
    for check in checks:
        for finding in check(root):
            print(f"{check.__name__}: {finding}")
            n_found += 1
    print(f"{len(checks)} checks, {n_found} findings")
    sys.exit(1 if n_found else 0)
