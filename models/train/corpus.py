#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gathers the text that the small model is trained on, from Debian packages.

    models/train/corpus.py CACHE [--texts FOLDER] [--domain NAME]...

Downloads the packages of SOURCES with apt-get into CACHE/deb, unpacks them beside
it, and writes for each domain CACHE/text/NAME.train.txt: documents with a NUL byte
between two of them. FOLDER, models/texts in the source tree, gets the held-out text
of each domain as NAME.txt.

Which document is held out depends on nothing but the hash of its text: the documents
of a domain are sorted by hash, and those of its first source come first until there
are HELD_OUT bytes. What remains is for training, up to the limit of the domain. A
paragraph of translated manuals that was seen before is left out, held-out text first,
so that none of it is in both.
"""
import argparse
import gzip
import hashlib
import html.parser
import pathlib
import re
import subprocess
import tarfile
import unicodedata
import zlib

HELD_OUT = 128 * 1024
BLOCK = 6000
# Text that is the same in hundreds of files is no measure of anything.
SKIPPED_C = re.compile(r"flex|unicode|/testsuite/|tables?\.|_data\.|/libgloss/")


def is_code(text):
    """Whether a file is more than a table of numbers."""
    digits = sum(c.isdigit() for c in text)
    return len(text) > 400 and "\ufffd" not in text and digits * 12 < len(text)


def c_files(root):
    """C sources and headers of a tree, without what a program wrote."""
    for path in sorted(root.rglob("*.[ch]")):
        if SKIPPED_C.search(str(path)) or not path.is_file():
            continue
        text = path.read_bytes()[:60_000].decode("utf-8", "replace")
        if is_code(text):
            yield text


def c_archive(root):
    """C sources inside the one .tar.xz of a package."""
    name, = root.rglob("*.tar.xz")
    with tarfile.open(name) as archive:
        for member in archive:
            if (not re.search(r"/newlib/lib[cm]/.*\.[ch]$", member.name)
                    or SKIPPED_C.search(member.name) or not member.isfile()):
                continue
            text = archive.extractfile(member).read()[:60_000]
            text = text.decode("utf-8", "replace")
            if is_code(text):
                yield text


def blocks(pieces, size=BLOCK):
    """Puts pieces together until there are size characters."""
    held, length = [], 0
    for piece in pieces:
        held.append(piece)
        length += len(piece)
        if length >= size:
            yield "".join(held)
            held, length = [], 0
    if held:
        yield "".join(held)


def metamath(root):
    """set.mm by statements. A compressed proof is a list of labels and then
    letters that only a verifier can read: the letters go."""
    path, = root.rglob("set.mm")
    text = path.read_text()
    text = text[text.index("$( Declare"):] if "$( Declare" in text else text
    text = re.sub(r"(\$=\s*\([^()]*\))[A-Z\s]+\$\.", r"\1 $.", text)
    yield from blocks(re.split(r"(?<=\$\.\n)\n", text))


def austen(root):
    """The novels in an R database: chunks of a length and zlib data, in each the
    lines as strings of (flags, length, bytes)."""
    data = next(root.rglob("Rdata.rdb")).read_bytes()
    at = 0
    while at < len(data):
        unpacker = zlib.decompressobj()
        chunk = unpacker.decompress(data[at + 4:])
        at = len(data) - len(unpacker.unused_data)
        lines = []
        for head in re.finditer(rb"\x00\x04\x00\x09(\x00\x00..)", chunk, re.S):
            end = head.end() + int.from_bytes(head.group(1), "big")
            lines.append(chunk[head.end():end].decode() + "\n")
        yield from blocks(re.split(r"(?<=\n)(?=\n)", "".join(lines)))


def wordnet(root):
    """WordNet as a dictionary, by entries."""
    path, = root.rglob("wn.dict.dz")
    text = gzip.open(path).read().decode()
    text = text[text.index("\nabandon"):]
    yield from blocks(re.split(r"(?<=\n)(?=\S)", text))


class Paragraphs(html.parser.HTMLParser):
    """The text of a page, a string for each block."""
    BREAKS = set("p h1 h2 h3 h4 h5 h6 li td th dt dd div pre tr br table "
                 "ul ol dl section".split())
    DROPPED = {"script", "style", "nav", "header", "footer", "aside", "head"}

    def __init__(self):
        super().__init__()
        self.found, self.now, self.dropping, self.pre = [], [], 0, 0

    def close_block(self):
        """Ends the paragraph that is open."""
        text = "".join(self.now)
        if not self.pre:
            text = " ".join(text.split())
        if text.strip():
            self.found.append(text.strip("\n"))
        self.now = []

    def handle_starttag(self, tag, attrs):
        if tag in self.BREAKS:
            self.close_block()
        self.dropping += tag in self.DROPPED
        self.pre += tag == "pre"

    def handle_endtag(self, tag):
        if tag in self.BREAKS:
            self.close_block()
        if tag in self.DROPPED:
            self.dropping = max(0, self.dropping - 1)
        if tag == "pre":
            self.pre = max(0, self.pre - 1)

    def handle_data(self, data):
        if not self.dropping:
            self.now.append(data)


def foreign(text):
    """Whether at least a third of the letters is not of ours."""
    letters = [c for c in text if c.isalpha()]
    return letters and sum(c > "\u0370" for c in letters) * 3 >= len(letters)


def pages(pattern, start="<body", end="</body>", keep=foreign):
    """A reader of HTML pages of which the paragraphs that pass keep stay."""
    def read(root):
        for path in sorted(root.rglob("*.html")):
            if not re.search(pattern, str(path)):
                continue
            text = path.read_bytes().decode("utf-8", "replace")
            if "\ufffd" in text:
                continue
            text = text[max(0, text.find(start)):]
            reader = Paragraphs()
            reader.feed(text[:text.find(end)])
            reader.close_block()
            yield [x for x in reader.found if keep(x)]
    return read


def questions_pod(root):
    """perlfaq, by questions."""
    for path in sorted(root.rglob("perlfaq*.pod")):
        text = path.read_text()
        text = text[:text.find("=head1 AUTHOR AND COPYRIGHT")]
        yield from re.split(r"(?m)^(?==head2 )", text)


def questions_rst(root):
    """Python's questions, by questions."""
    for path in sorted(root.rglob("_sources/faq/*.rst.txt")):
        yield from re.split(r"(?m)^(?=[^\n]+\n-{4,}\n)", path.read_text())


