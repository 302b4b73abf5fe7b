"""Sends thousands of requests of all kinds, many at once. Each well-formed request must get the same answer as alone,
whatever others do (cancel, disconnect, send nonsense). At the end the server must hold no bytes and have no errors in its log.
Every other round runs under a --memory-limit for a few sequences: requests wait for memory, or get 429 and are repeated, and
idle sessions go to their files and return. Every other round is --deterministic; in the rest, rounding may move a token that was
drawn at random, so only greedy answers are compared. In builds with grammars, some requests ask for answers of a given form.

    soak.py WINNOW MODEL [--requests N] [--seconds S] [--seed N] [--clients N]
"""

import argparse
import asyncio
import collections
import contextlib
import json
import os
import random
import re
import sys
import tempfile
import time

from http_client import Client, request_bytes
from soak_prefixes import converse, drop_all, keep_all, make_cases
from soak_requests import (MARKER, TEMPLATE, Failure, expect, kv_choices, make_bodies, make_documents, make_formed_bodies, make_text,
                           model_with_marker, said, said_in_stream)
from soak_state import bytes_left, metrics, n_idle, resident_mib

REPORTS = re.compile(r"Sanitizer|runtime error:|WINNOW_CHECK|check failed", re.IGNORECASE)
MAX_S = 300          # of the requests of one kind
MAX_WAITING = 3      # --max-waiting of rounds under a limit
MAX_SHARED = 5       # factor on the limits of /health, because clients and, in CI, other tests use the cores
MAX_OTHER_MIB = 32   # growth of the process beyond what --memory-limit counts: requests, answers, the allocator


