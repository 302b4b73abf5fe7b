"""Shared by the tests of the server: a running server, and clients that need no library."""

import contextlib
import json
import os
import pathlib
import re
import signal
import site
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.request

WINNOW = os.environ["WINNOW"]
SANITIZED = bool(os.environ.get("WINNOW_SANITIZE"))
ROOT = pathlib.Path(__file__).resolve().parents[2]

# Clients from PyPI that venv.sh installs, for this process and its children.
CLIENTS = ROOT / f"build/clients-venv/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
if CLIENTS.is_dir() and (ROOT / "build/clients-venv/complete").exists():
    site.addsitedir(str(CLIENTS))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(CLIENTS), os.environ.get("PYTHONPATH"))))


class Server:
    """`winnow serve` on a free port; stops when the block ends."""

    def __init__(self, *flags, env=None, wait=True, cwd=None):
        self.process = subprocess.Popen(
            [WINNOW, "serve", "--port", "0", *map(str, flags)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}, cwd=cwd)
        self.lines = []
        self.url = None
        self.port = None
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if wait and not self._ready.wait(120):
            self.stop()
            raise AssertionError("the server did not become ready: " + self.log)
        if wait and self.process.poll() is not None and self.url is None:
            raise AssertionError("the server ended: " + self.log)

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            match = re.search(r"listening on (https?://\S+):(\d+)", line)
            if match:
                self.url = f"{match.group(1)}:{match.group(2)}"
                self.port = int(match.group(2))
            if line.startswith("ready"):
                self._ready.set()
        self._ready.set()

    def metrics(self):
        """{name: value} of the samples without labels other than model_name."""
        text = self.request("GET", "/metrics")[2].decode()
        return {name: float(value) for name, value in re.findall(r'^([\w:]+)(?:{model_name="[^"]*"})? (\S+)$', text, re.M)}

    @property
    def log(self):
        return "".join(self.lines)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self, sign=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(sign)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        self._reader.join(10)
        self.process.stderr.close()
        return self.process.returncode

    def request(self, method, path, body=None, headers=None, timeout=120):
        """Returns (status, headers, bytes)."""
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method,
                                         headers={"Content-Type": "application/json", **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read()

    def get(self, path, **more):
        status, _, body = self.request("GET", path, **more)
        return status, json.loads(body)

    def post(self, path, body, **more):
        status, _, answer = self.request("POST", path, body, **more)
        return status, json.loads(answer)

    def stream(self, path, body, **more):
        """Returns the events' parsed data; "[DONE]" stays text."""
        status, headers, answer = self.request("POST", path, {**body, "stream": True}, **more)
        assert status == 200, answer
        assert headers["Content-Type"] == "text/event-stream", headers
        events = []
        for event in answer.decode().split("\n\n"):
            if not event or event.startswith(":"):
                continue
            assert event.startswith("data: "), event
            data = event[len("data: "):]
            events.append(data if data == "[DONE]" else json.loads(data))
        return events

    def connect(self, timeout=30):
        return contextlib.closing(socket.create_connection(("127.0.0.1", self.port), timeout=timeout))


def read_all(client):
    """Reads until the server closes."""
    parts = []
    while True:
        try:
            part = client.recv(65536)
        except ConnectionResetError:
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts)


def read_answer(client):
    """Reads one response with Content-Length from a socket: (status, headers, body)."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = client.recv(65536)
        if not part:
            return None, {}, data
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    length = int(headers.get("content-length", 0))
    while len(body) < length:
        body += client.recv(65536)
    return int(lines[0].split()[1]), headers, body[:length]


class ServerTest(unittest.TestCase):
    """Each class starts one server, with the bundled model."""

    flags = ()

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="winnow-server-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.server = Server(*[str(flag).replace("FOLDER", folder.name) for flag in cls.flags])
        cls.addClassCleanup(cls.server.stop)
