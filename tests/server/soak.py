"""Thousands of requests of all kinds, many at once: each well-formed one is answered as it is alone, whatever its
neighbours do (cancel, disconnect, send nonsense), and at the end the server holds no bytes and has nothing to report.

    soak.py WINNOW MODEL [--requests N] [--seconds S] [--seed N] [--clients N]
"""

import argparse
import asyncio
import collections
import json
import os
import random
import re
import sys
import tempfile
import time

from http_client import Client, request_bytes

WORDS = "the a red lantern hung above door of inn quiet harbour code was boat rope salt moon old gull stone".split()
METHODS = [{}, {}, {"kv_method": "streaming", "kv_size": 24}, {"kv_method": "snapkv", "kv_size": 32},
           {"kv_method": "h2o", "kv_size": 40}, {"kv_method": "tova", "kv_size": 32}, {"kv_method": "streaming", "kv_ratio": 0.5},
           {"kv_method": "snapkv", "kv_decode": "h2o", "kv_size": 48}]
REPORTS = re.compile(r"Sanitizer|runtime error:|WINNOW_CHECK|check failed", re.IGNORECASE)


class Failure(Exception):
    pass


def expect(condition, *what):
    if not condition:
        raise Failure(" ".join(str(part)[:600] for part in what))


def make_text(rng, n):
    return " ".join(rng.choice(WORDS) for _ in range(n))


def make_bodies(rng, n):
    """(path, body) of well-formed requests."""
    bodies = []
    for _ in range(n):
        text = make_text(rng, rng.choice([1, 3, 10, 30, 60, 90]))
        body = {"temperature": 0, "max_tokens": rng.choice([1, 2, 5, 12, 24]), **rng.choice(METHODS)}
        if rng.random() < 0.2:
            body["n"] = rng.choice([2, 3])
        if rng.random() < 0.2:
            body["stop"] = [rng.choice("aeiou"), "zq"]
        if rng.random() < 0.2:
            body["ignore_eos"] = True
        path = rng.choice(["/v1/completions", "/completion", "/v1/chat/completions"])
        if path == "/v1/chat/completions":
            body["messages"] = [{"role": "user", "content": text}]
            body.update(rng.choice([{}, {"logprobs": True, "top_logprobs": 3}]))
        else:
            body["prompt"] = text
        bodies.append((path, body))
    return bodies


def make_documents(rng, n):
    """(session, question): what is read once and asked."""
    return [({"document": make_text(rng, rng.choice([20, 60])), **rng.choice(METHODS)},
             {"messages": [{"role": "user", "content": make_text(rng, 4)}], "temperature": 0, "max_tokens": 6})
            for _ in range(n)]


def said(path, answer):
    """What must be the same each time: texts and why they ended, of a whole answer."""
    value = answer.json
    if path == "/completion":
        return [(one["content"], one["stop_type"]) for one in (value if isinstance(value, list) else [value])]
    if path == "/v1/completions":
        return [(choice["text"], choice["finish_reason"]) for choice in value["choices"]]
    return [(choice["message"]["content"], choice["finish_reason"]) for choice in value["choices"]]


def said_in_stream(path, answer, n):
    texts, ends = [""] * n, [None] * n
    for event in answer.events:
        expect("error" not in event, path, event)
        if path == "/completion":
            texts[event["index"]] += event["content"]
            ends[event["index"]] = event.get("stop_type") or ends[event["index"]]
        for choice in event.get("choices", []):
            texts[choice["index"]] += choice["text"] if "text" in choice else choice["delta"].get("content", "")
            ends[choice["index"]] = choice["finish_reason"] or ends[choice["index"]]
    return list(zip(texts, ends))


