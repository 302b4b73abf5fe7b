"""Prompts of soak.py whose beginning the server has already: in memory, in a file, or at the end of an earlier answer.

A case is a stored text and two turns. The first prompt is the text and a question; the second is the first, its answer and
another question, as a client sends a conversation. Without a method, the answer does not depend on how much of the prompt was
reused. What an evicting method keeps does depend on it, so its expected answers are stored by the number of reused tokens."""

import collections

from http_client import Client, request_bytes
from soak_requests import expect, make_text

TURN = {"temperature": 0, "ignore_eos": True, "return_tokens": True, "cache_prompt": True, "reuse_across_questions": True}
MIN_TEXT = 96  # tokens; a file is only read for 64 or more


class Case:
    def __init__(self, rng, name, kv, in_file, text, questions):
        self.name, self.kv, self.in_file, self.text, self.questions = name, kv, in_file, text, questions
        self.n_predict = rng.choice([3, 8, 20])
        self.right = collections.defaultdict(set)  # by (prompt, reused tokens; None: any number): (kind of reuse, text)

    @property
    def has_method(self):
        return bool(self.kv)

    @property
    def file(self):
        return f"{self.name}-file" if self.in_file else self.name

    def first(self, **more):
        return {**TURN, **self.kv, "n_predict": self.n_predict, "prompt": self.text + self.questions[0], **more}

    def second(self, answer, **more):
        return self.first(**more) | {"prompt": self.text + self.questions[0] + answer.json["tokens"] + self.questions[1]}

    def key(self, body, answer):
        return str(body["prompt"]), answer.json["timings"]["cache_n"] if self.has_method else None

    def learn(self, body, answer):
        expect(answer.status == 200, body, answer.status, answer.body)
        self.right[self.key(body, answer)].add((answer.json["kv"]["prefix"] if self.has_method else None, answer.json["content"]))
        return answer

    def check(self, body, answer):
        """Checks the answer and returns the number of reused tokens."""
        expect(answer.status == 200, body, answer.status, answer.body)
        found, how = answer.json["timings"]["cache_n"], answer.json["kv"]["prefix"]
        expect(self.has_method or how == ("exact" if found else "none"), body, "found", found, how)
        right = self.right.get(self.key(body, answer))
        expect(right and (how if self.has_method else None, answer.json["content"]) in right,
               self.kv, body, "found", found, how, "said", answer.json["content"], "alone", right)
        return found


async def make_cases(client, rng, n, choices):
    """Records the answers of an idle server for each beginning that it can reuse."""
    evicting = [{"kv_method": "streaming", "kv_size": 48}, {"kv_method": "snapkv", "kv_decode": "h2o", "kv_size": 48}]
    evicting += [kv for kv in choices if "kv_size" in kv]
    cases = []
    for number in range(n):
        kv = {} if number % 3 == 0 else evicting[number // 3 * 2 + number % 3 - 1] if number < 6 else rng.choice(evicting)
        case = Case(rng, f"text-{number}", kv, number % 2 == 1, await tokens_in(client, make_text(rng, 60), True),
                    [await tokens_in(client, " " + make_text(rng, 4)) for _ in range(2)])
        expect(len(case.text) >= MIN_TEXT, len(case.text))
        cases.append(case)
        read_anew = case.learn(case.first(), await ask(client, case.first()))  # leaves an idle session
        await learn_second(client, case, read_anew)
        await keep(client.ask, case)
        went_on = case.learn(case.first(), await ask(client, case.first()))
        expect(case.has_method or went_on.json["timings"]["cache_n"] >= len(case.text), went_on.body)
        await learn_second(client, case, went_on)
        await learn_second(client, case, read_anew)
        await client.ask("DELETE", f"/v1/sessions/{case.name}")
        expect(case.has_method or all(len(right) == 1 for right in case.right.values()), "not exact:", case.right)
    return cases


async def learn_second(client, case, first):
    """From the end of the answer, where that is still there; from the text, where it is kept; from nothing."""
    for more in ({}, {}, {"cache_prompt": False}):
        body = case.second(first, id_slot=0, **more)
        case.learn(body, await ask(client, body))
        await erase(client, 0)


async def tokens_in(client, text, begins=False):
    return (await client.ask("POST", "/tokenize", {"content": text, "add_special": begins})).json["tokens"]


async def ask(client, body):
    return await client.ask("POST", "/completion", body)


async def erase(client, slot):
    gone = await client.ask("POST", f"/slots/{slot}?action=erase", {})
    expect(gone.status == 200, gone.status, gone.body)


async def keep(ask_for, case):
    """`ask_for`: Client.ask, or what comes again where that is told to."""
    made = await ask_for("POST", "/v1/sessions", {"id": case.name, "prompt": case.text, **case.kv})
    expect(made.status == 200 and made.json["n_tokens"] == len(case.text), made.status, made.body)


async def keep_all(soak, client):
    """Each text in memory, or in a file alone."""
    async def ask_for(_, path, body):
        return await soak.ask(client, path, body)
    for case in soak.cases:
        await keep(ask_for, case)
        if case.in_file:
            saved = await soak.ask(client, f"/v1/sessions/{case.name}/save", {"name": case.file})
            expect(saved.status == 200, saved.status, saved.body)
            await soak.delete(client, case.name)


async def converse(soak, client, case, slot):
    """Two turns. Without a memory limit the text is always reused; with one it may have been dropped, or its file may be busy."""
    if soak.rng.random() < 0.2 and not case.has_method:  # another client asks the same and disconnects; later requests can reuse its tokens
        other = Client(soak.port)
        await other.send(request_bytes("POST", "/completion", case.first(stream=True)))
        await other.close(abort=True)
    first = await soak.ask(client, "/completion", case.first())
    found = case.check(case.first(), first)
    expect(soak.limited or found >= len(case.text), case.kv, "found", found, "of", len(case.text))
    if found >= len(case.text):
        soak.counts["prompts that went on from a " + ("compressed text" if case.has_method else "text") + (" of a file" if case.in_file else "")] += 1
    body = case.second(first, id_slot=slot)
    found = case.check(body, await soak.ask(client, "/completion", body))
    expect(soak.limited or found >= len(case.text), case.kv, "found", found, "of", len(body["prompt"]))
    soak.counts["prompts that went on from an answer"] += found > len(case.first()["prompt"])
    await erase(client, slot)


async def drop_all(soak, client, n_idle):
    """Ends that are kept have no name: what goes on from one in a slot takes it, and is deleted. `n_idle`: how many there are."""
    await soak.delete(client, *(name for case in soak.cases for name in {case.name, case.file}))
    for case in soak.cases:
        for _ in range(64):
            if not await n_idle():
                return
            first = await soak.ask(client, "/completion", case.first(id_slot=0))
            found = case.check(case.first(), first)
            await erase(client, 0)
            body = case.second(first, id_slot=0)
            found += case.check(body, await soak.ask(client, "/completion", body))
            await erase(client, 0)
            if not found:
                break
