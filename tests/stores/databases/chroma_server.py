"""A real Chroma server, from the chromadb package."""

from __future__ import annotations

import math
import shutil
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.services import STARTUP_SECONDS, lack


@contextmanager
def serving(folder: Any, port: int = 0) -> Iterator[str]:
    """Start a server for a folder on the loopback interface, and return its address."""
    program = shutil.which("chroma", path=str(Path(sys.executable).parent)) or shutil.which("chroma")
    if program is None:
        lack("the program chroma is not installed")
    if not port:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
    said = [program, "run", "--path", str(folder), "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(said, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + STARTUP_SECONDS
        while server.poll() is None and time.monotonic() < until:
            with socket.socket() as door:
                if door.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        else:
            pytest.fail("Chroma's server does not start")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


@contextmanager
def guarding(url: str, login: str, status: int, answers: float = math.inf) -> Iterator[str]:
    """Return the address of a proxy with a password, which Chroma lacks.

    It answers `status` to requests without the login, and to all requests after this many `answers`.
    """
    left = [answers]
    wanted = "Basic " + b64encode(login.encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            left[0] -= 1
            if self.headers.get("Authorization") != wanted or left[0] < 0:
                return self._send(status, "text/html", b"<h1>Authorization required</h1>")
            kind = self.headers.get("Content-Type") or "application/json"
            request = Request(url + self.path, body or None, {"Content-Type": kind}, method=self.command)
            try:
                with urlopen(request) as reply:
                    return self._send(reply.status, reply.headers["Content-Type"], reply.read())
            except HTTPError as error:
                return self._send(error.code, "application/json", error.read())

        def _send(self, code: int, kind: str, content: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind or "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = _answer

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
