# SPDX-License-Identifier: Apache-2.0
"""Reports of ferry prefill in Chromium: they render on phones and desktops,
light and dark, without a word on the console or a request to anybody.

browser_test.py SAMPLE: the program that writes a report nobody ran.
"""
import pathlib
import struct
import subprocess
import sys
import tempfile

import browser

CHECKS = pathlib.Path(__file__).with_name("browser_checks.js").read_text()
# What it is called, and the arguments of the sample; the first one is looked
# at more closely.
REPORTS = {
    "8 ranks": [],
    "1 rank": ["1"],
    "16 ranks, 48 layers, 128 experts": ["16", "48", "128", "20", "6"],
}
WINDOWS = [(320, "light"), (1280, "dark")]
MORE_WINDOWS = [(390, "dark"), (768, "light"), (1280, "light")]
SECTIONS = ["run", "bits", "even", "cost", "foreseen", "time", "numbers"]
MOST_BYTES = 2 << 20


def elements(page):
    """Expected elements that are missing."""
    missing = page.evaluate(
        f"{SECTIONS}.filter(id => !document.getElementById(id))")
    for name in missing:
        yield f"no section {name}"
    for selector, least in (("h1", 1), (".card", 3), ("svg[role=img]", 12),
                            (".lanes rect", 20), (".heat rect", 20),
                            (".dot", 30), ("details table", 5)):
        n = page.evaluate(f"document.querySelectorAll('{selector}').length")
        if n < least:
            yield f"{n} of {selector}, at least {least} expected"


def picture(page, width, scheme):
    """Is there something on the screen, as wide and as dark as it should?"""
    png = page.screenshot()
    if png[:8] != b"\x89PNG\r\n\x1a\n" or len(png) < 15000:
        yield f"screenshot of {len(png)} bytes"
    elif struct.unpack(">II", png[16:24]) != (width, 900):
        yield f"screenshot of {struct.unpack('>II', png[16:24])}"
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    if (paper == "rgb(255, 255, 255)") != (scheme == "light"):
        yield f"background is {paper}"


def window(page, url, width, scheme):
    """A report in one window, closed and with all details open."""
    page.show(url, width, scheme)
    yield from elements(page)
    yield from picture(page, width, scheme)
    yield from page.evaluate(CHECKS)
    page.evaluate("document.querySelectorAll('details')"
                  ".forEach(one => one.open = true)")
    for finding in page.evaluate(CHECKS):
        yield f"opened: {finding}"
    for asked in page.requests():
        if asked != url and not asked.startswith("data:"):
            yield f"asks for {asked}"
    for complaint in page.complaints():
        yield f"console: {complaint}"


def printed(page, url):
    """On paper it is light, and has pages."""
    page.show(url, 800, "dark", media="print")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    if paper != "rgb(255, 255, 255)":
        yield f"printed on {paper}"
    pdf = page.pdf()
    if pdf[:5] != b"%PDF-" or len(pdf) < 20000:
        yield f"PDF of {len(pdf)} bytes"


def report(page, sample, sizes, path):
    """A report in all windows."""
    subprocess.run([sample, path, *sizes], check=True, timeout=60)
    if path.stat().st_size > MOST_BYTES:
        yield f"{path.stat().st_size} bytes"
    windows = WINDOWS if sizes else WINDOWS + MORE_WINDOWS
    for width, scheme in windows:
        for finding in window(page, path.as_uri(), width, scheme):
            yield f"{width} px, {scheme}: {finding}"
    if not sizes:
        yield from printed(page, path.as_uri())


def main(sample):
    """Prints findings; status 1 when there are some."""
    program = browser.find()
    if not program:
        print("no chromium here")
        return 77
    n_found = 0
    with tempfile.TemporaryDirectory() as folder, \
            browser.Browser(program) as page:
        for name, sizes in REPORTS.items():
            path = pathlib.Path(folder) / "report.html"
            for finding in report(page, sample, sizes, path):
                print(f"{name}: {finding}")
                n_found += 1
    print(f"{len(REPORTS)} reports, {n_found} findings")
    return 1 if n_found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
