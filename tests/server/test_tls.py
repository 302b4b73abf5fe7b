"""HTTPS with a certificate made here."""

import pathlib
import shutil
import ssl
import subprocess
import tempfile
import unittest
import urllib.request

from harness import WINNOW, Server, read_all


@unittest.skipUnless(shutil.which("openssl"), "the openssl program makes the certificate; it is not installed")
class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="winnow-server-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                        "subjectAltName=IP:127.0.0.1", "-keyout", cls.folder / "key.pem", "-out", cls.folder / "cert.pem"],
                       check=True, capture_output=True)

    def flags(self):
        return "--ssl-key-file", self.folder / "key.pem", "--ssl-cert-file", self.folder / "cert.pem"

    def test_https(self):
        with Server(*self.flags()) as server:
            self.assertTrue(server.url.startswith("https://"))
            context = ssl.create_default_context(cafile=self.folder / "cert.pem")
            with urllib.request.urlopen(server.url + "/health", context=context, timeout=30) as answer:
                self.assertEqual(answer.read(), b'{"status":"ok"}')
            # Plain HTTP on the TLS port is closed, and the server goes on.
            with server.connect() as client:
                client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                self.assertNotIn(b"200 OK", read_all(client))
            with urllib.request.urlopen(server.url + "/health", context=context, timeout=30) as answer:
                self.assertEqual(answer.status, 200)

    def test_close_notify_is_sent(self):
        """The server sends close_notify: without it, the response could have been truncated."""
        with Server(*self.flags()) as server:
            context = ssl.create_default_context(cafile=self.folder / "cert.pem")
            with server.connect() as raw, context.wrap_socket(raw, server_hostname="127.0.0.1", suppress_ragged_eofs=False) as client:
                client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                self.assertIn(b"200 OK", read_all(client))

    def test_files_that_are_no_keys(self):
        (self.folder / "bad.pem").write_text("nonsense")
        done = subprocess.run([WINNOW, "serve", "--port", "0", "--ssl-key-file", self.folder / "bad.pem", "--ssl-cert-file",
                               self.folder / "cert.pem"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--ssl-key-file", done.stderr)


if __name__ == "__main__":
    unittest.main()
