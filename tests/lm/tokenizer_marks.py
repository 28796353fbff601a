#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the table LATER of tools/lm/lm_tokenizer_nfc.c: what takes part in
normal forms today and does not in those of the reference. Needs PyPI's
tokenizers and unicodedata2, whose Unicode is the newest."""
import unicodedata2
from tokenizers import normalizers

POINTS = [p for p in range(0x110000) if not 0xd800 <= p < 0xe000]
decomposed = normalizers.NFD().normalize_str


def parts(point):
    """Of a canonical decomposition."""
    text = unicodedata2.decomposition(chr(point))
    return [] if text.startswith("<") else [int(p, 16) for p in text.split()]


def is_sorted_there(point):
    """The reference knows a class: marks of other classes change places."""
    mark, low, high = chr(point), "\u0334", "\u0301"
    if unicodedata2.combining(mark) == 1:
        return decomposed(high + mark) != high + mark
    return decomposed(mark + low) != mark + low


def main():
    """Ranges, with what takes no part in either between."""
    later, known = set(), set(range(0x1100, 0x1200))
    for point in POINTS:
        if unicodedata2.combining(chr(point)):
            (known if is_sorted_there(point) else later).add(point)
        if parts(point) and not 0xac00 <= point < 0xd7a4:
            composed = [point, *parts(point)]
            same = decomposed(chr(point)) == chr(point)
            (later if same else known).update(composed)
    later -= known
    ranges = []
    for point in sorted(later):
        if ranges and not known & set(range(ranges[-1][1], point)):
            ranges[-1][1] = point
        else:
            ranges.append([point, point])
    print(f"/* Unicode {unicodedata2.unidata_version} */")
    for first, last in ranges:
        print(f"{{0x{first:04x}, 0x{last:04x}}},")


if __name__ == "__main__":
    main()
