"""The requests that the page sends."""

import time

from harness import ServerTest


class Files(ServerTest):
    def test_headers_and_revalidation(self):
        for path in ("/", "/page/app.js", "/page/base.css", "/page/icon.svg", "/page/example.txt"):
            with self.subTest(path):
                status, headers, body = self.server.request("GET", path)
                self.assertEqual(status, 200)
                self.assertGreater(len(body), 50)
                self.assertNotIn("unsafe", headers["content-security-policy"])
                self.assertEqual(headers["x-content-type-options"], "nosniff")
                again = self.server.request("GET", path, headers={"if-none-match": headers["etag"]})
                self.assertEqual((again[0], again[2]), (304, b""))
                self.assertEqual(self.server.request("GET", path, headers={"if-none-match": '"other"'})[0], 200)
        self.assertEqual(self.server.request("GET", "/page/none.js")[0], 404)

    def test_methods_are_listed(self):
        status, methods = self.server.get("/v1/methods")
        self.assertEqual(status, 200)
        by_name = {method["id"]: method for method in methods["data"]}
        self.assertIn("full", by_name)
        self.assertTrue(by_name["snapkv"]["needs_budget"])
        self.assertFalse(by_name["twilight"]["needs_budget"])
        self.assertTrue(by_name["h2o"]["summary"])

    def test_a_character_of_several_tokens_is_shown_once(self):
        text = "a \U0001f600 b \u05e9\u05dc\u05d5\u05dd"
        self.server.post("/v1/sessions", {"id": "emoji", "prompt": text})
        _, kept = self.server.get("/v1/sessions/emoji/kept")
        self.assertIn(text, "".join(kept["texts"]))
        self.assertEqual(len(kept["texts"]), len(kept["tokens"]))

    def test_who_goes_away_ends_the_reading(self):
        text = "The harbour lay quiet. " * 500
        reads = lambda: any(slot["is_processing"] for slot in self.server.get("/slots")[1])
        with self.server.connect() as client:
            body = ('{"id": "left", "stream": true, "kv_method": "winnow", "kv_ratio": 0.5, "document": "' + text + '"}').encode()
            client.sendall(b"POST /v1/sessions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            data = b""
            while b"prompt_progress" not in data:
                part = client.recv(4096)
                self.assertTrue(part, data)
                data += part
            self.assertNotIn(b"error", data)
            end = time.monotonic() + 5
            while not reads():  # /slots shows the state after the last round
                self.assertLess(time.monotonic(), end)
                time.sleep(0.02)
        end = time.monotonic() + 60
        while reads() and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(self.server.get("/v1/sessions/left")[0], 404)