def questions_html(root):
    """Debian's questions, a chapter each."""
    for found in pages(r"FAQ/.*\.en\.html$", keep=bool)(root):
        yield "\n".join(found)


KICAD = "CC-BY-3.0 or GPL-3.0-or-later"
# Of each domain: bytes for training, then (package, reader, licence). The first
# gives the held-out text.
SOURCES = {
    "c": (5_000_000, [
        ("erlang-src", c_files, "Apache-2.0"),
        ("newlib-source", c_archive, "BSD-3-Clause and similar"),
        ("libstb-dev", c_files, "public domain or MIT")]),
    "math": (5_000_000, [("metamath-databases", metamath, "CC0-1.0")]),
    "english": (5_000_000, [
        ("r-cran-janeaustenr", austen, "public domain")]),
    "japanese": (6_000_000, [
        ("apache2-doc", pages(r"manual/ja/"), "Apache-2.0"),
        ("libreoffice-help-ja", pages("/text/", '<div id="DisplayArea"',
                                      '<div id="SearchFrame"'), "MPL-2.0"),
        ("kicad-doc-ja", pages("/help/"), KICAD),
        ("debian-reference-ja", pages(r"ja\.html$"), "GPL-2.0-or-later")]),
    "chinese": (6_000_000, [
        ("libreoffice-help-zh-cn", pages("/text/", '<div id="DisplayArea"',
                                         '<div id="SearchFrame"'),
         "MPL-2.0"),
        ("kicad-doc-zh", pages("/help/"), KICAD),
        ("debian-reference-zh-cn", pages(r"zh-cn\.html$"),
         "GPL-2.0-or-later")]),
    "russian": (8_000_000, [
        ("libreoffice-help-ru", pages("/text/", '<div id="DisplayArea"',
                                      '<div id="SearchFrame"'), "MPL-2.0"),
        ("kicad-doc-ru", pages("/help/"), KICAD)]),
    "dictionary": (5_000_000, [("dict-wn", wordnet, "WordNet-3.0")]),
    "questions": (5_000_000, [
        ("perl-doc", questions_pod, "Artistic-1.0-Perl or GPL-1.0-or-later"),
        ("python3.11-doc", questions_rst, "PSF-2.0"),
        ("debian-faq", questions_html, "GPL-2.0-or-later")]),
}


def unpack(cache, package):
    """Folder of a package's files."""
    folder = cache / "deb" / package
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", "-q", package], check=True,
                       cwd=folder.parent)
        name, = folder.parent.glob(f"{package}_*.deb")
        subprocess.run(["dpkg-deb", "-x", name, folder], check=True)
    return folder


def documents(cache, sources):
    """(number of the source, text or list of paragraphs), by hash."""
    found = {}
    for i, (package, read, _) in enumerate(sources):
        for document in read(unpack(cache, package)):
            key = "\n".join(document).encode()
            if key.strip():
                key = hashlib.sha256(b"ferry" + key).digest()
                found.setdefault(key, (i, document))
    return [found[key] for key in sorted(found)]


def clean(document, seen):
    """Text of a document, composed, without paragraphs that were seen."""
    if isinstance(document, list):
        kept = [x for x in document if len(x) < 12 or x not in seen]
        seen.update(kept)
        document = "\n".join(kept) if sum(map(len, kept)) > 200 else ""
    text = unicodedata.normalize("NFC", document.replace("\r\n", "\n"))
    text = text.replace("\0", "").replace("\f", "").strip("\n")
    return text + "\n" if text.strip() else ""


def build(cache, texts, domain):
    """Writes the files of one domain."""
    limit, sources = SOURCES[domain]
    held, train, seen, n_held, n_train = [], [], set(), 0, 0
    rest = []
    for i, document in documents(cache, sources):
        if i or n_held >= HELD_OUT:
            rest.append(document)
            continue
        text = clean(document, seen)
        n_held += len(text.encode())
        held.append(text)
    for document in rest:
        if n_train < limit:
            text = clean(document, seen)
            n_train += len(text.encode())
            train.append(text)
    (cache / "text").mkdir(exist_ok=True)
    (cache / "text" / f"{domain}.train.txt").write_text(
        "\0".join(filter(None, train)))
    if texts:
        held = "\n".join(filter(None, held)).encode()[:HELD_OUT]
        held = held[:held.rfind(b"\n") + 1].decode()
        (texts / f"{domain}.txt").write_text(held)
    print(f"{domain}: {n_train} bytes of training, "
          f"{n_held} held out", flush=True)


def main():
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=pathlib.Path)
    parser.add_argument("--texts", type=pathlib.Path)
    parser.add_argument("--domain", action="append", choices=SOURCES)
    options = parser.parse_args()
    for domain in options.domain or SOURCES:
        build(options.cache, options.texts, domain)


if __name__ == "__main__":
    main()
