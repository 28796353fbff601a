#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Ferry's tokenizer with the reference, PyPI's tokenizers:

    tokenizer_compare.py build/dev/tests/lm/tokenizer_ids DIRECTORY
        [--random N] [--seed S] [--points] [--text FILE...]

DIRECTORY has a tokenizer.json. Compared are strings by hand, N random ones, and
files: whole, by line, and cut at random places. --points compares the cuts of
its patterns at every code point, by a model whose ids tell where they are. All
but files have characters that this Python knows, since tables of properties
differ in what was given out lately. Ends with the count, and with 1 where ids
differ.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import tokenizers

import tokenizer_strings


def code_points():
    """Every character, between others."""
    for point in range(0x110000):
        c = chr(point)
        if tokenizer_strings.is_assigned(c) and not 0xd800 <= point < 0xe000:
            yield (f"a{c}b {c}{c} 1{c}2 .{c}. '{c} \n{c}\n{c} 's{c}{c}{c}!! "
                   f"{c}")


def pairs_of_bytes(source, directory):
    """The tokenizer with another model: every two bytes of a piece make a
    token, the first two first."""
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    merges = [[a, b] for a in letters for b in letters]
    tokens = letters + [a + b for a, b in merges]
    document = json.loads(pathlib.Path(source, "tokenizer.json").read_text(
        encoding="utf-8"))
    document["normalizer"] = None
    document["added_tokens"] = []
    document["model"] = {"type": "BPE", "merges": merges,
                         "vocab": {t: i for i, t in enumerate(tokens)}}
    pathlib.Path(directory, "tokenizer.json").write_text(
        json.dumps(document), encoding="utf-8")


def of_file(path, rng):
    """A file whole, in lines and in pieces."""
    text = pathlib.Path(path).read_bytes().decode()
    yield text
    yield from text.splitlines(keepends=True)
    at = 0
    while at < len(text):
        n = rng.randint(1, 400)
        yield text[at:at + n]
        at += n


def ours(program, directory, strings):
    """Lines of ids from tokenizer_ids."""
    encoded = [s.encode() for s in strings]
    stdin = b"".join(b"%d\n%s" % (len(e), e) for e in encoded)
    done = subprocess.run([program, directory], input=stdin, check=True,
                          stdout=subprocess.PIPE)
    return done.stdout.decode().split("\n")[:-1]


def compare(args, directory, what, strings):
    """Prints what differs; (strings, mismatches)."""
    reference = tokenizers.Tokenizer.from_file(directory + "/tokenizer.json")
    n = n_ids = n_bad = 0
    strings = list(strings)
    for start in range(0, len(strings), 20000):
        batch = strings[start:start + 20000]
        lines = ours(args.program, directory, batch)
        assert len(lines) == len(batch), (len(lines), len(batch))
        for string, line in zip(batch, lines):
            ids = reference.encode(string, add_special_tokens=False).ids
            n += 1
            n_ids += len(ids)
            if line != " ".join(map(str, ids)):
                n_bad += 1
                if n_bad <= args.show:
                    print(f"{string[:200]!a}\n  expected {ids[:40]}\n  found"
                          f"    {line[:200]}")
    print(f"{what}: {n} strings, {n_ids} ids, {n_bad} mismatches", flush=True)
    return n, n_bad


def compare_cuts(args):
    """--points, and some random strings."""
    with tempfile.TemporaryDirectory() as directory:
        pairs_of_bytes(args.directory, directory)
        yield compare(args, directory, "cuts at code points", code_points())
        yield compare(args, directory, "cuts of random strings",
                      tokenizer_strings.texts(args.seed, args.random))


def main():
    """Exit status 1: something differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("directory")
    parser.add_argument("--random", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--points", action="store_true")
    parser.add_argument("--text", nargs="*", default=[])
    parser.add_argument("--show", type=int, default=10)
    args = parser.parse_args()
    reference = tokenizers.Tokenizer.from_file(
        args.directory + "/tokenizer.json")
    added = [t.content for t in reference.get_added_tokens_decoder().values()]
    results = [
        compare(args, args.directory, "by hand",
                tokenizer_strings.by_hand(added)),
        compare(args, args.directory, f"random, seed {args.seed}",
                tokenizer_strings.texts(args.seed, args.random, added))]
    if args.points:
        results += compare_cuts(args)
    for path in args.text:
        results.append(compare(args, args.directory, path, of_file(
            path, random.Random(args.seed))))
    n, n_bad = map(sum, zip(*results))
    print(f"{n} strings compared, {n_bad} mismatches")
    sys.exit(n_bad > 0)


if __name__ == "__main__":
    main()
