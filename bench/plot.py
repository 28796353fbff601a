#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what `ferry bench --json` measured: latency against tokens, p50 as a
line, p99 as a band above it, and the floor. Needs nothing but Python.

    bench/plot.py RESULT.json... > picture.svg
    bench/plot.py --phase dispatch RESULT.json > picture.svg
    bench/plot.py --phase dispatch --where dtype=fp8 --where layout=token \\
        FIGURES.json > picture.svg
    bench/plot.py --bandwidth ... > picture.svg

Files of one shape and several token counts become one picture; --where picks a
shape out of a file of many. --bandwidth draws the bytes that a rank sends in a second
instead, beside the rate of plain stores. GPUs: figures of other systems,
bench/peers.json, are marks. Machine, date, commit and command stand below.
"""
import argparse
import collections
import html
import json
import math
import pathlib
import sys

WIDTH, HEIGHT = 720, 480
LEFT, RIGHT, TOP, BOTTOM = 70, 130, 40, 92
PEER_COLOURS = ["#7a5195", "#c06c00", "#3a7d44", "#555"]
COLOURS = ["#0b6e99", "#d1495b", "#edae49", "#66a182", "#8d5a97"]
# An exchange knows nothing of layout and sum.
EXCHANGE = ("ranks", "hidden", "topk", "experts", "dtype", "routing")
SHAPE = EXCHANGE + ("combine", "layout")
# Rows that are no plain operation are drawn only where they are asked for.
SPECIAL = ("split_us", "max_sms", "failed")
PEERS = pathlib.Path(__file__).with_name("peers.json")


def shape_keys(row):
    """What tells the shapes of rows of this implementation apart."""
    return EXCHANGE if row["impl"].startswith("nccl") else SHAPE


def wanted(row, where):
    """Is it a row of the shape that was asked for?"""
    for key, value in where.items():
        other = key in SHAPE and key not in shape_keys(row)
        if not other and str(row.get(key, 0)) != value:
            return False
    return not any(row.get(key) for key in SPECIAL if key not in where)


def read(paths, phase, where):
    """Rows of a phase, and the meta of the last file."""
    rows, meta = [], {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
        meta = result["meta"]
        rows += [row for row in result["rows"]
                 if row["phase"] == phase and wanted(row, where)]
    # An exchange is listed once for all layouts: only beside its shape.
    rows.sort(key=lambda row: row["impl"] != "ferry")
    return rows, meta


def fits(peer, row, key):
    """Does this member of a peer's figure allow the row?"""
    value = peer.get(key, row.get(key))
    return row.get(key) in value if isinstance(value, list) else (
        row.get(key) == value)


def read_peers(row, phase):
    """Figures of other systems for this shape: {name: [(tokens, us)]}."""
    peers = json.loads(PEERS.read_text(encoding="utf-8"))
    found = collections.defaultdict(list)
    for peer in peers["figures"]:
        peer = peers["shape"] | peer
        if peer["phase"] == phase and all(fits(peer, row, key)
                                          for key in SHAPE):
            found[peer["name"]].append((peer["tokens"], peer["us"]))
    return {name: sorted(points) for name, points in found.items()}


def check(rows, phase):
    """One shape, and nothing wrong in it."""
    if not rows:
        sys.exit(f"plot: no row of phase {phase}")
    for row in rows:
        if row["wrong"]:
            sys.exit(f"plot: {row['wrong']} wrong in {row['impl']}, "
                     f"{row['tokens']} tokens: that is no figure")
        for key in shape_keys(row):
            if row.get(key) != rows[0].get(key):
                sys.exit(f"plot: {key} is {rows[0].get(key)} and "
                         f"{row.get(key)}: draw them apart")


class Axes:
    """Logarithmic both ways: from values to places in the picture."""

    def __init__(self, xs, ys, unit="microseconds"):
        self.unit = unit
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
           f'{text(18, HEIGHT / 2, axes.unit)}</g>')


def line(axes, points, style):
    """A path through (tokens, microseconds)."""
    way = "L".join(f"{axes.x(x):.1f} {axes.y(y):.1f}" for x, y in points)
    return f'<path d="M{way}" fill="none" {style}/>'


def name_at_end(axes, name, y, taken):
    """A name beside the end of its line, as near as others leave room."""
    free = [axes.y(y) + 4 + step for step in sorted(range(-99, 100), key=abs)
            if all(abs(axes.y(y) + 4 + step - other) >= 13
                   for other in taken)]
    place = free[0] if free else axes.y(y) + 4
    taken.append(place)
    return text(WIDTH - RIGHT + 8, place, name, "start")


def latency(row):
    """p50 and p99 of a row."""
    return row["p50_us"], max(row["p99_us"], row["p50_us"])


def bandwidth(row):
    """Gigabytes a second that a rank sends to others, median and slow."""
    return tuple(row["wire_bytes"] / row["ranks"] / us / 1e3
                 for us in latency(row))


def series(axes, points, colour):
    """The median with dots, and the band up to p99."""
    middle = [(x, y[0]) for x, y in points]
    upper = [(x, y[1]) for x, y in points]
    band = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}"
                    for x, y in middle + upper[::-1])
    yield f'<polygon points="{band}" fill="{colour}" fill-opacity="0.15"/>'
    yield line(axes, middle, f'stroke="{colour}" stroke-width="2"')
    for x, y in middle:
        yield (f'<circle cx="{axes.x(x):.1f}" cy="{axes.y(y):.1f}" r="3" '
               f'fill="{colour}"/>')


