"""A small HTTP/1.1 client on asyncio, for tests that send many requests at once and misbehave on purpose."""

import asyncio
import json


class Answer:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def events(self):
        """The data of a stream's events, without [DONE]."""
        data = [event[len("data: "):] for event in self.body.decode().split("\n\n") if event.startswith("data: ")]
        return [json.loads(one) for one in data if one != "[DONE]"]


def request_bytes(method, path, body=None, headers=()):
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers]
    if data or method == "POST":
        lines.append(f"Content-Length: {len(data)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


class Client:
    """One connection, reopened if it was closed."""

    def __init__(self, port):
        self.port = port
        self.reader = self.writer = None

    async def open(self):
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)

    async def close(self, abort=False):
        if self.writer is None:
            return
        writer, self.reader, self.writer = self.writer, None, None
        if abort:
            writer.transport.abort()
        else:
            writer.close()

    async def send(self, data):
        await self.open()
        self.writer.write(data)
        await self.writer.drain()

    async def read_head(self):
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
        return int(head[0].split()[1]), headers

    async def read_chunk(self):
        """One chunk of a body in chunks; b"" at its end."""
        line = await self.reader.readline()
        if not line:
            raise EOFError("the connection ended within a body")
        size = int(line, 16)
        data = await self.reader.readexactly(size)
        await self.reader.readline()
        return data

    async def read_answer(self):
        status, headers = await self.read_head()
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while chunk := await self.read_chunk():
                body += chunk
        else:
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        if headers.get("connection") == "close":
            await self.close()
        return Answer(status, headers, body)

    async def ask(self, method, path, body=None):
        await self.send(request_bytes(method, path, body))
        return await self.read_answer()
