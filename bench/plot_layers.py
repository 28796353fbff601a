#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what `ferry replay --json` found: for every layer the load of the fullest
rank over the mean, as it was with the start placement (grey, dashed) and under each
policy. Needs nothing but Python.

    ferry replay --trace TRACE --json > result.json
    bench/plot_layers.py result.json > picture.svg
    bench/plot_layers.py --policy ferry result.json > picture.svg
"""
import argparse
import json
import math
import sys

from plot import (BOTTOM, COLOURS, HEIGHT, LEFT, RIGHT, TOP, WIDTH, footer,
                  line, name_at_end, text)

STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


class Linear:
    """From layers and ratios to places in the picture."""

    def __init__(self, n_layers, highest):
        self.n_layers = n_layers
        self.step = next(step for step in STEPS + (highest,)
                         if step * 6 >= highest - 1)
        self.top = 1 + self.step * max(1, math.ceil((highest - 1) / self.step))

    def x(self, layer):
        """Place of a layer."""
        return LEFT + (layer + 0.5) / self.n_layers * (WIDTH - LEFT - RIGHT)

    def y(self, ratio):
        """Place of a ratio; 1 is the ground."""
        return HEIGHT - BOTTOM - (ratio - 1) / (self.top - 1) * (
            HEIGHT - TOP - BOTTOM)


def grid(axes):
    """Lines and numbers of both axes."""
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    ratio = 1
    while ratio <= axes.top + 1e-9:
        y = axes.y(ratio)
        yield f'<path d="M{LEFT} {y:.1f}H{right}" stroke="#ddd"/>'
        yield text(LEFT - 6, y + 4, f"{ratio:.2f}".rstrip("0").rstrip("."),
                   "end")
        ratio += axes.step
    for layer in range(0, axes.n_layers, max(1, axes.n_layers // 12)):
        yield text(axes.x(layer), bottom + 16, layer)
    yield text((LEFT + right) / 2, bottom + 34, "layer")
    yield (f'<g transform="rotate(-90 18 {HEIGHT / 2})">'
           f'{text(18, HEIGHT / 2, "fullest rank / mean")}</g>')


def curve(axes, ratios, style):
    """Ratios of all layers."""
    return line(axes, list(enumerate(ratios)), style)


def title(meta):
    """The replay in words."""
    name = meta["loads"].rsplit("/", 1)[-1]
    return text(LEFT, 24, f"{name}: {meta['steps']} steps, {meta['experts']} "
                f"experts on {meta['ranks']} ranks, mean over steps", "start",
                15)


def drawing(head, curves, highest, meta):
    """SVG of (name, ratio of each layer); the first is what others start from."""
    axes = Linear(len(curves[0][1]), highest)
    taken = []
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
           f'height="{HEIGHT}" font-family="sans-serif">')
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    yield head
    yield from grid(axes)
    for i, (name, ratios) in enumerate(curves):
        style = (f'stroke="{COLOURS[(i - 1) % len(COLOURS)]}" stroke-width="2"'
                 if i else 'stroke="#888" stroke-dasharray="5 4"')
        yield curve(axes, ratios, style)
        yield name_at_end(axes, name, ratios[-1], taken)
    yield from footer(meta)
    yield "</svg>"


def picture(rows, meta):
    """The whole drawing as SVG."""
    before = rows[0]["layer_ratio_before"]
    curves = [(f"start {sum(before) / len(before):.3f}", before)]
    curves += [(f"{row['policy']} {row['ratio_mean']:.3f}", row["layer_ratio"])
               for row in rows if row["policy"] != "fixed"]
    return drawing(title(meta), curves,
                   max(max(row["layer_ratio"] + before) for row in rows), meta)


def main():
    """Reads and draws."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--policy", action="append",
                        help="only this one; may be given more than once")
    parser.add_argument("result")
    options = parser.parse_args()
    with open(options.result, encoding="utf-8") as file:
        result = json.load(file)
    if result.get("schema") != "ferry-replay-1":
        sys.exit(f"plot_layers: {options.result} is no ferry replay --json")
    rows = [row for row in result["rows"]
            if not options.policy or row["policy"] in options.policy]
    if not rows:
        sys.exit(f"plot_layers: no policy {' '.join(options.policy)}")
    print("\n".join(picture(rows, result["meta"])))


if __name__ == "__main__":
    main()
