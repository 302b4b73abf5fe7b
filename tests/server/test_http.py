"""Misbehaving clients get a 4xx or a closed connection, and /health still answers."""

import contextlib
import json
import socket
import time
import unittest

from harness import SANITIZED, ServerTest, Server, read_all, read_answer


LARGE_CHUNKS = {"messages": [{"role": "user", "content": "Once"}], "ignore_eos": True, "logprobs": True, "top_logprobs": 20}


def post(path, body, extra=b""):
    return (b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n" % (path, len(body), extra)) + body


class Http(ServerTest):
    def tearDown(self):
        start = time.monotonic()
        self.assertEqual(self.server.get("/health")[0], 200)
        self.assertLess(time.monotonic() - start, 5 if SANITIZED else 1)

    def test_keep_alive_and_pipelining(self):
        body = json.dumps({"content": "hello"}).encode()
        with self.server.connect() as client:
            client.sendall(post(b"/tokenize", body) * 3 + b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            data = read_all(client)
        self.assertEqual(data.count(b"HTTP/1.1 200 OK"), 4)
        self.assertEqual(data.count(b'"tokens"'), 3)
        self.assertTrue(data.endswith(b'{"status":"ok"}'))

    def test_head_options_and_methods(self):
        with self.server.connect() as client:
            client.sendall(b"HEAD /health HTTP/1.1\r\nHost: x\r\n\r\nOPTIONS /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
                           b"DELETE /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            data = read_all(client)
        heads = data.split(b"HTTP/1.1 ")[1:]
        self.assertEqual([head[:3] for head in heads], [b"200", b"204", b"404"])
        self.assertIn(b"Content-Length: 15", heads[0])
        self.assertNotIn(b"status", heads[0].split(b"\r\n\r\n")[1])

    def test_chunked_body_and_expect(self):
        body = json.dumps({"content": "hello"}).encode()
        with self.server.connect() as client:
            client.sendall(b"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            for i in range(0, len(body), 3):
                client.sendall(b"%x\r\n%s\r\n" % (len(body[i:i + 3]), body[i:i + 3]))
            client.sendall(b"0\r\n\r\n")
            self.assertEqual(read_answer(client)[0], 200)
            client.sendall(b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n" % len(body))
            self.assertEqual(client.recv(100), b"HTTP/1.1 100 Continue\r\n\r\n")
            client.sendall(body)
            self.assertEqual(read_answer(client)[0], 200)

    def test_http_1_0(self):
        with self.server.connect() as client:
            client.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            self.assertIn(b"200 OK", read_all(client))
        body = json.dumps({"prompt": "Once", "max_tokens": 3, "stream": True}).encode()
        with self.server.connect() as client:
            client.sendall(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            data = read_all(client)
        self.assertNotIn(b"Transfer-Encoding", data)
        self.assertTrue(data.endswith(b"data: [DONE]\n\n"))

    def test_a_client_that_ends_its_side_is_answered(self):
        with self.server.connect() as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            client.shutdown(socket.SHUT_WR)
            self.assertIn(b"200 OK", read_all(client))
        # Several requests; the last one is cut off.
        body = json.dumps({"content": "hello"}).encode()
        for _ in range(20):
            with self.server.connect() as client:
                client.sendall((post(b"/tokenize", body) + b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n") * 5 + b"GET /hea")
                client.shutdown(socket.SHUT_WR)
                data = read_all(client)
            self.assertEqual((data.count(b"200 OK"), data.count(b'"tokens"'), data.count(b'"ok"')), (10, 5, 5))

    def test_what_is_no_http(self):
        for garbage in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\0" * 100,
                        b"GET / HTTP/1.1\r\nbad header\r\n\r\n", b"GET no-slash HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
                        b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
                        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
                        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"GET /%00 HTTP/1.1\r\nConnection: close\r\n\r\n"):
            with self.subTest(garbage[:40]), self.server.connect() as client:
                client.sendall(garbage)
                client.shutdown(socket.SHUT_WR)
                data = read_all(client)
                self.assertTrue(not data or data.startswith(b"HTTP/1.1 4"), data[:100])

    def test_header_without_end(self):
        with self.server.connect() as client:
            client.sendall(b"GET / HTTP/1.1\r\n")
            answer = b""
            with contextlib.suppress(ConnectionError):
                for _ in range(2000):
                    client.sendall(b"X-Header: " + b"a" * 100 + b"\r\n")
            answer = read_all(client)
        self.assertTrue(not answer or answer.startswith(b"HTTP/1.1 431"), answer[:100])

    def test_chunk_header_and_trailer_without_end(self):
        for begin, more in ((b"1;", b"a" * 1000), (b"1\r\nx\r\n0;", b"a" * 1000), (b"0\r\n", b"X-Trailer: " + b"a" * 100 + b"\r\n")):
            with self.subTest(begin), self.server.connect() as client:
                client.sendall(b"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + begin)
                client.sendall(more * (65536 // len(more)))  # twice the limit
                status, headers, body = read_answer(client)
                self.assertEqual(status, 431)
                self.assertEqual(headers["connection"], "close")
                self.assertIn(b"header_too_large", body)

    def test_chunk_extension_and_trailer(self):
        body = json.dumps({"content": "hello"}).encode()
        with self.server.connect() as client:
            client.sendall(b"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x;name=%s\r\n%s\r\n"
                           b"0\r\nX-Trailer: %s\r\n\r\n" % (len(body), b"a" * 20000, body, b"a" * 20000))
            self.assertEqual(read_answer(client)[0], 200)

    def test_body_of_a_gigabyte(self):
        with self.server.connect() as client:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n")
            status, headers, body = read_answer(client)
            self.assertEqual(status, 413)
            self.assertEqual(headers["connection"], "close")
            self.assertIn(b"body_too_large", body)

    def test_endless_chunked_body(self):
        with self.server.connect() as client:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
            with contextlib.suppress(ConnectionError):
                for _ in range(64):
                    client.sendall(chunk)
            answer = read_all(client)
        self.assertTrue(not answer or answer.startswith(b"HTTP/1.1 413"), answer[:100])

    def test_deep_and_broken_json(self):
        for body in (b"[" * 1000000, b'{"a":' * 1000000, b'{"prompt": "\xff\xfe"}', b'{"prompt": "a", "temperature": 1e999}', b"",
                     b'{"prompt": "a", "max_tokens": 99999999999999999999}', b'{"prompt": "a", "n": 1e300}', b"nul", b'{"prompt": "\\ud800"}'):
            with self.subTest(body[:40]):
                status, _, answer = self.server.request("POST", "/v1/completions", body)
                self.assertEqual(status, 400)
                self.assertIn("error", json.loads(answer))

    def test_client_that_never_reads(self):
        """Beyond the system's buffers, 1 MiB is queued for it; then its connection is closed and its request cancelled."""
        mib, system = 1 << 20, 8 << 20  # upper bound of the system's buffers at both ends
        chunk = len(self.server.stream("/v1/chat/completions", {**LARGE_CHUNKS, "max_tokens": 1})[1].__repr__())

        def ask(n_bytes):
            body = json.dumps({**LARGE_CHUNKS, "n": 8, "max_tokens": n_bytes // chunk // 8, "stream": True}).encode()
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(60)
            client.connect(("127.0.0.1", server.port))
            client.sendall(post(b"/v1/chat/completions", body, b"Connection: close\r\n"))
            return contextlib.closing(client)

        with Server("--metrics", "-np", "16") as server:
            with ask(mib // 2) as client:  # a client that reads late gets everything
                deadline = time.monotonic() + 120
                while server.metrics()["winnow_request_seconds_count"] < 8:
                    self.assertLess(time.monotonic(), deadline, "the answers do not end")
                    time.sleep(0.05)
                data = read_all(client)
            self.assertIn(b"data: [DONE]", data[-100:])
            self.assertGreater(len(data), mib // 4)
            self.assertEqual(server.metrics()["winnow_requests_cancelled_total"], 0)
            with ask(2 * system) as client:
                deadline = time.monotonic() + 60
                while not server.metrics()["winnow_requests_cancelled_total"]:
                    self.assertLess(time.monotonic(), deadline, "nobody reads, and it is not cut off")
                    time.sleep(0.05)
                slots = server.get("/slots")[1]
                self.assertFalse(any(slot["is_processing"] for slot in slots), slots)
                data = read_all(client)
            self.assertNotIn(b"[DONE]", data)
            self.assertLess(len(data), system + mib)

    def test_many_idle_connections(self):
        clients = []
        try:
            for _ in range(200):
                clients.append(socket.create_connection(("127.0.0.1", self.server.port), timeout=30))
            self.assertEqual(self.server.get("/v1/models")[0], 200)
        finally:
            for client in clients:
                client.close()

    def test_paths_reach_no_file(self):
        for path in ("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/v1/sessions/..%2f..%2fetc", "/etc/passwd"):
            status, _, body = self.server.request("GET", path)
            self.assertEqual(status, 404)
            self.assertNotIn(b"root:", body)

    def test_pages_of_other_origins(self):
        """Requests that browsers send without a preflight: a form, or a fetch whose body is text."""
        def ask(method, path, **headers):
            body = {"content": "x"} if method == "POST" else None
            return self.server.request(method, path, body, headers={"Content-Type": "text/plain", **headers})[0]
        own = f"http://127.0.0.1:{self.server.port}"
        self.assertEqual(ask("POST", "/tokenize", Origin="http://127.0.0.1:3000"), 403)
        self.assertEqual(ask("POST", "/tokenize", Origin="null"), 403)
        self.assertEqual(ask("POST", "/tokenize", Origin=own), 200)
        self.assertEqual(ask("POST", "/tokenize"), 200)
        rebound = f"evil.example:{self.server.port}"
        self.assertEqual(ask("POST", "/tokenize", Origin="http://" + rebound, Host=rebound), 403)
        self.assertEqual(ask("GET", "/v1/sessions", Host=rebound), 403)
        for host in (rebound.replace("evil.example", "host.docker.internal"), "localhost"):
            self.assertEqual(ask("GET", "/v1/sessions", Host=host), 200)
        self.assertEqual(ask("POST", "/tokenize", Host="chat.example.com"), 200, "a program, through a proxy")

    def test_slow_header_is_cut_off(self):
        with self.server.connect(timeout=40) as client:
            client.sendall(b"GET / HTTP/1.1\r\n")
            start = time.monotonic()
            answer = read_all(client)
            self.assertLess(time.monotonic() - start, 25)
        self.assertTrue(answer.startswith(b"HTTP/1.1 408"), answer[:100])


class Keys(ServerTest):
    flags = ("--api-key", "alpha,beta", "--cors", "https://a.example")

    def test_keys(self):
        self.assertEqual(self.server.get("/health")[0], 200)
        self.assertEqual(self.server.request("GET", "/")[0], 200, "the page itself holds no secret")
        self.assertEqual(self.server.get("/v1/models")[0], 401)
        self.assertEqual(self.server.get("/v1/models", headers={"Authorization": "Bearer gamma"})[0], 401)
        for headers in ({"Authorization": "Bearer alpha"}, {"X-Api-Key": "beta"}):
            self.assertEqual(self.server.get("/v1/models", headers=headers)[0], 200)

    def test_origins(self):
        _, headers, _ = self.server.request("OPTIONS", "/v1/chat/completions", headers={"Origin": "https://a.example"})
        self.assertEqual(headers["Access-Control-Allow-Origin"], "https://a.example")
        asked = "authorization,content-type,x-stainless-lang,x-stainless-runtime"  # as OpenAI's client for JavaScript
        _, headers, _ = self.server.request("OPTIONS", "/v1/chat/completions",
                                            headers={"Origin": "https://a.example", "Access-Control-Request-Headers": asked})
        self.assertEqual(headers["Access-Control-Allow-Headers"], asked)
        _, headers, _ = self.server.request("OPTIONS", "/v1/chat/completions", headers={"Origin": "https://b.example"})
        self.assertIsNone(headers["Access-Control-Allow-Origin"])


class Timeouts(unittest.TestCase):
    def test_idle_connection_is_closed(self):
        with Server("--timeout", "1") as server, server.connect() as client:
            start = time.monotonic()
            self.assertEqual(read_all(client), b"")
            self.assertLess(time.monotonic() - start, 10)


if __name__ == "__main__":
    unittest.main()
