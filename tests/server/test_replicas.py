"""Three servers behind haproxy with deploy/haproxy.cfg, on free ports. One is killed under load, one is restarted. Needs
haproxy; the page's test also a browser (browser.py)."""

import collections
import concurrent.futures
import contextlib
import http.client
import itertools
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

import browser
from harness import ROOT, SANITIZED, Server

HAPROXY = os.environ.get("HAPROXY") or shutil.which("haproxy")
NAMES = ("one", "two", "three")  # as in the configuration
N_STREAMS = 30 if SANITIZED else 200
PROMPTS = ["Once", "The harbour lay", "A red lantern", "The code of the", "Nobody at the inn", "Who knows the"]
STREAM = {"max_tokens": 400, "ignore_eos": True, "temperature": 0}
LONG = 500 if SANITIZED else 1500  # tokens; a stream takes some seconds
QUESTION = {"session": "doc", "messages": [{"role": "user", "content": "Who?"}], "max_tokens": 8, "temperature": 0}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@unittest.skipUnless(HAPROXY, "haproxy is not installed (apt-get install haproxy)")
class ReplicaTest(unittest.TestCase):
    """Each test starts three servers."""

    def model(self, folder):
        """A model with float weights: its answers do not depend on how many sequences share a step."""
        model = folder / "tiny.gguf"
        subprocess.run([os.environ["MAKE_TINY_MODEL"], model], check=True, capture_output=True)
        return model

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="winnow-server-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.flags = ("-m", self.model(self.folder), "--session-path", self.folder / "sessions", "-np", "128", "-t", "1")
        self.servers = [self.start() for _ in NAMES]
        self.port = free_port()
        text = (ROOT / "deploy/haproxy.cfg").read_text().replace("127.0.0.1:8080", f"127.0.0.1:{self.port}")
        for number, server in enumerate(self.servers):
            text = text.replace(f"127.0.0.1:808{number + 1}", f"127.0.0.1:{server.port}")
        file = self.folder / "haproxy.cfg"
        file.write_text(text)
        proxy = subprocess.Popen([HAPROXY, "-db", "-f", file], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(proxy.wait)
        self.addCleanup(proxy.kill)
        self.url = f"http://127.0.0.1:{self.port}"
        self.post_until_answered("/tokenize", {"content": "x"})

    def start(self, *flags):
        server = Server(*self.flags, *flags)
        self.addCleanup(server.stop)
        return server

    def post_until_answered(self, path, body, headers=None):
        """Posts until the status is 200; returns as post."""
        deadline = time.monotonic() + 30
        while True:
            try:
                last = self.post(path, body, headers)
                if last[0] == 200:
                    return last
            except OSError as error:
                last = error
            self.assertLess(time.monotonic(), deadline, last)
            time.sleep(0.1)

    def post(self, path, body, headers=None):
        """Returns (status, body, name of the replica)."""
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers or {}, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read(), answer.headers["X-Replica"]
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(), error.headers["X-Replica"]

    def stream(self, number, begun, **more):
        """Returns (replica, body, whether the stream is complete). Releases `begun` once the header has arrived."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        replica, body = None, b""
        with contextlib.closing(connection):
            try:
                connection.request("POST", "/v1/completions", json.dumps({**STREAM, "prompt": PROMPTS[number % len(PROMPTS)], "stream": True, **more}))
                answer = connection.getresponse()
                replica = answer.headers["X-Replica"]
                self.assertEqual(answer.status, 200)
            finally:
                begun.release()
            with contextlib.suppress(OSError, http.client.HTTPException):
                while part := answer.read1(65536):
                    body += part
        return replica, body, body.endswith(b"data: [DONE]\n\n")

    def make_document(self):
        """Creates the session "doc" and returns the replica that has read it."""
        status, body, holder = self.post("/v1/sessions", {"id": "doc", "document": "The inn. " * 40})
        self.assertEqual(status, 200, body)
        return holder

    def cached(self, body):
        return json.loads(body)["usage"]["prompt_tokens_details"]["cached_tokens"]

    def wait_for_replica(self, name):
        """Waits until haproxy sends sessions to this replica again. Every probe has a new name; some map to it."""
        deadline = time.monotonic() + 30
        for number in itertools.count():
            if self.post("/tokenize", {"content": "x"}, {"X-Session": f"probe-{number}"})[2] == name:
                return
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)


class Replicas(ReplicaTest):
    def test_slots_are_found_where_they_were_made(self):
        seen = set()
        for slot in range(8):
            ask = {"prompt": "The harbour lay still. " * 8, "n_predict": 4, "temperature": 0, "id_slot": slot}
            status, body, holder = self.post("/completion", ask)
            self.assertEqual(status, 200, body)
            seen.add(holder)
            status, body, replica = self.post("/completion", {**ask, "n_predict": 8})
            self.assertEqual((status, replica), (200, holder), body)
            self.assertGreater(json.loads(body)["timings"]["cache_n"], 10)
            for action in ("save", "restore", "erase"):
                status, body, replica = self.post(f"/slots/{slot}?action={action}", {"filename": f"of-slot-{slot}"})
                self.assertEqual((status, replica), (200, holder), (action, body))
        self.assertGreater(len(seen), 1)
        # -1 means any slot, not a session.
        self.assertEqual(self.post("/completion", {"prompt": "Once", "n_predict": 2, "id_slot": -1})[0], 200)

    def test_sessions_are_found_where_they_were_made(self):
        """Without the header: by the path, and by the body wherever it has the name."""
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

    def alone(self):
        """The text of each prompt's answer without other load."""
        return {prompt: json.loads(self.post("/v1/completions", {**STREAM, "prompt": prompt})[1])["choices"][0]["text"] for prompt in PROMPTS}

    def assert_whole(self, number, replica, body, alone):
        self.assertTrue(body.endswith(b"data: [DONE]\n\n"), (number, replica, body[-300:]))
        events = [json.loads(event[len("data: "):]) for event in body.decode().split("\n\n")[:-2]]
        self.assertEqual("".join(event["choices"][0]["text"] for event in events), alone[PROMPTS[number % len(PROMPTS)]])
        self.assertEqual(events[-1]["choices"][0]["finish_reason"], "length")

    def test_one_is_killed(self):
        holder = self.make_document()
        self.assertEqual(self.post("/v1/sessions/doc/save", {})[0], 200)
        killed = self.servers[NAMES.index(holder)]
        self.assertTrue(any(x["id"] == "doc" and not x["on_disk"] for x in killed.get("/v1/sessions")[1]["data"]))
        alone = self.alone()

        begun = threading.Semaphore(0)
        with concurrent.futures.ThreadPoolExecutor(N_STREAMS) as pool:
            streams = [pool.submit(self.stream, number, begun) for number in range(N_STREAMS)]
            for _ in streams:
                self.assertTrue(begun.acquire(timeout=120))
            running = sum(slot["is_processing"] for slot in killed.get("/slots")[1])
            killed.stop(signal.SIGKILL)
            done = [stream.result() for stream in streams]

        of = collections.Counter(replica for replica, _, _ in done)
        whole = collections.Counter(replica for replica, _, is_whole in done if is_whole)
        print(f"streams of each replica {dict(of)}, whole {dict(whole)}, {running} running on {holder} when it was killed", flush=True)
        self.assertEqual(set(of), set(NAMES))
        self.assertGreaterEqual(min(of.values()), N_STREAMS // 5, "the least busy one gets the next")
        self.assertGreater(running, 0)
        self.assertGreaterEqual(of[holder] - whole[holder], running // 2, "they were killed in the middle")
        for number, (replica, body, is_whole) in enumerate(done):
            if replica != holder or is_whole:
                self.assert_whole(number, replica, body, alone)

        _, body, other = self.post_until_answered("/v1/chat/completions", QUESTION)
        self.assertNotEqual(other, holder)
        cached = self.cached(body)
        self.assertGreater(cached, 40, "from the shared folder")

        # It restarts. Alone it would read the state saved before it was killed.
        self.servers[NAMES.index(holder)] = self.start("--port", killed.port)
        self.wait_for_replica(holder)
        status, body, replica = self.post("/v1/chat/completions", QUESTION)
        self.assertEqual((status, replica), (200, other), body)
        self.assertGreater(self.cached(body), cached + 8, "the conversation so far")



class RollingRestart(ReplicaTest):
    """With the bundled model, which is slow enough: streams last longer than haproxy needs to see that a server ends."""

    def model(self, folder):
        return "bundled"

    def test_one_ends_and_comes_back(self):
        holder = self.make_document()
        ending = self.servers[NAMES.index(holder)]
        begun, refused, n_streams = threading.Semaphore(0), [], 15 if SANITIZED else 30
        with concurrent.futures.ThreadPoolExecutor(n_streams) as pool:
            streams = [pool.submit(self.stream, number, begun, max_tokens=LONG) for number in range(n_streams)]
            for _ in streams:
                self.assertTrue(begun.acquire(timeout=120))
            ending.process.send_signal(signal.SIGTERM)
            # No request is refused, before and after haproxy notices.
            end = time.monotonic() + 1.5
            while time.monotonic() < end:
                status, body, replica = self.post("/v1/completions", {"prompt": "x", "max_tokens": 1})
                if status != 200:
                    refused.append((replica, body))
                time.sleep(0.02)
            # The session is saved by now, while streams still run on that server.
            _, body, other = self.post_until_answered("/v1/chat/completions", QUESTION)
            has_ended = ending.process.poll() is not None
            self.assertNotEqual(other, holder)
            cached = self.cached(body)
            self.assertGreater(cached, 40)
            done = [stream.result() for stream in streams]
        self.assertEqual(ending.process.wait(60), 0)
        self.assertEqual(refused, [])
        self.assertEqual({replica for replica, _, _ in done}, set(NAMES))
        cut = [(replica, body[-100:]) for replica, body, is_whole in done if not is_whole]
        self.assertEqual(cut, [])
        self.assertFalse(has_ended, "its streams were too short to be cut off")
        for _, body, _ in done:
            self.assertIn(b'"finish_reason":"length"', body.replace(b" ", b""))

        # After it restarts, turns that another replica answered meanwhile are not lost.
        self.servers[NAMES.index(holder)] = self.start("--port", ending.port)
        self.wait_for_replica(holder)
        status, body, replica = self.post("/v1/chat/completions", QUESTION)
        self.assertEqual((status, replica), (200, other), body)
        self.assertGreater(self.cached(body), cached + 8, "the conversation so far")


@unittest.skipIf(browser.missing(), browser.missing())
@unittest.skipIf(SANITIZED, "the browser's patience is too short for a build with sanitizers")
class Page(ReplicaTest):
    def model(self, folder):
        return "bundled"

    def sessions(self):
        return [{session["id"] for session in server.get("/v1/sessions")[1]["data"]} for server in self.servers]

    def test_page(self):
        """The sessions of a tab, their forks and the requests about them are on one replica."""
        seen = []
        with tempfile.TemporaryDirectory(prefix="winnow-browser-", ignore_cleanup_errors=True) as profile, \
                contextlib.closing(browser.Browser(profile)) as page:
            for _ in range(3):
                page.open(self.url + "/")
                page.read_example()
                page.ask("What is the secret code of the red lantern?")
                self.assertEqual([page.answers("full"), page.answers("kept")], [["48213"], ["48213"]])
                page.click("#heads-toggle")
                page.wait("/keeps \\d+ of/.test(document.querySelector('.heads .head')?.ariaLabel)")
                self.assertTrue(page.js("return document.querySelector('#problem').hidden"), page.text("#problem-text"))
                seen.append([len(sessions) for sessions in self.sessions()])
                page.driver.get("about:blank")
                deadline = time.monotonic() + 60
                while any(self.sessions()):
                    self.assertLess(time.monotonic(), deadline, self.sessions())
                    time.sleep(0.05)
        for counts in seen:
            self.assertEqual(sorted(counts), [0, 0, 4], "two that have read the text, and their forks")


if __name__ == "__main__":
    unittest.main()
