"""Three servers behind haproxy, as deploy/haproxy.cfg has them, on ports of their own. One is killed under load."""

import collections
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

from harness import ROOT, SANITIZED, Server

HAPROXY = os.environ.get("HAPROXY") or shutil.which("haproxy")
NAMES = ("one", "two", "three")  # as the configuration has them
N_STREAMS = 30 if SANITIZED else 200
PROMPTS = ["Once", "The harbour lay", "A red lantern", "The code of the", "Nobody at the inn", "Who knows the"]
STREAM = {"max_tokens": 400, "ignore_eos": True, "temperature": 0}


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
        sessions, model = pathlib.Path(folder.name) / "sessions", pathlib.Path(folder.name) / "tiny.gguf"
        # Its weights are floats: what it says does not depend on how many sequences share a step.
        subprocess.run([os.environ["MAKE_TINY_MODEL"], model], check=True, capture_output=True)
        cls.servers = [Server("-m", model, "--session-path", sessions, "-np", "128", "-t", "1") for _ in range(3)]
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
        """(status, body, name of the replica)."""
        request = urllib.request.Request(cls.url + path, json.dumps(body).encode(), headers or {}, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read(), answer.headers["X-Replica"]
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(), error.headers["X-Replica"]

    def test_sessions_are_found_where_they_were_made(self):
        """Without the header: by path and by body, wherever the name stands in it."""
        question = [{"role": "user", "content": "Who?"}]
        seen = set()
        for number in range(8):
            name = f"routed-{number}"
            session = {"document": "The inn. ", "id": name} if number % 2 else {"id": name, "note": "x" * 300000, "document": "The inn. "}
            status, body, replica = self.post("/v1/sessions", session)
            self.assertEqual(status, 200, body)
            asked = [("/v1/chat/completions", {"messages": question, "max_tokens": 1, "session": name}),
                     ("/v1/completions", {"session": name, "prompt": "And", "max_tokens": 1}),
                     ("/completion", {"prompt": "so", "n_predict": 1, "session": name}), (f"/v1/sessions/{name}/fork", {"id": f"{name}-fork"})]
            for path, request in asked:
                status, body, found = self.post(path, request)
                self.assertEqual((status, found), (200, replica), (path, body))
            request = {"prompt": "x", "max_tokens": 1, "session": f"{name}-fork"}
            self.assertEqual(self.post("/v1/completions", request, {"X-Session": name})[::2], (200, replica), "a fork, by its origin")
            seen.add(replica)
        self.assertGreater(len(seen), 1)

    def stream(self, number, begun):
        """(replica, body, whether its end came); `begun` is released once the head is there."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        replica, body = None, b""
        with contextlib.closing(connection):
            try:
                connection.request("POST", "/v1/completions", json.dumps({**STREAM, "prompt": PROMPTS[number % len(PROMPTS)], "stream": True}))
                answer = connection.getresponse()
                replica = answer.headers["X-Replica"]
                self.assertEqual(answer.status, 200)
            finally:
                begun.release()
            with contextlib.suppress(OSError, http.client.HTTPException):
                while part := answer.read1(65536):
                    body += part
        return replica, body, body.endswith(b"data: [DONE]\n\n")

    def test_one_is_killed(self):
        question = {"session": "doc", "messages": [{"role": "user", "content": "Who?"}], "max_tokens": 8, "temperature": 0}
        status, body, holder = self.post("/v1/sessions", {"id": "doc", "document": "The inn. " * 40})
        self.assertEqual(status, 200, body)
        self.assertEqual(self.post("/v1/sessions/doc/save", {})[0], 200)
        killed = self.servers[NAMES.index(holder)]
        self.assertTrue(any(x["id"] == "doc" and not x["on_disk"] for x in killed.get("/v1/sessions")[1]["data"]))
        alone = {prompt: json.loads(self.post("/v1/completions", {**STREAM, "prompt": prompt})[1])["choices"][0]["text"] for prompt in PROMPTS}

        begun = threading.Semaphore(0)
        with concurrent.futures.ThreadPoolExecutor(N_STREAMS) as pool:
            streams = [pool.submit(self.stream, number, begun) for number in range(N_STREAMS)]
            for _ in streams:
                self.assertTrue(begun.acquire(timeout=120))
            at_work = sum(slot["is_processing"] for slot in killed.get("/slots")[1])
            killed.stop(signal.SIGKILL)
            done = [stream.result() for stream in streams]

        of = collections.Counter(replica for replica, _, _ in done)
        whole = collections.Counter(replica for replica, _, is_whole in done if is_whole)
        print(f"streams of each replica {dict(of)}, whole {dict(whole)}, {at_work} at work on {holder} when it was killed", flush=True)
        self.assertEqual(set(of), set(NAMES))
        self.assertGreaterEqual(min(of.values()), N_STREAMS // 5, "the least busy one gets the next")
        self.assertGreater(at_work, 0)
        self.assertGreaterEqual(of[holder] - whole[holder], at_work // 2, "they were killed in the middle")
        for number, (replica, body, is_whole) in enumerate(done):
            events = [json.loads(event[len("data: "):]) for event in body.decode().split("\n\n")[:-1] if not event.endswith("[DONE]")] \
                if is_whole else []
            if replica == holder and not is_whole:
                continue
            self.assertTrue(is_whole, (number, replica, body[-300:]))
            self.assertEqual("".join(event["choices"][0]["text"] for event in events), alone[PROMPTS[number % len(PROMPTS)]])
            self.assertEqual(events[-1]["choices"][0]["finish_reason"], "length")

        deadline = time.monotonic() + 30
        while True:
            status, body, _ = self.post("/v1/chat/completions", question)
            if status == 200:
                break
            self.assertLess(time.monotonic(), deadline, body)
            time.sleep(0.2)
        self.assertGreater(json.loads(body)["usage"]["prompt_tokens_details"]["cached_tokens"], 40, "from the shared folder")


if __name__ == "__main__":
    unittest.main()
