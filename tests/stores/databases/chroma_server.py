"""A real Chroma server, from the chromadb package."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def serving(folder: Any, port: int = 0) -> Iterator[str]:
    """The address of a server of a folder on the loopback."""
    program = shutil.which("chroma", path=str(Path(sys.executable).parent)) or shutil.which("chroma")
    if program is None:
        pytest.skip("the program chroma is not installed")
    if not port:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
    said = [program, "run", "--path", str(folder), "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(said, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while server.poll() is None:
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
