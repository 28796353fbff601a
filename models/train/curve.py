#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the loss of each domain's held-out text over the tokens of training, and
the load ratios on the way, as one SVG.

    models/train/curve.py LOG.jsonl OUT.svg
"""
import json
import sys

COLOURS = ("#2a78b5", "#d1622b", "#3d9a50", "#b83b5e", "#7d5ab5", "#8a6d3b",
           "#17909c", "#9a8a00")
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 300, 50, 28, 110, 36


class Panel:
    """Axes at a height of the picture, and the lines in them."""

    def __init__(self, title, y, x_most, least, most):
        self.y, self.x_most, self.least, self.most = y, x_most, least, most
        self.parts = [f'<text x="{LEFT}" y="{y + 16}" class="t">{title}</text>']
        self.labels = []
        for i in range(6):
            value = least + (most - least) * i / 5
            self.parts.append(
                f'<path d="M{LEFT} {self.row(value):.1f}H{WIDTH - RIGHT}" '
                f'class="g"/><text x="{LEFT - 6}" y="{self.row(value) + 4:.1f}"'
                f' text-anchor="end">{value:.1f}</text>')
        for i in range(6):
            value = x_most * i / 5
            self.parts.append(
                f'<text x="{self.column(value):.1f}" '
                f'y="{y + HEIGHT - BOTTOM + 18}" text-anchor="middle">'
                f'{value / 1e6:.1f} M</text>')

    def column(self, x):
        """Pixels of a number of tokens."""
        return LEFT + (WIDTH - RIGHT - LEFT) * x / self.x_most

    def row(self, value):
        """Pixels of a value."""
        share = (min(max(value, self.least), self.most) - self.least) \
            / (self.most - self.least)
        return self.y + HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)

    def line(self, name, colour, points):
        """A curve and its name at the end."""
        path = "L".join(f"{self.column(x):.1f} {self.row(v):.1f}"
                        for x, v in points)
        self.parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" '
                          'stroke-width="1.6"/>')
        self.labels.append([self.row(points[-1][1]), name, colour])

    def text(self):
        """SVG, with labels that do not cover each other."""
        last = -1e9
        for label in sorted(self.labels):
            last = max(label[0], last + 13)
            self.parts.append(
                f'<text x="{WIDTH - RIGHT + 8}" y="{last + 4:.1f}" '
                f'style="fill:{label[2]}">{label[1]}</text>')
        return "\n".join(self.parts)


def main():
    """Command line."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as log:
        rows = [json.loads(line) for line in log]
    held = [x for x in rows if "held_out" in x]
    steps = [x for x in rows if "ratio_single" in x]
    most = max(x["tokens"] for x in rows)
    losses = [v for x in held for v in x["held_out"].values()]
    upper = Panel("held-out loss, nats per token", 0, most,
                  int(min(losses)), int(max(losses)) + 1)
    for colour, name in zip(COLOURS, held[0]["held_out"]):
        upper.line(name, colour, [(x["tokens"], x["held_out"][name])
                                  for x in held])
    lower = Panel("load of the fullest of 8 ranks over the mean, batches of "
                  "training", HEIGHT, most, 1.0, 3.0)
    for name, key, colour in (("one domain", "ratio_single", COLOURS[0]),
                              ("whole batch", "ratio_mixed", COLOURS[1])):
        width = max(1, len(steps) // 150)
        lower.line(name, colour, [
            (x["tokens"], sum(y[key] for y in steps[i:i + width])
             / len(steps[i:i + width]))
            for i, x in list(enumerate(steps))[::width]])
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        out.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
                  f'height="{2 * HEIGHT}" font-family="sans-serif" '
                  'font-size="12"><style>text{fill:#777}.t{font-weight:bold}'
                  '.g{stroke:#999;stroke-opacity:.3}</style>\n'
                  f'{upper.text()}\n{lower.text()}\n</svg>\n')


if __name__ == "__main__":
    main()
