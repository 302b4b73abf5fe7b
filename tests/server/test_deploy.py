"""The files of deploy/ and the examples of docs/server.md, checked by the programs that read them."""

import collections
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest
import urllib.request

from harness import ROOT, SANITIZED, WINNOW, Server
from test_docs import blocks

ALWAYS_THERE = {"libc6", "libgcc-s1"}  # in every Debian image, because apt links with them


def needs(program, package):
    return unittest.skipUnless(shutil.which(program), f"{program} is not installed (apt-get install {package})")


def run(*command, text=None):
    return subprocess.run(list(map(str, command)), input=text, capture_output=True, text=True, timeout=60, check=False)


def wait_for(found, log, timeout=120):
    """Returns the first true value of `found()`."""
    end = time.monotonic() + timeout
    while not (value := found()):
        if time.monotonic() > end:
            raise AssertionError(log.read_text())
        time.sleep(0.1)
    return value


def ask(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)


def run_image():
    """The part of the Dockerfile that makes the final image."""
    return (ROOT / "deploy/Containerfile").read_text(encoding="utf-8").split("\nFROM ")[-1].replace("\\\n", " ")


class Container(unittest.TestCase):
    @needs("readelf", "binutils")
    @needs("ldd", "libc-bin")
    @needs("dpkg", "dpkg")
    @unittest.skipIf(SANITIZED, "sanitizers bring libraries of their own")
    def test_libraries_of_the_binary_are_installed(self):
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", WINNOW).stdout))
        self.assertIn("libstdc++.so.6", needed)
        paths = dict(re.findall(r"(\S+) => (/\S+)", run("ldd", WINNOW).stdout))
        packages = {}
        for name in needed - {"ld-linux-x86-64.so.2"}:
            path = paths[name]
            found = run("dpkg", "-S", path).stdout or run("dpkg", "-S", path.removeprefix("/usr")).stdout \
                or run("dpkg", "-S", pathlib.Path(path).resolve()).stdout
            if not found:
                self.skipTest(f"{path} belongs to no package of this system")
            packages[found.split(":")[0]] = name
        installed = set(re.search(r"apt-get install -y --no-install-recommends ([^&]*)&&", run_image()).group(1).split())
        self.assertLessEqual(set(packages) - ALWAYS_THERE, installed, packages)

    def test_what_git_ignores_stays_outside(self):
        def patterns(file):
            lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
            return {line.removeprefix("**/").strip("/") for line in lines if line and not line.startswith("#")}
        self.assertEqual(patterns(".dockerignore"), patterns(".gitignore"))


class Systemd(unittest.TestCase):
    UNITS = {"winnow.service": "winnow.service", "winnow@.service": "winnow@8081.service"}  # an instance, as it is started

    def settings(self, file, started_as):
        """Returns {name: values}, as systemd reads them."""
        settings = collections.defaultdict(list)
        instance = started_as.partition("@")[2].removesuffix(".service")
        for line in (ROOT / "deploy" / file).read_text(encoding="utf-8").splitlines():
            if "=" in line and not line.startswith("#"):
                name, _, value = line.replace("%i", instance).partition("=")
                settings[name] += value.split() if name == "Environment" else [value]
        return settings

    @needs("systemd-analyze", "systemd")
    def test_units(self):
        for file, started_as in self.UNITS.items():
            with self.subTest(file), tempfile.TemporaryDirectory(prefix="winnow-server-") as folder:
                unit = pathlib.Path(folder) / started_as
                unit.write_text((ROOT / "deploy" / file).read_text(encoding="utf-8").replace("/usr/local/bin/winnow", WINNOW))
                done = run("systemd-analyze", "verify", unit)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertNotIn(started_as, done.stderr)

    def test_one_of_several_is_as_a_single_one(self):
        one, several = (self.settings(*unit) for unit in self.UNITS.items())
        ports = [set(unit.pop("Environment")) for unit in (one, several)]
        self.assertEqual(ports[0] ^ ports[1], {"LLAMA_ARG_PORT=8080", "LLAMA_ARG_PORT=8081"})
        self.assertNotEqual(one.pop("Description"), several.pop("Description"))
        self.assertEqual(one, several)

    def test_the_server_understands_them(self):
        for unit in self.UNITS.items():
            with self.subTest(unit), tempfile.TemporaryDirectory(prefix="winnow-server-") as folder:
                settings = self.settings(*unit)
                env = dict(variable.split("=") for variable in settings["Environment"])
                env = {name: value.replace("/var/lib/winnow", folder) for name, value in env.items()}
                flags = settings["ExecStart"][0].removeprefix("/usr/local/bin/winnow serve").split()
                with Server(*flags, env=env) as server:
                    self.assertEqual(server.metrics()["winnow_memory_limit_bytes"], 4 << 30)
                    self.assertTrue((pathlib.Path(folder) / "sessions").is_dir())


class Haproxy(unittest.TestCase):
    @needs("haproxy", "haproxy")
    def test_configuration(self):
        done = run("haproxy", "-c", "-f", ROOT / "deploy/haproxy.cfg")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("WARNING", done.stdout + done.stderr)


class Prometheus(unittest.TestCase):
    @needs("promtool", "prometheus")
    def test_configuration(self):
        for block in blocks("yaml"):
            with tempfile.TemporaryDirectory(prefix="winnow-server-") as folder:
                file = pathlib.Path(folder) / "prometheus.yml"
                file.write_text(block)
                done = run("promtool", "check", "config", file)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    @needs("promtool", "prometheus")
    def test_metrics(self):
        with Server("--metrics") as server:
            self.assertEqual(server.post("/v1/completions", {"prompt": "Once", "max_tokens": 4})[0], 200)
            page = server.request("GET", "/metrics")[2].decode()
        done = run("promtool", "check", "metrics", text=page)
        complaints = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        # The names of llama.cpp and vLLM are kept, even where they break the rules for names.
        ours = [line for line in complaints if not re.match(r"(llamacpp|vllm):\w+ ", line)]
        self.assertEqual(ours, [])
        self.assertIn(done.returncode, (0, 3), complaints)

    @needs("prometheus", "prometheus")
    def test_scrape(self):
        """Prometheus, with the configuration of docs/server.md, reads a server that requires a key."""
        with tempfile.TemporaryDirectory(prefix="winnow-server-") as name, Server("--metrics", "--api-key", "KEY") as server:
            folder = pathlib.Path(name)
            self.assertEqual(server.request("GET", "/metrics")[0], 401)
            text = blocks("yaml")[0].replace("127.0.0.1:8080", f"127.0.0.1:{server.port}")
            (folder / "prometheus.yml").write_text("global: {scrape_interval: 1s}\n" + text)
            log = folder / "log"
            with log.open("w") as out, subprocess.Popen(
                    ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
                     "--web.listen-address=127.0.0.1:0"], stdout=out, stderr=out) as prometheus:
                try:
                    wait_for(lambda: "Server is ready" in log.read_text(), log)
                    address = re.search(r'"Listening on" address=(\S+)', log.read_text())[1]
                    url = f"http://{address}/api/v1/query?query=winnow_memory_limit_bytes"
                    found = wait_for(lambda: ask(url)["data"]["result"], log)
                    self.assertEqual(found[0]["metric"]["job"], "winnow")
                    self.assertGreater(int(found[0]["value"][1]), 0)
                finally:
                    prometheus.kill()


if __name__ == "__main__":
    unittest.main()
