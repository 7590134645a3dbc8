"""A browser that tests drive: chromium without a window, by chromedriver's WebDriver."""

import base64
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request


def found():
    return bool(
        shutil.which("chromedriver")
        and (os.environ.get("POSTERN_TEST_BROWSER") or shutil.which("chromium"))
    )


class Browser:
    def __init__(self, width=1280, height=900, dark=False, phone=False):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.folder = tempfile.TemporaryDirectory()
        self.driver = subprocess.Popen(
            ["chromedriver", f"--port={self.port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": self.folder.name},
        )
        options = {
            "args": [
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                f"--window-size={width},{height}",
                f"--user-data-dir={self.folder.name}/profile",
            ]
        }
        if os.environ.get("POSTERN_TEST_BROWSER"):
            options["binary"] = os.environ["POSTERN_TEST_BROWSER"]
        if phone:
            options["mobileEmulation"] = {
                "deviceMetrics": {"width": width, "height": height, "pixelRatio": 2, "touch": True}
            }
        for _ in range(100):
            try:
                self.session = None
                self.session = self.call(
                    "POST",
                    "/session",
                    {
                        "capabilities": {
                            "alwaysMatch": {
                                "goog:chromeOptions": options,
                                "goog:loggingPrefs": {"browser": "ALL"},
                            }
                        }
                    },
                )["sessionId"]
                break
            except OSError:
                if self.driver.poll() is not None:
                    raise
                time.sleep(0.1)
        assert self.session
        self.cdp("Browser.setDownloadBehavior", behavior="allow", downloadPath=self.folder.name)
        if dark:
            self.cdp(
                "Emulation.setEmulatedMedia",
                features=[{"name": "prefers-color-scheme", "value": "dark"}],
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait(20)
            self.folder.cleanup()

    def call(self, method, path, body=None):
        url = (
            f"http://127.0.0.1:{self.port}"
            + (f"/session/{self.session}" if self.session else "")
            + path
        )
        request = urllib.request.Request(
            url,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as e:
            raise AssertionError(e.read().decode()[:500]) from None

    def open(self, url):
        self.call("POST", "/url", {"url": url})

    def cdp(self, command, **parameters):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def run(self, script, *arguments):
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script, *arguments, limit=30):
        """What the script returns, once that is true."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if value := self.run(script, *arguments):
                return value
            time.sleep(0.05)
        raise AssertionError(
            f"never true: {script}\n{self.run('return document.body.innerText')[:2000]}"
        )

    def find(self, css):
        return list(
            self.call("POST", "/element", {"using": "css selector", "value": css}).values()
        )[0]

    def click(self, css):
        self.call("POST", f"/element/{self.find(css)}/click", {})

    def type(self, css, text):
        element = self.find(css)
        self.call("POST", f"/element/{element}/clear", {})
        self.call("POST", f"/element/{element}/value", {"text": text})

    def give_files(self, css, *paths):
        self.call("POST", f"/element/{self.find(css)}/value", {"text": "\n".join(map(str, paths))})

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("GET", "/screenshot")))

    def errors(self):
        return [
            e["message"]
            for e in self.call("POST", "/se/log", {"type": "browser"})
            if e["level"] == "SEVERE"
        ]
