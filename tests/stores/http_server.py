"""A file server on the loopback interface that can misbehave."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


class FileServer:
    """Files by path; `ranges`, `etag`, `length`, `cut`, `status` and `redirects` decide how requests are answered."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.ranges, self.etag, self.length = True, True, True
        self.cut: int | None = None  # bytes of a body after which the connection is closed
        self.cuts = 10**9  # how many bodies are cut
        self.status: dict[str, int] = {}
        self.redirects: dict[str, str] = {}
        self.requests: list[tuple[str, str, str]] = []  # method, path with query, range
        self.sent = 0  # bytes of bodies

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        path = unquote(urlsplit(request.path).path)
        wanted = request.headers.get("Range", "")
        self.requests.append((request.command, request.path, wanted))
        if path in self.redirects:
            request.send_response(302)
            request.send_header("Location", self.redirects[path])
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        body = self.files.get(path)
        code = self.status.get(path, 200 if body is not None else 404)
        if body is None or code != 200:
            request.send_response(code)
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        if wanted and self.ranges:
            start, stop = wanted.removeprefix("bytes=").split("-")
            total, body = len(body), body[int(start) : int(stop) + 1]
            request.send_response(206)
            request.send_header("Content-Range", f"bytes {start}-{int(start) + len(body) - 1}/{total}")
        else:
            request.send_response(200)
        if self.length:
            request.send_header("Content-Length", str(len(body)))
        else:
            request.close_connection = True
        if self.etag:
            request.send_header("ETag", f'"{hash(self.files[path])}"')
        request.end_headers()
        if request.command == "GET":
            if self.cut is not None and len(body) > self.cut and self.cuts > 0:
                self.cuts -= 1
                body, request.close_connection = body[: self.cut], True
            self.sent += len(body)  # before the client has the body and looks at this number
            request.wfile.write(body)


@contextmanager
def serve_files() -> Iterator[tuple[FileServer, str]]:
    """Yield a server and its address."""
    files = FileServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            files.handle(self)

        do_HEAD = do_GET

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield files, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
