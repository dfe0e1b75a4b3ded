"""The part of Qdrant's REST API that isoscope uses, over real HTTP, backed by Qdrant's local mode."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any


class Url(str):
    """The address of the server, and the number of upcoming requests that fail."""

    failures = 0


@contextmanager
def serving(client: Any, key: str = "") -> Iterator[Url]:
    """Serve the client's collections on the loopback interface."""
    url: Url
    lock = Lock()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
            if key and self.headers.get("api-key") != key:
                return self._say(401, {"status": {"error": "Must provide an API key"}})
            with lock:
                if url.failures:
                    url.failures -= 1
                    self.close_connection = True
                    return self.connection.close()
                found = answer(client, self.command, self.path.partition("?")[0].split("/")[1:], body)
            return self._say(404 if found is None else 200, {"result": found, "status": "ok", "time": 0.0})

        def _say(self, status: int, said: Any) -> None:
            text = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    url = Url(f"http://127.0.0.1:{server.server_port}")
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield url
    finally:
        server.shutdown()
        server.server_close()


def answer(client: Any, verb: str, path: list[str], body: Any) -> Any:
    """Return the result of the client's own method, or None if the collection does not exist."""
    from qdrant_client import models

    plain = lambda found: json.loads(found.model_dump_json())  # noqa: E731
    if path == ["collections"]:
        return plain(client.get_collections())
    name, rest = path[1], path[2:]
    if rest == ["exists"]:
        return {"exists": client.collection_exists(name)}
    if verb == "PUT" and not rest:
        asked = models.CreateCollection(**body)
        return client.create_collection(name, vectors_config=asked.vectors, metadata=asked.metadata)
    if not client.collection_exists(name):
        return None
    if not rest:
        if verb == "DELETE":
            return client.delete_collection(name)
        return client.update_collection(name, metadata=body["metadata"]) if body else plain(client.get_collection(name))
    if rest == ["points", "count"]:
        return plain(client.count(name, count_filter=models.CountRequest(**body).filter))
    if rest == ["points", "scroll"]:
        asked = models.ScrollRequest(**body)
        records, following = client.scroll(
            name,
            scroll_filter=asked.filter,
            limit=asked.limit,
            offset=asked.offset,
            with_payload=asked.with_payload,
            with_vectors=asked.with_vector,
        )
        return {"points": [plain(each) for each in records], "next_page_offset": following}
    if rest == ["points"] and verb == "POST":
        asked = models.PointRequest(**body)
        found = client.retrieve(
            name, ids=asked.ids, with_payload=asked.with_payload, with_vectors=asked.with_vector or False
        )
        return [plain(each) for each in reversed(found)]
    if rest == ["points"] and verb == "PUT":
        points = models.PointsBatch(**body).batch
        return plain(client.upsert(name, points=points))
    return None