class Soak:
    def __init__(self, port, seed, expected, asked, cases, limited, deterministic):
        self.port = port
        self.rng = random.Random(seed)
        self.expected = expected  # [(path, body, answer)]
        self.asked = asked        # [(session, question, answer)]
        self.cases = cases        # of soak_prefixes
        self.slots = asyncio.Queue()
        for slot in range(N_PARALLEL):
            self.slots.put_nowait(slot)
        self.limited = limited    # whether there is a --memory-limit
        self.deterministic = deterministic
        self.counts = collections.Counter()
        self.left = 0
        self.until = 0.0
        self.n_sessions = 0
        self.failures = []

    async def ask(self, client, path, body):
        """Comes again where the queue or the memory is full, each time after a longer wait."""
        for attempt in range(2000):
            answer = await client.ask("POST", path, body)
            if answer.status != 429:
                return answer
            self.see_full(answer)
            await asyncio.sleep(self.rng.random() * min(0.4, 0.03 * 1.4**min(attempt, 20)))
        raise Failure(f"{path}: 429 all the time")

    def check_text(self, what, body, found, right):
        if self.deterministic or body["temperature"] == 0:
            self.counts["answers compared"] += 1
            expect(found == right, what, json.dumps(body), "said", found, "alone", right)

    def see_full(self, answer):
        expect(self.limited, "429 without a limit", answer.body)
        expect(answer.json["error"]["code"] == "queue_full" and int(answer.headers["retry-after"]) > 0, answer.headers, answer.body)
        self.counts["answers 429"] += 1

    async def answer(self, client):
        path, body, right = self.rng.choice(self.expected)
        if self.rng.random() < 0.4:
            answer = await self.ask(client, path, {**body, "stream": True})
            expect(answer.status == 200, path, body, answer.status, answer.body)
            found = said_in_stream(path, answer, len(right))
        else:
            answer = await self.ask(client, path, body)
            expect(answer.status == 200, path, body, answer.status, answer.body)
            found = said(path, answer)
        self.check_text(path, body, found, right)

    async def cancel(self, client):
        """Asks for a stream and goes away: at once, or after some of it."""
        path, body, _ = self.rng.choice(self.expected)
        await client.send(request_bytes("POST", path, {**body, "stream": True, "max_tokens": 60, "ignore_eos": True}))
        for _ in range(self.rng.choice([0, 0, 1, 2, 6])):
            if self.counts["cancel"] % 2 == 0:
                await asyncio.sleep(self.rng.random() * 0.02)
            else:
                with contextlib.suppress(TimeoutError):  # the answer may be complete already
                    if not await asyncio.wait_for(client.reader.read(300), 0.5):
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
        else:  # may still be valid
            wrong = bytearray(whole)
            for _ in range(self.rng.randrange(1, 4)):
                wrong[self.rng.randrange(len(wrong))] = self.rng.randrange(256)
            answer = await client.ask("POST", path, bytes(wrong))
            return expect(answer.status in (200, 400, 429), path, bytes(wrong), answer.status, answer.body)
        answer = await client.ask("POST", path, wrong)
        expect(answer.status == 400, path, wrong, answer.status, answer.body)
        expect(answer.json["error"]["message"], answer.body)

    async def session(self, client):
        document, question, right = self.rng.choice(self.asked)
        self.n_sessions += 1
        name, file = f"s{self.n_sessions}", f"f{self.n_sessions}"
        made = await self.ask(client, "/v1/sessions", {"id": name, **document})
        expect(made.status == 200, document, made.status, made.body)
        if self.rng.random() < 0.4:
            for action, of in (("save", name), ("restore", f"{name}r")):
                done = await self.ask(client, f"/v1/sessions/{of}/{action}", {"name": file})
                expect(done.status == 200, action, done.status, done.body)
        else:
            done = await self.ask(client, f"/v1/sessions/{name}/fork", {"id": f"{name}r"})
            expect(done.status == 200, "fork", done.status, done.body)
        if self.rng.random() < 0.2:  # another client asks and disconnects
            other = Client(self.port)
            await other.send(request_bytes("POST", "/v1/chat/completions", {**question, "session": name, "stream": True, "max_tokens": 40}))
            await other.close(abort=True)
        answer = await self.ask(client, "/v1/chat/completions", {**question, "session": f"{name}r"})
        expect(answer.status == 200, question, answer.status, answer.body)
        found = said("/v1/chat/completions", answer)
        self.check_text(document, question, found, right)
        await client.ask("GET", f"/v1/sessions/{name}r/kept?by_head=1")
        await self.delete(client, name, f"{name}r", file)

    async def delete(self, client, *names):
        for one in names:
            for _ in range(500):  # busy until the cancelled answer has ended
                gone = await client.ask("DELETE", f"/v1/sessions/{one}")
                if gone.status != 409:
                    break
                await asyncio.sleep(0.01)
            expect(gone.status in (200, 404), "DELETE", one, gone.status, gone.body)

    async def prefix(self, client, case=None):
        slot = await self.slots.get()
        try:
            await converse(self, client, case or self.rng.choice(self.cases), slot)
        finally:
            self.slots.put_nowait(slot)

    async def look(self, client):
        path = self.rng.choice(["/health", "/metrics", "/slots", "/props", "/v1/models", "/v1/methods", "/v1/sessions", "/"])
        answer = await client.ask("GET", path)
        expect(answer.status == 200, path, answer.status, answer.body)

    async def pipelined(self, client):
        bodies = [self.rng.choice(self.expected) for _ in range(3)]
        await client.send(b"".join(request_bytes("POST", path, body) for path, body, _ in bodies))
        for path, body, right in bodies:
            answer = await client.read_answer()
            if answer.status == 429:
                self.see_full(answer)
                continue
            expect(answer.status == 200, path, body, answer.status, answer.body)
            self.check_text(path, body, said(path, answer), right)

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

    async def evict(self, client):
        """Idle sessions until the memory is full: the oldest goes to its file, and answers as before."""
        document, question, right = max(self.asked, key=lambda one: len(one[0]["document"]))
        names = []
        while len(names) < 64 and not self.counts["sessions evicted"]:
            names.append(f"idle-{len(names)}")
            made = await client.ask("POST", "/v1/sessions", {"id": names[-1], **document})
            expect(made.status == 200, made.status, made.body)
            first = (await client.ask("GET", f"/v1/sessions/{names[0]}")).json
            self.counts["sessions evicted"] += first["on_disk"]
        expect(self.counts["sessions evicted"], f"{len(names)} idle sessions, and all in memory")
        answer = await client.ask("POST", "/v1/chat/completions", {**question, "session": names[0]})
        expect(answer.status == 200 and said("/v1/chat/completions", answer) == right, answer.status, answer.body)
        await self.delete(client, *names)

    async def crowd(self, clients):
        """All at once, long: some wait for bytes though places are free, and what the queue does not take gets 429."""
        body = {"prompt": make_text(self.rng, 90), "max_tokens": 150, "ignore_eos": True, "temperature": 0}
        others = [Client(self.port) for _ in range(clients)]
        asked = [asyncio.create_task(self.ask(other, "/v1/completions", body)) for other in others]
        looker = Client(self.port)
        while not all(task.done() for task in asked):
            values = await metrics(looker)
            self.counts["looks that saw requests wait for bytes"] += 0 < values["winnow_requests_running"] < N_PARALLEL and values["winnow_requests_waiting"] > 0
            await asyncio.sleep(0.001)
        texts = {said("/v1/completions", task.result())[0] for task in asked}
        expect(len(texts) == 1, texts)
        expect(self.counts["answers 429"], "nobody was told to come again")
        expect(self.counts["looks that saw requests wait for bytes"], "nobody waited for bytes")
        for client in (*others, looker):
            await client.close()

    KINDS = {"answer": 50, "cancel": 12, "part": 4, "malformed": 10, "session": 6, "prefix": 6, "look": 6, "pipelined": 3, "elsewhere": 3,
             "garbage": 2}

    async def run_client(self):
        client = Client(self.port)
        while self.left > 0 and time.monotonic() < self.until and len(self.failures) < 5:
            self.left -= 1
            kind = self.rng.choices(list(self.KINDS), list(self.KINDS.values()))[0]
            try:
                await asyncio.wait_for(getattr(self, kind)(client), MAX_S)
            except Failure as failure:
                self.failures.append(f"{kind}: {failure}")
                await client.close()
            except TimeoutError:
                self.failures.append(f"{kind}: no end after {MAX_S} s")
                await client.close()
            except (OSError, EOFError) as problem:
                if kind not in ("garbage", "cancel", "part"):  # the server may close first
                    self.failures.append(f"{kind}: {type(problem).__name__} {problem}")
                await client.close()
            self.counts[kind] += 1
        await client.close()

    async def run(self, requests, seconds, clients):
        self.left, self.until = requests, time.monotonic() + seconds
        if self.limited:
            client = Client(self.port)
            await self.evict(client)
            await client.close()
            await self.crowd(max(clients, 12))
        client = Client(self.port)
        await keep_all(self, client)
        for case in self.cases:
            await self.prefix(client, case)
        await client.close()  # the server may have closed it after a long idle time
        await asyncio.gather(*(self.run_client() for _ in range(clients)))
        if not self.failures:
            await drop_all(self, client, lambda: n_idle(client))
            await client.close()


