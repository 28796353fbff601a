#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what `ferry bench --json` measured: latency against tokens, p50 as a
line, p99 as a band above it, and the floor. Needs nothing but Python.

    bench/plot.py RESULT.json... > picture.svg
    bench/plot.py --phase dispatch RESULT.json > picture.svg

Files of one shape and several token counts become one picture. Machine, date,
commit and command stand below it.
"""
import argparse
import collections
import html
import json
import math
import sys

WIDTH, HEIGHT = 720, 480
LEFT, RIGHT, TOP, BOTTOM = 70, 130, 40, 92
COLOURS = ["#0b6e99", "#d1495b", "#edae49", "#66a182", "#8d5a97"]
SHAPE = ("ranks", "hidden", "topk", "experts", "dtype", "combine", "layout",
         "routing")


def read(paths, phase):
    """Rows of a phase, and the meta of the last file."""
    rows, meta = [], {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
        meta = result["meta"]
        rows += [row for row in result["rows"] if row["phase"] == phase]
    return rows, meta


def check(rows, phase):
    """One shape, and nothing wrong in it."""
    if not rows:
        sys.exit(f"plot: no row of phase {phase}")
    for row in rows:
        if row["wrong"]:
            sys.exit(f"plot: {row['wrong']} wrong in {row['impl']}, "
                     f"{row['tokens']} tokens: that is no figure")
        for key in SHAPE:
            if row.get(key) != rows[0].get(key):
                sys.exit(f"plot: {key} is {rows[0].get(key)} and "
                         f"{row.get(key)}: draw them apart")


class Axes:
    """Logarithmic both ways: from values to places in the picture."""

    def __init__(self, xs, ys):
        self.x_range = self.widen(math.log2(min(xs)), math.log2(max(xs)))
        self.y_range = (math.floor(math.log10(min(ys))),
                        math.ceil(math.log10(max(ys))))
        if self.y_range[0] == self.y_range[1]:
            self.y_range = (self.y_range[0], self.y_range[0] + 1)

    @staticmethod
    def widen(low, high):
        """Room for a single value."""
        return (low, high) if high > low else (low - 1, high + 1)

    def x(self, value):
        """Place of a number of tokens."""
        low, high = self.x_range
        part = (math.log2(value) - low) / (high - low)
        return LEFT + part * (WIDTH - LEFT - RIGHT)

    def y(self, value):
        """Place of a time."""
        low, high = self.y_range
        part = (math.log10(value) - low) / (high - low)
        return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)


def text(x, y, words, anchor="middle", size=12):
    """A line of text."""
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
            f'font-size="{size}">{html.escape(str(words))}</text>')


def grid(axes, xs):
    """Lines and numbers of both axes."""
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    for power in range(axes.y_range[0], axes.y_range[1] + 1):
        y = axes.y(10.0 ** power)
        yield f'<path d="M{LEFT} {y:.1f}H{right}" stroke="#ddd"/>'
        yield text(LEFT - 6, y + 4, str(10 ** power) if power >= 0
                   else 10.0 ** power, "end")
    for x in xs:
        yield (f'<path d="M{axes.x(x):.1f} {TOP}V{bottom}" stroke="#eee"/>')
        yield text(axes.x(x), bottom + 16, x)
    yield text((LEFT + right) / 2, bottom + 34, "tokens of each rank")
    yield (f'<g transform="rotate(-90 18 {HEIGHT / 2})">'
           f'{text(18, HEIGHT / 2, "microseconds")}</g>')


def line(axes, points, style):
    """A path through (tokens, microseconds)."""
    way = "L".join(f"{axes.x(x):.1f} {axes.y(y):.1f}" for x, y in points)
    return f'<path d="M{way}" fill="none" {style}/>'


def series(axes, name, rows, colour):
    """p50 with dots, the band up to p99, the name at the end."""
    middle = [(row["tokens"], row["p50_us"]) for row in rows]
    upper = [(row["tokens"], max(row["p99_us"], row["p50_us"]))
             for row in rows]
    band = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}"
                    for x, y in middle + upper[::-1])
    yield f'<polygon points="{band}" fill="{colour}" fill-opacity="0.15"/>'
    yield line(axes, middle, f'stroke="{colour}" stroke-width="2"')
    for x, y in middle:
        yield (f'<circle cx="{axes.x(x):.1f}" cy="{axes.y(y):.1f}" r="3" '
               f'fill="{colour}"/>')
    yield text(WIDTH - RIGHT + 8, axes.y(middle[-1][1]) + 4, name, "start")


def picture(rows, meta, phase):
    """The whole drawing as SVG."""
    by_impl = collections.defaultdict(list)
    for row in sorted(rows, key=lambda row: row["tokens"]):
        if row["tokens"] > 0:
            by_impl[row["impl"]].append(row)
    floor = [(row["tokens"], row["floor_us"])
             for row in next(iter(by_impl.values())) if row["floor_us"] > 0]
    xs = sorted({row["tokens"] for row in rows if row["tokens"] > 0})
    axes = Axes(xs, [row[key] for row in rows if row["tokens"] > 0
                     for key in ("p50_us", "p99_us")] + [y for _, y in floor])
    shape = rows[0]
    machine = meta.get("machine", {})

    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
           f'height="{HEIGHT}" font-family="sans-serif">')
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    yield text(LEFT, 24, f"{phase}: {shape['ranks']} ranks, hidden "
               f"{shape['hidden']}, top-{shape['topk']} of "
               f"{shape['experts']}, {shape['dtype']}, {shape['combine']}, "
               f"{shape['layout']}", "start", 15)
    yield from grid(axes, xs)
    if floor:
        yield line(axes, floor, 'stroke="#555" stroke-dasharray="5 4"')
        yield text(WIDTH - RIGHT + 8, axes.y(floor[-1][1]) + 4, "floor",
                   "start")
    for i, (name, some) in enumerate(by_impl.items()):
        yield from series(axes, name, some, COLOURS[i % len(COLOURS)])
    yield text(LEFT, HEIGHT - 26, f"{machine.get('cpu', '?')}, "
               f"{machine.get('usable_cpus', '?')} CPUs; "
               f"{meta.get('date', '?')}; ferry {meta.get('version', '?')} "
               f"({meta.get('commit', '?')})", "start", 10)
    yield text(LEFT, HEIGHT - 12, " ".join(meta.get("command", [])), "start",
               10)
    yield "</svg>"


def main():
    """Reads, checks, draws."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--phase", default="pair",
                        choices=("dispatch", "combine", "pair"))
    parser.add_argument("results", nargs="+")
    options = parser.parse_args()
    rows, meta = read(options.results, options.phase)
    check(rows, options.phase)
    print("\n".join(picture(rows, meta, options.phase)))


if __name__ == "__main__":
    main()