class Soak:
    def __init__(self, port, seed, expected, asked):
        self.port = port
        self.rng = random.Random(seed)
        self.expected = expected  # [(path, body, what is said)]
        self.asked = asked        # [(session, question, what is said)]
        self.counts = collections.Counter()
        self.left = 0
        self.until = 0.0
        self.n_sessions = 0
        self.failures = []

    async def answer(self, client):
        path, body, right = self.rng.choice(self.expected)
        if self.rng.random() < 0.4:
            answer = await client.ask("POST", path, {**body, "stream": True})
            expect(answer.status == 200, path, body, answer.status, answer.body)
            found = said_in_stream(path, answer, len(right))
        else:
            answer = await client.ask("POST", path, body)
            expect(answer.status == 200, path, body, answer.status, answer.body)
            found = said(path, answer)
        expect(found == right, path, json.dumps(body), "said", found, "alone", right)

    async def cancel(self, client):
        """Asks for a stream and goes away: at once, or after some of it."""
        path, body, _ = self.rng.choice(self.expected)
        await client.send(request_bytes("POST", path, {**body, "stream": True, "max_tokens": 60, "ignore_eos": True}))
        for _ in range(self.rng.choice([0, 0, 1, 2, 6])):
            if self.counts["cancel"] % 2 == 0:
                await asyncio.sleep(self.rng.random() * 0.02)
            elif not await client.reader.read(300):
                break
        await client.close(abort=self.rng.random() < 0.5)

    async def part(self, client):
        """A request that never comes to its end."""
        path, body, _ = self.rng.choice(self.expected)
        data = request_bytes("POST", path, body)
        await client.send(data[:self.rng.randrange(1, len(data))])
        await client.close(abort=self.rng.random() < 0.5)

    async def malformed(self, client):
        path, body, _ = self.rng.choice(self.expected)
        whole = json.dumps(body).encode()
        kind = self.rng.randrange(5)
        if kind == 0:
            wrong = whole[:self.rng.randrange(len(whole))]
        elif kind == 1:
            name = self.rng.choice(["temperature", "max_tokens", "kv_size", "kv_method", "n", "stop", "stream", "seed"])
            wrong = json.dumps({**body, name: self.rng.choice([{"a": 1}, [[1]]])}).encode()
        elif kind == 2:
            wrong = json.dumps({**body, "kv_method": "nonsense"}).encode()
        elif kind == 3:
            wrong = b"[" * self.rng.choice([1, 99, 101, 100000])
        else:  # it may still be right
            wrong = bytearray(whole)
            for _ in range(self.rng.randrange(1, 4)):
                wrong[self.rng.randrange(len(wrong))] = self.rng.randrange(256)
            answer = await client.ask("POST", path, bytes(wrong))
            return expect(answer.status in (200, 400), path, bytes(wrong), answer.status, answer.body)
        answer = await client.ask("POST", path, wrong)
        expect(answer.status == 400, path, wrong, answer.status, answer.body)
        expect(answer.json["error"]["message"], answer.body)

    async def session(self, client):
        document, question, right = self.rng.choice(self.asked)
        self.n_sessions += 1
        name, file = f"s{self.n_sessions}", f"f{self.n_sessions}"
        made = await client.ask("POST", "/v1/sessions", {"id": name, **document})
        expect(made.status == 200, document, made.status, made.body)
        if self.rng.random() < 0.4:
            for action, of in (("save", name), ("restore", f"{name}r")):
                done = await client.ask("POST", f"/v1/sessions/{of}/{action}", {"name": file})
                expect(done.status == 200, action, done.status, done.body)
        else:
            done = await client.ask("POST", f"/v1/sessions/{name}/fork", {"id": f"{name}r"})
            expect(done.status == 200, "fork", done.status, done.body)
        if self.rng.random() < 0.2:  # somebody asks and goes away
            other = Client(self.port)
            await other.send(request_bytes("POST", "/v1/chat/completions", {**question, "session": name, "stream": True, "max_tokens": 40}))
            await other.close(abort=True)
        answer = await client.ask("POST", "/v1/chat/completions", {**question, "session": f"{name}r"})
        expect(answer.status == 200, question, answer.status, answer.body)
        found = said("/v1/chat/completions", answer)
        expect(found == right, json.dumps([document, question]), "said", found, "alone", right)
        await client.ask("GET", f"/v1/sessions/{name}r/kept?by_head=1")
        for one in (name, f"{name}r", file):
            for _ in range(500):  # busy until the cancelled answer has ended
                gone = await client.ask("DELETE", f"/v1/sessions/{one}")
                if gone.status != 409:
                    break
                await asyncio.sleep(0.01)
            expect(gone.status in (200, 404), "DELETE", one, gone.status, gone.body)

    async def look(self, client):
        path = self.rng.choice(["/health", "/metrics", "/slots", "/props", "/v1/models", "/v1/methods", "/v1/sessions", "/"])
        answer = await client.ask("GET", path)
        expect(answer.status == 200, path, answer.status, answer.body)

    async def pipelined(self, client):
        bodies = [self.rng.choice(self.expected) for _ in range(3)]
        await client.send(b"".join(request_bytes("POST", path, body) for path, body, _ in bodies))
        for path, body, right in bodies:
            answer = await client.read_answer()
            expect(answer.status == 200 and said(path, answer) == right, path, body, answer.status, answer.body)

    async def elsewhere(self, client):
        method, path, status = self.rng.choice([("GET", "/nowhere", 404), ("DELETE", "/health", 404), ("POST", "/v1/embeddings", 501),
                                                ("GET", "/v1/sessions/nobody", 404), ("PUT", "/completion", 405)])
        answer = await client.ask(method, path)
        expect(answer.status == status, method, path, answer.status, answer.body)

    async def garbage(self, client):
        await client.close()
        await client.send(bytes(self.rng.randrange(256) for _ in range(self.rng.choice([1, 40, 4000]))) + b"\r\n\r\n")
        data = await client.reader.read(12)
        expect(not data or data.startswith(b"HTTP/1.1 4"), data)
        await client.close(abort=True)

    KINDS = {"answer": 50, "cancel": 12, "part": 4, "malformed": 10, "session": 6, "look": 6, "pipelined": 3, "elsewhere": 3,
             "garbage": 2}

    async def run_client(self):
        client = Client(self.port)
        while self.left > 0 and time.monotonic() < self.until and len(self.failures) < 5:
            self.left -= 1
            kind = self.rng.choices(list(self.KINDS), list(self.KINDS.values()))[0]
            try:
                await asyncio.wait_for(getattr(self, kind)(client), 300)
            except Failure as failure:
                self.failures.append(f"{kind}: {failure}")
                await client.close()
            except (OSError, EOFError, asyncio.TimeoutError) as problem:
                if kind in ("garbage", "cancel", "part"):  # the server may close first
                    await client.close()
                else:
                    self.failures.append(f"{kind}: {type(problem).__name__} {problem}")
                    await client.close()
            self.counts[kind] += 1
        await client.close()

    async def run(self, requests, seconds, clients):
        self.left, self.until = requests, time.monotonic() + seconds
        await asyncio.gather(*(self.run_client() for _ in range(clients)))


