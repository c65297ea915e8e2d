"""A headless Chromium, spoken to over a pipe in its DevTools protocol: what a reader's browser makes of a page."""

import base64
import json
import shutil
import subprocess
from itertools import count

HERE = ("file:", "data:", "blob:", "http://127.0.0.1:")
NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--remote-debugging-pipe",
)


def found():
    """Return the path of a Chromium, None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page in a fresh Chromium; `complaints` is what its console and its network said."""

    def __init__(self, profile):
        # It reads from 3 and writes to 4; what it prints goes nowhere.
        words = ["sh", "-c", 'exec "$@" 3<&0 4>&1 >/dev/null', "sh", found(), *FLAGS, f"--user-data-dir={profile}"]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
        self._numbers, self._rest, self.complaints, self._session = count(1), b"", [], None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Log", "Runtime", "Network"):
            self.ask(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._session = None
        self.ask("Browser.close")
        self._process.stdout.read()
        self._process.communicate(timeout=30)

    def ask(self, method, **parameters):
        """Send a command; return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._process.stdin.write(json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != number:
            self._note(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, path, width, height=900):
        """Load a file, or the page of a server on this machine, in a window of this width."""
        mobile = width < 600
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.ask("Page.navigate", url=path if isinstance(path, str) else path.as_uri())
        while (event := self._next()).get("method") != "Page.loadEventFired":
            self._note(event)

    def value(self, expression):
        """Return the value of a JavaScript expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def picture(self, path, *, whole=True):
        """Save what is seen as PNG."""
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def printed(self):
        """Return the page as PDF."""
        return base64.b64decode(self.ask("Page.printToPDF", preferCSSPageSize=True)["data"])

    def _next(self):
        while b"\0" not in self._rest:
            self._rest += self._process.stdout.read(1 << 20)
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _note(self, event):
        """Keep what a reader would find in the console, and every request that is not for a file here."""
        said, method = event.get("params", {}), event.get("method")
        if method in {"Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"}:
            self.complaints.append(said)
        if method == "Network.requestWillBeSent" and not said["request"]["url"].startswith(HERE):
            self.complaints.append(said["request"]["url"])
