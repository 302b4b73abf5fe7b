"""HTTPS with a certificate made here."""

import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import unittest
import urllib.request
import warnings

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

    def test_versions(self):
        """1.2 and 1.3, also where the system's OpenSSL would allow older ones."""
        config = self.folder / "openssl.cnf"
        config.write_text("openssl_conf = all\n[all]\nssl_conf = ssl\n[ssl]\nsystem_default = old\n[old]\n"
                          "MinProtocol = TLSv1\nCipherString = DEFAULT:@SECLEVEL=0\n")
        with Server(*self.flags(), env={"OPENSSL_CONF": str(config)}) as server:
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                with server.connect() as raw, self.client(version).wrap_socket(raw) as client:
                    client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                    self.assertIn(b"200 OK", read_all(client))
                    self.assertEqual(client.version(), version.name.replace("_", "."))
            for version in (ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1):
                with self.subTest(version), server.connect() as raw:
                    old = self.client(version)
                    if not self.is_possible(old):
                        self.skipTest(f"this Python's OpenSSL has no {version.name}")
                    with self.assertRaises(ssl.SSLError) as caught:
                        old.wrap_socket(raw)
                    self.assertIn("ALERT_PROTOCOL_VERSION", str(caught.exception), "the server's answer")

    def client(self, version):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(self.folder / "cert.pem")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = context.maximum_version = version
        if version < ssl.TLSVersion.TLSv1_2:
            context.set_ciphers("DEFAULT:@SECLEVEL=0")
        return context

    def is_possible(self, client):
        """Whether a server that takes any version, here in Python, agrees with this client."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = ssl.TLSVersion.TLSv1
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        context.load_cert_chain(self.folder / "cert.pem", self.folder / "key.pem")
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        ends = [client.wrap_bio(to_client, to_server), context.wrap_bio(to_server, to_client, server_side=True)]
        for _ in range(10):
            for end in list(ends):
                try:
                    end.do_handshake()
                    ends.remove(end)
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLError:
                    return False
        return not ends

    def test_a_client_that_ends_its_side_is_answered(self):
        """All its requests are answered, and close_notify follows."""
        with Server(*self.flags()) as server:
            context = ssl.create_default_context(cafile=self.folder / "cert.pem")
            with server.connect() as raw, context.wrap_socket(raw, server_hostname="127.0.0.1", suppress_ragged_eofs=False) as client:
                client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 10)
                with socket.socket(fileno=os.dup(client.fileno())) as tcp:
                    tcp.shutdown(socket.SHUT_WR)
                self.assertEqual(read_all(client).count(b'{"status":"ok"}'), 10)

    def test_files_that_are_no_keys(self):
        (self.folder / "bad.pem").write_text("nonsense")
        done = subprocess.run([WINNOW, "serve", "--port", "0", "--ssl-key-file", self.folder / "bad.pem", "--ssl-cert-file",
                               self.folder / "cert.pem"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--ssl-key-file", done.stderr)


if __name__ == "__main__":
    unittest.main()