def marks(axes, peers):
    """Figures of other systems: crosses, and whose they are."""
    for i, (name, points) in enumerate(sorted(peers.items())):
        colour = PEER_COLOURS[i % len(PEER_COLOURS)]
        style = f'stroke="{colour}" stroke-width="1.5"'
        yield line(axes, points, f'stroke="{colour}" stroke-dasharray="1 3"')
        legend = (LEFT + 14, TOP + 14 + 15 * i)
        for x, y in [(axes.x(x), axes.y(y)) for x, y in points] + [legend]:
            yield f'<path d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8" {style}/>'
        yield text(legend[0] + 10, legend[1] + 4, name, "start")


def limit(axes, name, points, taken):
    """A dashed line with its name."""
    yield line(axes, points, 'stroke="#555" stroke-dasharray="5 4"')
    yield name_at_end(axes, name, points[-1][1], taken)


def footer(meta):
    """Where, when, which commit, which command."""
    machine, gpu = meta.get("machine", {}), meta.get("gpu")
    where = (f"{gpu['count']} x {gpu['name']}, {gpu['driver']}" if gpu else
             f"{machine.get('cpu', '?')}, {machine.get('usable_cpus', '?')} "
             "CPUs")
    yield text(LEFT, HEIGHT - 26, f"{where}; {meta.get('date', '?')}; ferry "
               f"{meta.get('version', '?')} ({meta.get('commit', '?')})",
               "start", 10)
    yield text(LEFT, HEIGHT - 12, " ".join(meta.get("command", [])), "start",
               10)


def title(shape, phase):
    """The shape in words."""
    return text(LEFT, 24, f"{phase}: {shape['ranks']} ranks, hidden "
                f"{shape['hidden']}, top-{shape['topk']} of "
                f"{shape['experts']}, {shape['dtype']}, {shape['combine']}, "
                f"{shape['layout']}", "start", 15)


def by_implementation(rows, value):
    """{impl: [(tokens, (median, p99))]}, tokens ascending."""
    found = collections.defaultdict(list)
    for row in sorted(rows, key=lambda row: row["tokens"]):
        if row["tokens"] > 0:
            found[row["impl"]].append((row["tokens"], value(row)))
    return found


def picture(rows, meta, phase, draw_bandwidth):
    """The whole drawing as SVG."""
    by_impl = by_implementation(rows, bandwidth if draw_bandwidth else latency)
    xs = sorted({x for points in by_impl.values() for x, _ in points})
    peers, limits = {}, {}
    if draw_bandwidth:
        rate = meta["store_bytes_per_s"] / 1e9
        limits["stores"] = [(x, rate) for x in xs]
    else:
        first = rows[0]["impl"]
        limits["floor"] = sorted(
            (row["tokens"], row["floor_us"]) for row in rows
            if row["impl"] == first and row["tokens"] > 0
            and row["floor_us"] > 0)
        if meta.get("device") == "cuda":
            # Where latency rules, the floor is far below the picture.
            least = min(row["p50_us"] for row in rows) / 10
            limits["floor"] = [(x, y) for x, y in limits["floor"]
                               if y >= least]
            peers = read_peers(rows[0], phase)
            xs = sorted(set(xs) | {x for p in peers.values() for x, _ in p})
    limits = {name: points for name, points in limits.items() if points}
    ys = [y for points in by_impl.values() for _, both in points for y in both]
    ys += [y for points in limits.values() for _, y in points]
    ys += [y for points in peers.values() for _, y in points]
    axes = Axes(xs, ys, "GB/s that a rank sends" if draw_bandwidth
                else "microseconds")
    taken = []

    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
           f'height="{HEIGHT}" font-family="sans-serif">')
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    yield title(rows[0], phase)
    yield from grid(axes, xs)
    for name, points in limits.items():
        yield from limit(axes, name, points, taken)
    for i, (name, points) in enumerate(by_impl.items()):
        yield from series(axes, points, COLOURS[i % len(COLOURS)])
        yield name_at_end(axes, name, points[-1][1][0], taken)
    yield from marks(axes, peers)
    yield from footer(meta)
    yield "</svg>"


def main():
    """Reads, checks, draws."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--phase", default="pair",
                        choices=("dispatch", "combine", "pair"))
    parser.add_argument("--bandwidth", action="store_true",
                        help="GB/s that a rank sends instead of microseconds")
    parser.add_argument("--where", action="append", default=[],
                        metavar="KEY=VALUE", help="only rows with this")
    parser.add_argument("results", nargs="+")
    options = parser.parse_args()
    try:
        where = dict(pair.split("=", 1) for pair in options.where)
    except ValueError:
        sys.exit(f"plot: --where {' '.join(options.where)}: KEY=VALUE")
    rows, meta = read(options.results, options.phase, where)
    check(rows, options.phase)
    if options.bandwidth and not meta.get("store_bytes_per_s"):
        sys.exit("plot: --bandwidth needs the rate of stores: results of "
                 "several GPUs")
    print("\n".join(picture(rows, meta, options.phase, options.bandwidth)))


if __name__ == "__main__":
    main()
