"""Starts servers, waits until they are ready, and runs loads against them."""

import json
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server process on its own port; its output goes to a log."""

    def __init__(self, command, log, ready_s=300):
        self.port = free_port()
        self.log = Path(log)
        command = [str(word) for word in command] + ["--host", "127.0.0.1", "--port", str(self.port)]
        self.process = subprocess.Popen(command, stdout=self.log.open("w"), stderr=subprocess.STDOUT)
        self._wait(command, ready_s)

    def _wait(self, command, ready_s):
        deadline = time.monotonic() + ready_s
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                if self.get("/health")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.2)
        self.stop()
        raise SystemExit(f"{' '.join(command)}: is not ready\n{self.log.read_text()[-2000:]}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def request(self, method, path, body=None):
        """(status, text)"""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=3600) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def get(self, path):
        return self.request("GET", path)

    def post(self, path, body):
        return self.request("POST", path, body)

    def rss_mib(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024

    def metric(self, name):
        """The sum of a metric's values; None if there is no metric of this name."""
        found = re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", self.get("/metrics")[1], re.MULTILINE)
        return sum(map(float, found)) if found else None


class Client:
    """Runs winnow_server_load."""

    def __init__(self, binary, **flags):
        self.binary = binary
        self.flags = flags  # common to all loads

    def play(self, server, fields=None, **flags):
        command = [str(self.binary), "--port", str(server.port)]
        for name, value in {**self.flags, **flags}.items():
            command += ["--" + name.replace("_", "-"), str(value)]
        if fields:
            command += ["--fields", json.dumps(fields)[1:-1]]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: {done.stderr}{done.stdout}")
        found = json.loads(done.stdout)
        if found["failed"]:
            raise SystemExit(f"{' '.join(command)}: {found['failed']} requests failed: {found['problem']}")
        return found