async def alone(port, rng, n_bodies, n_documents):
    """What a server says that has nothing else to do, and the bytes that took."""
    client = Client(port)
    choices = kv_choices((await client.ask("GET", "/v1/methods")).json["data"])
    expected, asked = [], []
    grammar = await client.ask("POST", "/completion", {"prompt": "a", "n_predict": 1, "grammar": 'root ::= "b"'})
    expect(grammar.status == 200 or b"WINNOW_GRAMMAR=ON" in grammar.body, grammar.status, grammar.body)
    marker = (await client.ask("POST", "/tokenize", {"content": MARKER})).json["tokens"]
    expect(len(marker) == 1, marker)
    formed = make_formed_bodies(rng, choices, marker[0], grammar.status == 200)
    for path, body in make_bodies(rng, max(n_bodies, len(choices)), choices) + formed:
        answer = await client.ask("POST", path, body)
        expect(answer.status == 200, path, body, answer.status, answer.body)
        expected.append((path, body, said(path, answer)))
    for document, question in make_documents(rng, n_documents, choices):
        made = await client.ask("POST", "/v1/sessions", {"id": "alone", **document})
        expect(made.status == 200, document, made.status, made.body)
        answer = await client.ask("POST", "/v1/chat/completions", {**question, "session": "alone"})
        expect(answer.status == 200, question, answer.status, answer.body)
        asked.append((document, question, said("/v1/chat/completions", answer)))
        await client.ask("DELETE", "/v1/sessions/alone")
    cases = await make_cases(client, rng, max(6, n_documents), choices)
    values = await metrics(client)
    await client.close()
    return expected, asked, cases, values


N_PARALLEL = 6


