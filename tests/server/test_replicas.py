"""Three servers behind haproxy, as deploy/haproxy.cfg has them, on ports of their own. One is killed under load."""

import concurrent.futures
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

from harness import ROOT, SANITIZED, Server

HAPROXY = os.environ.get("HAPROXY") or shutil.which("haproxy")
N_STREAMS = 20 if SANITIZED else 100


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@unittest.skipUnless(HAPROXY, "haproxy is not installed (apt-get install haproxy)")
class Replicas(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="winnow-server-")
        cls.addClassCleanup(folder.cleanup)
        sessions = pathlib.Path(folder.name) / "sessions"
        sessions.mkdir()
        cls.servers = [Server("--session-path", sessions, "-np", "64") for _ in range(3)]
        for server in cls.servers:
            cls.addClassCleanup(server.stop)
        cls.port = free_port()
        text = (ROOT / "deploy/haproxy.cfg").read_text().replace("127.0.0.1:8080", f"127.0.0.1:{cls.port}")
        for number, server in enumerate(cls.servers):
            text = text.replace(f"127.0.0.1:808{number + 1}", f"127.0.0.1:{server.port}")
        file = pathlib.Path(folder.name) / "haproxy.cfg"
        file.write_text(text)
        cls.proxy = subprocess.Popen([HAPROXY, "-db", "-f", file], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cls.addClassCleanup(cls.proxy.wait)
        cls.addClassCleanup(cls.proxy.kill)
        cls.url = f"http://127.0.0.1:{cls.port}"
        deadline = time.monotonic() + 30
        while True:
            try:
                if cls.post("/tokenize", {"content": "x"})[0] == 200:
                    break
            except OSError:
                pass
            if time.monotonic() > deadline:
                raise AssertionError("haproxy does not answer")
            time.sleep(0.1)

    @classmethod
    def post(cls, path, body, headers=None):
        request = urllib.request.Request(cls.url + path, json.dumps(body).encode(), headers or {}, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def test_one_is_killed(self):
        header = {"X-Session": "doc"}
        question = {"session": "doc", "messages": [{"role": "user", "content": "Who?"}], "max_tokens": 8, "temperature": 0}
        status, body = self.post("/v1/sessions", {"id": "doc", "document": "The inn. " * 40}, header)
        self.assertEqual(status, 200, body)
        self.assertEqual(self.post("/v1/sessions/doc/save", {}, header)[0], 200)
        holders = [s for s in self.servers if any(x["id"] == "doc" and not x["on_disk"] for x in s.get("/v1/sessions")[1]["data"])]
        self.assertEqual(len(holders), 1, "a session is on one replica")

        def stream(_):
            try:
                return self.post("/v1/completions", {"prompt": "Once", "max_tokens": 60, "ignore_eos": True, "stream": True})
            except (OSError, http.client.HTTPException) as error:  # the connection ended in the middle
                return 0, str(error).encode()

        with concurrent.futures.ThreadPoolExecutor(N_STREAMS) as pool:
            answers = [pool.submit(stream, i) for i in range(N_STREAMS)]
            time.sleep(0.5)
            slots = [sum(slot["is_processing"] for slot in s.get("/slots")[1]) for s in self.servers]
            holders[0].stop(signal.SIGKILL)
            done = [answer.result() for answer in answers]
        whole = sum(status == 200 and body.endswith(b"data: [DONE]\n\n") for status, body in done)
        lost = len(done) - whole
        # Each replica had a third; those of the others notice nothing.
        self.assertLessEqual(lost, slots[self.servers.index(holders[0])] + N_STREAMS // 3 + 1, slots)
        self.assertGreaterEqual(whole, N_STREAMS // 2)

        deadline = time.monotonic() + 30
        while True:
            status, body = self.post("/v1/chat/completions", question, header)
            if status == 200:
                break
            self.assertLess(time.monotonic(), deadline, body)
            time.sleep(0.2)
        self.assertGreater(json.loads(body)["usage"]["prompt_tokens_details"]["cached_tokens"], 40, "from the shared folder")


if __name__ == "__main__":
    unittest.main()
