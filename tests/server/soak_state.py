"""The state of a server under soak.py: what it reports, and its memory as the system counts it."""

import asyncio
import pathlib
import re

from http_client import Client


async def metrics(client):
    """winnow_* without labels."""
    page = (await client.ask("GET", "/metrics")).body.decode()
    return {line.split()[0]: float(line.split()[1]) for line in page.splitlines() if line.startswith("winnow_") and "{" not in line}


async def n_idle(client):
    """Sessions in memory, once nothing runs."""
    for _ in range(600):
        values = await metrics(client)
        if not values["winnow_requests_running"] + values["winnow_requests_waiting"]:
            break
        await asyncio.sleep(0.05)
    return values["winnow_sessions_idle"]


async def bytes_left(port):
    """Reserved and live bytes once all is done. Who went away is noticed soon."""
    client = Client(port)
    for _ in range(600):
        values = await metrics(client)
        names = ("winnow_requests_running", "winnow_requests_waiting", "winnow_reserved_bytes", "winnow_live_bytes", "winnow_sessions_idle",
                 "winnow_broken_invariants_total")
        left = {name: values[name] for name in names}
        if not any(left.values()):
            break
        await asyncio.sleep(0.05)
    await client.close()
    return left


def resident_mib(pid, name):
    text = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(re.search(rf"{name}:\s+(\d+) kB", text).group(1)) / 1024