def run_round(model, limit, deterministic, requests, seconds, clients, seed, known, times):
    """Runs one server from start to end and returns the counts. Appends the times of /health to `times`."""
    import health
    from harness import SANITIZED, Server
    with tempfile.TemporaryDirectory(prefix="winnow-soak-") as folder:
        limits = ("--memory-limit", limit, "--max-waiting", MAX_WAITING) if limit else ()
        server = Server(*flags_for(model, deterministic), "--session-path", folder, *limits)
        work = Soak(server.port, seed, *known, bool(limit), deterministic)
        before, grown, left, looks = resident_mib(server.process.pid, "VmRSS"), 0, {}, health.Watch(server.port, 0.02, new_connections=True)
        looks.start()
        try:
            asyncio.run(work.run(requests, seconds, clients))
            grown = resident_mib(server.process.pid, "VmHWM") - before
            left = asyncio.run(bytes_left(server.port))
        except (OSError, EOFError, AttributeError) as problem:  # the server ended: its log, below, says why
            work.failures.append(repr(problem))
        finally:
            problem = looks.stop()
            code = server.stop()
        times += looks.times
        if problem or not health.is_in_time(looks.times, 1 if SANITIZED else MAX_SHARED):
            work.failures.append(f"{health.describe(looks.times)}; {problem}")
        if code != 0:
            work.failures.append(f"exit code {code}: {server.log[-6000:]}")
        print(f"  {'limit of %d bytes' % limit if limit else 'no limit'}: bytes and requests left {left}; {grown:.0f} MiB more resident "
              f"at most; {health.describe(looks.times)}; exit code {code}", flush=True)
        if work.failures:
            raise Failure("\n".join(work.failures))
        expect(not REPORTS.search(server.log), server.log[-6000:])
        expect(not any(left.values()), left)
        if limit and not SANITIZED:  # sanitizers keep freed memory
            expect(grown < limit / (1 << 20) + MAX_OTHER_MIB, f"{grown:.0f} MiB more resident, with --memory-limit {limit}")
        return work.counts


def flags_for(model, deterministic):
    flags = ("-m", model, "-c", 512, "-t", 2, "-np", N_PARALLEL, "--metrics", "--no-cache-prompt", "--chat-template", TEMPLATE)
    return (*flags, "--deterministic") if deterministic else flags


def soak(model, *args, **more):
    """Runs all rounds and returns the number of requests. Raises Failure."""
    with model_with_marker(model) as file:
        return run_rounds(file, *args, **more)


def run_rounds(model, requests, seconds, seed, clients, n_bodies=120):
    import health
    from harness import SANITIZED, Server
    with Server(*flags_for(model, deterministic=True)) as server:
        *known, took = asyncio.run(alone(server.port, random.Random(seed), n_bodies, max(4, n_bodies // 10)))
    limit = int(took["winnow_fixed_bytes"] + 4 * took["winnow_max_sequence_bytes"])
    times = []
    counts, start, n_rounds = collections.Counter(), time.monotonic(), 2 if requests < 10000 else 10
    kinds = Soak.KINDS
    for number in range(n_rounds):
        left_s = seconds - (time.monotonic() - start)
        if left_s <= 0:
            break
        share = (requests - sum(counts[kind] for kind in kinds)) // (n_rounds - number)
        counts += run_round(model, limit if number % 2 else 0, number % 4 in (0, 3), share, left_s / (n_rounds - number), clients, seed + number,
                            known, times)
    n, s = sum(counts[kind] for kind in kinds), time.monotonic() - start
    print(f"{n} requests in {s:.0f} s, {n / s:.0f} a second, seed {seed}: "
          + ", ".join(f"{counts[kind]} {kind}" for kind in sorted(kinds)) + "; "
          + ", ".join(f"{counts[kind]} {kind}" for kind in sorted(set(counts) - set(kinds))), flush=True)
    if times:
        print(health.describe(times), flush=True)
        expect(health.is_in_time(times, 1 if SANITIZED else MAX_SHARED), health.describe(times))
    if n < requests:
        expect(seconds < NO_LIMIT, f"only {n} of {requests} requests ran")
        print(f"--seconds {seconds:.0f} ended it after {n} of {requests} requests", flush=True)
    return n


NO_LIMIT = float("inf")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("winnow")
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=100000)
    parser.add_argument("--seconds", type=float, default=0, help="ends it earlier; 0: all requests run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=12)
    asked = parser.parse_args()
    os.environ["WINNOW"] = asked.winnow
    try:
        soak(asked.model, asked.requests, asked.seconds or NO_LIMIT, asked.seed, asked.clients)
    except Failure as failure:
        sys.exit(f"soak: {failure}")


if __name__ == "__main__":
    main()
