"""What the command embed does."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isoscope._core.errors import InputError
from isoscope.cli.audit import InterruptibleProgressBar
from isoscope.cli.session import Interruption, command_arguments
from isoscope.embedding.embed import embed as embed_texts
from isoscope.stores.manifest import EMBEDDING_MANIFEST, read_manifest


@dataclass(frozen=True)
class Request:
    """What was asked of `isoscope embed`."""

    model: str
    texts: str
    output: Path
    layers: str | None
    options: dict[str, Any]


def embed(request: Request) -> None:
    """Embed, and say what was written."""
    layers = _parse_layers(request.layers)
    try:
        with InterruptibleProgressBar("tokens") as bar:
            embed_texts(
                request.model,
                request.texts,
                request.output,
                layers=layers,
                progress=bar,
                say=lambda words: print(words, file=sys.stderr),
                **request.options,
            )
    except KeyboardInterrupt as stop:
        kept = (
            f"what is done is kept in {request.output}"
            if (request.output / EMBEDDING_MANIFEST).exists()
            else "nothing was written"
        )
        raise Interruption(f"{kept}; go on with: {shlex.join(['isoscope', *command_arguments])}") from stop
    noted = read_manifest(request.output)
    assert noted is not None
    made = noted["settings"]["layers"]
    count = f"{len(made)} layers of {noted['rows']:,} vectors" if len(made) > 1 else f"{noted['rows']:,} vectors"
    print(f"{request.output}: {count}, {noted['settings']['dimensions']} dimensions")
    by = " --by layer" if len(made) > 1 else ""
    print(
        f"look at them: {shlex.join(['isoscope', 'audit', str(request.output)])}{by} --html report.html",
        file=sys.stderr,
    )


def _parse_layers(words: str | None) -> Any:
    """Which layers: `all`, or whole numbers with commas between them."""
    if words is None or words == "all":
        return words
    try:
        return [int(word) for word in words.split(",")]
    except ValueError:
        raise InputError(f"--layers {words}: need all, -1, or whole numbers such as 0,6,12") from None
