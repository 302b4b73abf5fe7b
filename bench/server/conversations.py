"""Opens as many conversations as one server admits at once."""

import json
import select
import socket
import time

AHEAD = 4  # waiting requests
LOOKS = 5  # consecutive checks, a second apart, with the same result


class Conversation:
    """A streamed response whose tokens are read and discarded."""

    def __init__(self, port, body):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        data = json.dumps(body).encode()
        self.socket.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        self.generates = False

    def fileno(self):
        return self.socket.fileno()

    def read(self):
        data = self.socket.recv(1 << 16)
        if not data or b"\r\n0\r\n\r\n" in data or b'"error"' in data:
            raise SystemExit(f"a conversation has ended: {data[-500:]}")
        self.generates = self.generates or b"data: {" in data


def hold(server, body, seconds=3600):
    """Opens conversations until further requests only wait, and returns how many generate then, and the resident memory in
    MiB. `body(i)`: the body of the i-th request, which must generate longer than the whole measurement."""
    began, held, n_same, look = time.monotonic(), [], 0, 0.0
    try:
        while n_same < LOOKS:
            generating = sum(one.generates for one in held)
            while len(held) < generating + AHEAD:
                held.append(Conversation(server.port, body(len(held))))
            for one in select.select(held, [], [], 0.1)[0]:
                one.read()
            if time.monotonic() < look:
                continue
            look = time.monotonic() + 1
            running, waiting = (server.metric("winnow_requests_" + name) for name in ("running", "waiting"))
            # AHEAD requests wait, so no prompt is being read.
            n_same = n_same + 1 if running == generating > 0 and waiting == AHEAD else 0
            if look - began > seconds:
                raise SystemExit(f"{generating} conversations after {seconds} s, and not all")
        return generating, server.rss_mib()
    finally:
        for one in held:
            one.socket.close()
