#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Ferry's tokenizer with the reference, PyPI's tokenizers:

    tokenizer_compare.py build/dev/tests/lm/tokenizer_ids DIRECTORY
        [--random N] [--seed S] [--points] [--text FILE...]

DIRECTORY has a tokenizer.json. Compared are strings by hand, N random ones,
with --points every code point in some company, and files: whole, by line, and
cut at random places. Ends with the count, and with 1 where ids differ.
"""
import argparse
import pathlib
import random
import subprocess
import sys

import tokenizers

import tokenizer_strings


def code_points():
    """Every character, between others."""
    for point in range(0x110000):
        if 0xd800 <= point < 0xe000:
            continue
        c = chr(point)
        yield f"a{c}b {c}{c} 1{c}2 .{c}. '{c} \n{c}\n{c} e{c}\u0301\u0323{c}"


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


def compare(args, reference, what, strings):
    """Prints what differs; (strings, mismatches)."""
    n = n_ids = n_bad = 0
    strings = list(strings)
    for start in range(0, len(strings), 20000):
        batch = strings[start:start + 20000]
        lines = ours(args.program, args.directory, batch)
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
        compare(args, reference, "by hand", tokenizer_strings.by_hand(added)),
        compare(args, reference, f"random, seed {args.seed}",
                tokenizer_strings.texts(args.seed, args.random, added))]
    if args.points:
        results.append(compare(args, reference, "code points", code_points()))
    for path in args.text:
        results.append(compare(args, reference, path, of_file(
            path, random.Random(args.seed))))
    n, n_bad = map(sum, zip(*results))
    print(f"{n} strings compared, {n_bad} mismatches")
    sys.exit(n_bad > 0)


if __name__ == "__main__":
    main()