async def alone(port, rng, n_bodies, n_documents):
    """What a server says that has nothing else to do."""
    client = Client(port)
    expected, asked = [], []
    for path, body in make_bodies(rng, n_bodies):
        answer = await client.ask("POST", path, body)
        expect(answer.status == 200, path, body, answer.status, answer.body)
        expected.append((path, body, said(path, answer)))
    for document, question in make_documents(rng, n_documents):
        made = await client.ask("POST", "/v1/sessions", {"id": "alone", **document})
        expect(made.status == 200, document, made.status, made.body)
        answer = await client.ask("POST", "/v1/chat/completions", {**question, "session": "alone"})
        expect(answer.status == 200, question, answer.status, answer.body)
        asked.append((document, question, said("/v1/chat/completions", answer)))
        await client.ask("DELETE", "/v1/sessions/alone")
    await client.close()
    return expected, asked


async def bytes_left(port):
    """Reserved and live bytes once all is done. Who went away is noticed soon."""
    client = Client(port)
    for _ in range(600):
        page = (await client.ask("GET", "/metrics")).body.decode()
        values = {line.split()[0]: float(line.split()[1]) for line in page.splitlines() if line.startswith("winnow_") and "{" not in line}
        names = ("winnow_requests_running", "winnow_requests_waiting", "winnow_reserved_bytes", "winnow_live_bytes", "winnow_sessions_idle", "winnow_broken_invariants_total")
        left = {name: values[name] for name in names}
        if not any(left.values()):
            break
        await asyncio.sleep(0.05)
    await client.close()
    return left


def soak(model, requests, seconds, seed, clients, n_bodies=120):
    """Runs it all; raises Failure."""
    from harness import Server
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="winnow-soak-") as folder:
        flags = ("-m", model, "-c", 512, "-t", 2, "-np", 6, "--metrics", "--no-cache-prompt")
        with Server(*flags) as server:
            expected, asked = asyncio.run(alone(server.port, rng, n_bodies, max(4, n_bodies // 10)))
        server = Server(*flags, "--session-path", folder)
        work = Soak(server.port, seed, expected, asked)
        start = time.monotonic()
        try:
            asyncio.run(work.run(requests, seconds, clients))
            took = time.monotonic() - start
            left = asyncio.run(bytes_left(server.port)) if server.process.poll() is None else "the server ended"
        finally:
            code = server.stop()
        done = sum(work.counts.values())
        print(f"{done} requests in {took:.0f} s, seed {seed}: " + ", ".join(f"{n} {kind}" for kind, n in sorted(work.counts.items())))
        print(f"bytes and requests left: {left}; exit code {code}")
        expect(not work.failures, "\n".join(work.failures))
        expect(not REPORTS.search(server.log), server.log[-6000:])
        expect(code == 0, "exit code", code, server.log[-2000:])
        expect(not any(left.values()), left)
        return done


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("winnow")
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=100000)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=12)
    asked = parser.parse_args()
    os.environ["WINNOW"] = asked.winnow
    try:
        soak(asked.model, asked.requests, asked.seconds, asked.seed, asked.clients)
    except Failure as failure:
        sys.exit(f"soak: {failure}")


if __name__ == "__main__":
    main()
