# SPDX-License-Identifier: Apache-2.0
"""Chromium without a window, driven over a pipe by its DevTools protocol:
JSON messages that end with a zero byte. Needs nothing but Python."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu",
    "--disable-dev-shm-usage", "--remote-debugging-pipe", "--no-first-run",
    "--disable-background-networking", "--disable-extensions",
    "--disable-component-update", "--disable-sync",
    # Nobody to ask: neither names nor a proxy that would answer.
    "--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=127.0.0.1:9",
]
TIMEOUT_S = 100


def find():
    """The browser's program, or None."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if shutil.which(name):
            return name
    return None


class Browser:
    """One browser with one page; a context that ends it."""

    def __init__(self, program):
        self.deadline = time.monotonic() + TIMEOUT_S
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        from_us, self.to_it = os.pipe()
        self.from_it, to_us = os.pipe()
        self.log = open(f"{self.folder.name}/log", "w+b")
        # It reads from 3 and writes to 4, which a shell puts in place.
        self.process = subprocess.Popen(
            ["sh", "-c", f'exec "$@" 3<&{from_us} 4>&{to_us}', "sh", program,
             *FLAGS, f"--user-data-dir={self.folder.name}/profile",
             "about:blank"], pass_fds=(from_us, to_us), stdout=self.log,
            stderr=self.log, stdin=subprocess.DEVNULL)
        os.close(from_us)
        os.close(to_us)
        self.n_sent = 0
        self.rest = b""
        self.events = []
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")
        self.session = self.call("Target.attachToTarget", flatten=True,
                                 targetId=target["targetId"])["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        os.close(self.to_it)
        os.close(self.from_it)
        self.folder.cleanup()

    def what_it_said(self):
        """The end of its log, for who looks for a cause."""
        self.log.seek(0)
        return self.log.read().decode(errors="replace")[-2000:]

    def receive(self):
        """The next message, reply or event."""
        while b"\0" not in self.rest:
            left = self.deadline - time.monotonic()
            ready = left > 0 and select.select([self.from_it], [], [], left)[0]
            data = os.read(self.from_it, 1 << 20) if ready else b""
            if not data:
                raise RuntimeError(f"no answer: {self.what_it_said()}")
            self.rest += data
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        """Asks for something and waits for the reply; events are kept."""
        self.n_sent += 1
        message = {"id": self.n_sent, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_it, json.dumps(message).encode() + b"\0")
        while True:
            reply = self.receive()
            if reply.get("id") != self.n_sent:
                self.events.append(reply)
            elif "error" in reply:
                raise RuntimeError(f"{method}: {reply['error']}")
            else:
                return reply["result"]

    def wait_for(self, method):
        """Waits for an event that has not yet come."""
        while all(event["method"] != method for event in self.events):
            self.events.append(self.receive())

    def show(self, url, width, scheme, media="screen"):
        """Opens a page in a window this wide, light or dark."""
        self.call("Emulation.setDeviceMetricsOverride", width=width,
                  height=900, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", media=media, features=[
            {"name": "prefers-color-scheme", "value": scheme}])
        self.events = []
        self.call("Page.navigate", url=url)
        self.wait_for("Page.loadEventFired")

    def evaluate(self, script):
        """The value of JavaScript."""
        result = self.call("Runtime.evaluate", expression=script,
                           returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def screenshot(self):
        """PNG of the window."""
        return base64.b64decode(self.call("Page.captureScreenshot")["data"])

    def pdf(self):
        """The page as printed."""
        return base64.b64decode(self.call("Page.printToPDF")["data"])

    def requests(self):
        """What the page asked for since it was shown."""
        return [event["params"]["request"]["url"] for event in self.events
                if event["method"] == "Network.requestWillBeSent"]

    def complaints(self):
        """Errors, warnings and words of the page since it was shown."""
        return [json.dumps(event["params"])[:300] for event in self.events
                if event["method"] in ("Runtime.consoleAPICalled",
                                       "Runtime.exceptionThrown",
                                       "Log.entryAdded")]
