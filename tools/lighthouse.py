"""Measure Lighthouse's accessibility score of the pages in docs/gallery; fail if one is below 100.

make lighthouse

Lighthouse reads pages only from a server, so this script serves the folder to this machine while it runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.report.chromium import require_browser  # noqa: E402

PAGES = ROOT / "docs/gallery"


class Quiet(SimpleHTTPRequestHandler):
    """A server of files that prints nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


def measure(lighthouse: str, url: str) -> tuple[float, list[str]]:
    """Return the accessibility score of a page, and the audits that it fails."""
    words = [lighthouse, url, "--quiet", "--only-categories=accessibility", "--output=json"]
    words.append("--chrome-flags=--headless=new --no-sandbox")
    environment = os.environ | {"CHROME_PATH": require_browser()}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    failed = [name for name, each in found["audits"].items() if each["score"] == 0]
    return found["categories"]["accessibility"]["score"], failed


def main() -> None:
    """Measure each page with the Lighthouse that the first argument names."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(PAGES)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    scores = []
    for path in sorted(PAGES.glob("*.html")):
        score, failed = measure(sys.argv[1], f"http://127.0.0.1:{server.server_port}/{path.name}")
        scores.append(score)
        print(path.name, f"{100 * score:.0f}", *failed, flush=True)
    sys.exit(not scores or min(scores) < 1)


if __name__ == "__main__":
    main()
