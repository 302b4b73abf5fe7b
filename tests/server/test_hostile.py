"""Many malicious clients at once: they get a 4xx or a closed connection, and /health answers others in time."""

import contextlib
import json
import os
import re
import resource
import select
import socket
import time
import unittest

import health
from harness import SANITIZED, Server, ServerTest, read_all, read_answer

LONG = "WINNOW_SOAK_CONNECTIONS" in os.environ  # make soak sets it
MAX_MORE_BYTES = 48 << 20                       # memory for all hostile clients of a test together
CONNECTIONS = int(os.environ.get("WINNOW_SOAK_CONNECTIONS", 500 if SANITIZED else 2000))


class HostileTest(ServerTest):
    """A test fails if /health is late while it runs; the class fails if all times together are too long."""

    flags = ("-t", "2", "--timeout", "30")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.times = []

    @classmethod
    def tearDownClass(cls):
        print(f"{cls.__name__}: {health.describe(cls.times)}", flush=True)
        assert health.is_in_time(cls.times), health.describe(cls.times)

    def setUp(self):
        self.looks = health.Watch(self.server.port).start()
        time.sleep(0.1)

    def tearDown(self):
        problem = self.looks.stop()
        said = health.describe(self.looks.times)
        print(f"{self._testMethodName}: {said}", flush=True)
        self.times.extend(self.looks.times)
        self.assertIsNone(problem)
        self.assertTrue(health.is_in_time(self.looks.times), f"nothing may wait for a request: {said}")
        self.assertEqual(self.server.get("/health")[0], 200)

    def connections(self, n):
        """Opens n sockets, or fewer if the system allows fewer files."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        n = min(n, hard - 200)
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        return [stack.enter_context(socket.create_connection(("127.0.0.1", self.server.port), timeout=60)) for _ in range(n)]

    def drain(self, clients, seconds):
        """Waits until each client is answered or closed: (responses, number of clients still open)."""
        poll = select.poll()
        by_number = {client.fileno(): client for client in clients}
        for number in by_number:
            poll.register(number, select.POLLIN)
        answers, until = {}, time.monotonic() + seconds
        while by_number and time.monotonic() < until:
            for number, _ in poll.poll(200):
                data = b""
                with contextlib.suppress(OSError):
                    data = by_number[number].recv(65536)
                answers[number] = answers.get(number, b"") + data
                poll.unregister(number)
                del by_number[number]
        return list(answers.values()), len(by_number)


class Hostile(HostileTest):
    def test_many_connections(self):
        clients = self.connections(CONNECTIONS)
        print(f"{len(clients)} connections of {CONNECTIONS}", flush=True)
        for client in clients[::2]:  # half send nothing, half begin a request
            client.sendall(b"GET /v1/models HTTP/1.1\r\nHo")
        self.assertEqual(self.server.get("/v1/models")[0], 200)
        for client in clients[::2][:200]:
            client.sendall(b"st: x\r\n\r\n")
            self.assertEqual(read_answer(client)[0], 200)

    def test_slow_headers_and_bodies(self):
        clients = self.connections(300)
        for i, client in enumerate(clients):
            client.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\n" + (b"Content-Length: 100\r\n\r\n" if i % 2 else b""))
        start = time.monotonic()
        # Send a byte now and then; in the long form, for more than the 10 s allowed for a header (test_http has one such client).
        while time.monotonic() - start < (12 if LONG else 2):
            for i, client in enumerate(clients):
                with contextlib.suppress(OSError):
                    client.sendall(b"a" if i % 2 else b"X")
            time.sleep(0.5)
        self.assertEqual(self.server.get("/v1/models")[0], 200)
        if not LONG:
            return
        answers, n_open = self.drain(clients[::2], 10)
        self.assertEqual(n_open, 0, "a header has 10 s")
        for answer in answers:
            self.assertTrue(not answer or answer.startswith(b"HTTP/1.1 408"), answer[:100])

    def test_half_open_connections(self):
        clients = self.connections(300)
        for i, client in enumerate(clients):
            client.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{"[:20 + i])
            client.shutdown(socket.SHUT_WR)
        answers, n_open = self.drain(clients, 15)
        self.assertEqual(n_open, 0)
        for answer in answers:
            self.assertTrue(not answer or answer.startswith(b"HTTP/1.1 4"), answer[:100])

    def test_large_requests_while_it_generates(self):
        """Bodies that take long to parse, on several connections, while answers keep the engine busy."""
        long = json.dumps({"prompt": "Once", "max_tokens": 400, "ignore_eos": True, "stream": True, "n": 4}).encode()
        generating = self.connections(4)
        for client in generating:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(long) + long)
        status, made = self.server.post("/v1/sessions", {"id": "large", "document": "The harbour lay quiet."})
        self.assertEqual(status, 200, made)
        words = "the harbour lay quiet and a red lantern hung above the door " * (20000 if SANITIZED else 100000)
        paths = (b"/v1/completions", b"/v1/chat/completions", b"/tokenize", b"/completion")
        bodies = [b"[" * 1000000, b'{"a":' * 1000000, b'{"prompt": "\xff\xfe' + b"a" * 5000000 + b'"}',
                  json.dumps({"prompt": words, "max_tokens": 1}).encode(), json.dumps({"content": words}).encode(),
                  b'{"prompt": [' + b"1," * 3000000 + b'1]}', b'{"prompt": "a", "temperature": 1e999, "seed": ' + b"9" * 4000000 + b"}",
                  json.dumps({"prompt": "a", "stop": ["x" * 1000] * 5000}).encode(),
                  json.dumps({"messages": [{"role": "user", "content": "a"}] * 100000}).encode()]
        for_chat = {"messages": [{"role": "user", "content": words}], "session": "large", "max_tokens": 1}
        asked = [(paths[i % len(paths)], bodies[i % len(bodies)]) for i in range(2 * len(bodies))]
        asked += [(b"/v1/chat/completions", json.dumps(for_chat).encode()),
                  (b"/completion", json.dumps({"prompt": words, "session": "large", "n_predict": 1}).encode())] * 2
        clients = self.connections(len(asked))
        for client, (path, body) in zip(clients, asked):
            with contextlib.suppress(OSError):
                client.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path, len(body)) + body)
        answers, n_open = self.drain(clients, 120)
        self.assertEqual(n_open, 0)
        for answer in answers:
            self.assertRegex(answer[:13].decode("latin-1"), r"^(|HTTP/1.1 (200|4\d\d|503) ?)$")

    def test_a_flood_of_pipelined_requests(self):
        clients = self.connections(8)
        one = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
        for client in clients:
            client.setblocking(False)
        sent = [0] * len(clients)
        end = time.monotonic() + (2 if LONG else 1)
        while time.monotonic() < end:  # never read
            for i, client in enumerate(clients):
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    sent[i] += client.send(one * 1000)
            time.sleep(0.001)
        self.assertGreater(min(sent), len(one))

    def test_bodies_of_a_gigabyte(self):
        clients = self.connections(50)
        for client in clients:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n")
        answers, n_open = self.drain(clients, 10)
        self.assertEqual(n_open, 0)
        self.assertTrue(all(answer.startswith(b"HTTP/1.1 413") for answer in answers), answers[:1])


class MemoryTest(HostileTest):
    def setUp(self):
        super().setUp()
        self.before = self.resident_bytes()

    def resident_bytes(self):
        with open(f"/proc/{self.server.process.pid}/status", encoding="ascii") as file:
            return 1024 * int(re.search(r"^VmRSS:\s+(\d+) kB", file.read(), re.M).group(1))

    def watch(self, seconds, done=lambda: False):
        """Checks that memory stays small for `seconds`, or until `done()`."""
        most, until = 0, time.monotonic() + seconds
        while not done() and time.monotonic() < until:
            most = max(most, self.resident_bytes() - self.before)
            if not SANITIZED:  # sanitizers keep freed memory
                self.assertLess(most, MAX_MORE_BYTES)
            time.sleep(0.01)
        print(f"{self._testMethodName}: {most / 2**20:.1f} MiB more", flush=True)


class Memory(MemoryTest):
    """Unfinished requests and unread responses take little memory."""

    def test_chunk_headers_and_trailers_without_end(self):
        """24 clients send 16 MiB each."""
        clients = self.connections(24)
        forms = ((b"1;", b"a" * 65536), (b"0;", b"a" * 65536), (b"0\r\n", b"X-Trailer: aaaaaaaaaaaaaaaaaaa\r\n" * 2048))
        left = {}
        for i, client in enumerate(clients):
            begin, more = forms[i % len(forms)]
            client.sendall(b"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + begin)
            client.setblocking(False)
            left[client] = memoryview(more * ((16 << 20) // len(more)))

        def send():
            for client in list(left):
                try:
                    left[client] = left[client][client.send(left[client][:65536]):]
                except BlockingIOError:
                    continue
                except ConnectionError:
                    left[client] = b""
                if not left[client]:
                    del left[client]
            return not left

        self.watch(20, send)
        answers, n_open = self.drain(clients, 10)
        self.assertEqual(n_open, 0)
        for answer in answers:
            self.assertTrue(not answer or answer.startswith(b"HTTP/1.1 431"), answer[:100])

    def test_answers_that_nobody_reads(self):
        """16 clients, each with more unread responses than the memory limit for all."""
        status, _, file = self.server.request("GET", "/page/app.js")
        self.assertEqual(status, 200)
        n = 2 * MAX_MORE_BYTES // len(file)
        clients = self.connections(16)
        for client in clients:
            client.sendall(b"GET /page/app.js HTTP/1.1\r\nHost: x\r\n\r\n" * n)
        self.watch(2)
        reader, size = clients[0], 0
        reader.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        while data := reader.recv(1 << 20):  # a client that reads late gets everything
            size += len(data)
        self.assertGreater(size, n * len(file))
        self.watch(1)

    def test_bodies_that_are_only_announced(self):
        clients = self.connections(200)
        for client in clients:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 33554432\r\n\r\n")
        self.watch(0.5)
        for words in (1, 50000):
            self.assertEqual(self.server.post("/tokenize", {"content": "hello " * words})[0], 200)
        answers, n_open = self.drain(clients, 0)
        self.assertEqual((answers, n_open), ([], len(clients)), "they are waited for")


class Buffers(MemoryTest):
    """Each client stays within its limits; together they would take 200 MiB."""

    flags = (*HostileTest.flags, "--http-buffers", "16M")

    def test_answers_that_many_do_not_read(self):
        status, _, file = self.server.request("GET", "/page/app.js")
        self.assertEqual(status, 200)
        clients = self.connections(200)
        for client in clients:
            with contextlib.suppress(ConnectionError):
                client.sendall(b"GET /page/app.js HTTP/1.1\r\nHost: x\r\n\r\n" * (6 * 2**20 // len(file)))
        self.watch(2)

    def test_bodies_that_many_do_not_end(self):
        clients = self.connections(1000)
        for client in clients:
            with contextlib.suppress(ConnectionError):
                client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n" + b"x" * 59999)
        self.watch(2)
        self.assertEqual(self.server.post("/tokenize", {"content": "hello"})[0], 200)


if __name__ == "__main__":
    unittest.main()
