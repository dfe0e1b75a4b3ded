"""Compare the time of an extraction with a bare forward pass, and the time of an audit by layer with the extraction.

The bare pass processes the same windows, tokenized beforehand and sorted by length, in batches with the same number of
tokens, and discards the output. The extraction reads the text file and writes all layers of all tokens in float32. The
two alternate in one process in which the model is loaded. Part of `make bench`.
"""

from __future__ import annotations

import argparse
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq
import torch
from transformers import AutoModel, AutoTokenizer

import isoscope
from isoscope.embedding.transformer import TransformerEmbedder
from packaged import MISSING_MODEL, packaged_model
from pages import write_table

LEAST_SPEED, MOST_AUDIT = 0.90, 2.0
WINDOW = 512


def write_corpus(data: Path | None, most: int | None, path: Path) -> str:
    """Write the texts, one per line, and return their name: WikiText-2's validation split, or the packaged glosses.

    The glosses are repeated until they have about as many tokens.
    """
    if data is not None:
        lines = (data / "wikitext2" / "valid.txt").read_text(encoding="utf-8").split("\n")
        name = "WikiText-2, validation split"
    else:
        glosses = pq.read_table(str(files("isoscope") / "demo" / "glosses-layer6.parquet"), columns=["text"])
        lines, name = glosses["text"].to_pylist() * 10, "the packaged WordNet glosses, ten times"
    lines = [line for line in lines if line.strip()][:most]
    write_lines(path, lines)
    return name if most is None else f"{name}, {most} lines"


def write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def bare_batches(lines: list[str], tokenizer: Any, most: int) -> Iterator[dict[str, torch.Tensor]]:
    """Yield padded batches of windows of at most 512 tokens, longest windows first."""
    read = tokenizer(lines, truncation=True, max_length=WINDOW, return_overflowing_tokens=True)["input_ids"]
    windows = sorted(read, key=len)
    while windows:
        count = max(1, most // len(windows[-1]))
        batch, windows = windows[-count:], windows[:-count]
        length = len(batch[-1])
        ids = torch.full((len(batch), length), tokenizer.pad_token_id)
        for i, window in enumerate(batch):
            ids[i, : len(window)] = torch.tensor(window)
        yield {"input_ids": ids, "attention_mask": (ids != tokenizer.pad_token_id).long()}


def bare(model: Any, batches: list[dict[str, torch.Tensor]]) -> float:
    start = time.perf_counter()
    with torch.no_grad():
        for batch in batches:
            model(**batch)
    return time.perf_counter() - start


def extracted(model: Any, tokenizer: Any, texts: Path, store: Path) -> float:
    shutil.rmtree(store, ignore_errors=True)
    start = time.perf_counter()
    isoscope.embed(model, texts, store, pool="tokens", tokenizer=tokenizer)
    return time.perf_counter() - start


def speed_lines(folder: Path, texts: Path, store: Path, turns: int) -> tuple[list[str], float]:
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    lines = [line for line in texts.read_text(encoding="utf-8").split("\n") if line.strip()]
    most = TransformerEmbedder(model, tokenizer=tokenizer, layers=-1).batch_tokens
    batches = list(bare_batches(lines, tokenizer, most))
    tokens = sum(int(batch["attention_mask"].sum()) for batch in batches)
    bare(model, batches[: len(batches) // 10])
    taken = [(bare(model, batches), extracted(model, tokenizer, texts, store)) for _ in range(turns)]
    ratio = median(one / other for one, other in taken)
    alone, whole = (median(times) for times in zip(*taken, strict=True))
    size = sum(path.stat().st_size for path in store.glob("layer-*.arrow"))
    said = "✓" if ratio >= LEAST_SPEED else "✗"
    return [
        "| | time | tokens per second | speed relative to the bare pass | target: at least |",
        "|---|---|---|---|---|",
        f"| bare forward pass | {alone:.1f} s | {tokens / alone:,.0f} | | |",
        f"| `isoscope.embed`, all layers to disk ({size / 1e9:.1f} GB) | {whole:.1f} s | {tokens / whole:,.0f} | "
        f"{ratio:.0%} | {LEAST_SPEED:.0%} {said} |",
    ], whole


def audit_lines(store: Path, extraction: float) -> list[str]:
    start = time.perf_counter()
    found = isoscope.audit(store, by="layer")
    taken = time.perf_counter() - start
    rows = sum(each.n for each in found.groups.values())
    said = "✓" if taken <= MOST_AUDIT * extraction else "✗"
    return [
        f"An audit of this output by layer ({len(found.groups)} layers, {rows:,} rows in total) takes {taken:.1f} s, "
        f"which is {taken / extraction:.2f}× the time that the extraction takes (target: at most {MOST_AUDIT:g}×) "
        f"{said}."
    ]


def tell_peak(model: Path, texts: Path) -> None:
    """Embed a text file, and print the peak memory of this process in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        isoscope.embed(str(model), texts, Path(folder, "store"), pool="tokens")
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def peak(model: Path, texts: Path) -> int:
    command = [sys.executable, __file__, "--model", str(model), "--peak", str(texts)]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, help="write the tables into this page")
    parser.add_argument("--model", type=Path, default=packaged_model(), help="a folder with all-MiniLM-L6-v2")
    parser.add_argument(
        "--data", type=Path, help="a folder with wikitext2/valid.txt; without it, the packaged glosses are used"
    )
    parser.add_argument("--lines", type=int, help="embed only this many lines")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--peak", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.model is None:
        parser.error(MISSING_MODEL)
    if options.peak:
        tell_peak(options.model, options.peak)
        return
    with tempfile.TemporaryDirectory() as folder:
        texts, half = Path(folder, "texts.txt"), Path(folder, "half.txt")
        source = write_corpus(options.data, options.lines, texts)
        written = texts.read_text(encoding="utf-8").split("\n")[:-1]
        write_lines(half, written[: len(written) // 2])
        store = Path(folder, "store")
        speed, extraction = speed_lines(options.model, texts, store, options.turns)
        audit = audit_lines(store, extraction)
        whole_peak, half_peak = (peak(options.model, path) for path in (texts, half))
    lines = [
        f"isoscope {version('isoscope')}, Python {platform.python_version()}, torch {version('torch')}, "
        f"transformers {version('transformers')}; {platform.machine()}, {torch.get_num_threads()} threads; "
        f"{source}; median of {options.turns} runs.",
        "",
        *speed,
        "",
        *audit,
        "",
        f"A process that embeds this corpus needs {whole_peak / 1e6:,.0f} MB of peak memory. For the first half of the "
        f"corpus, it needs {half_peak / 1e6:,.0f} MB.",
    ]
    text = "\n".join(lines)
    print(text)
    if options.page:
        write_table(options.page, text, "embedding")


if __name__ == "__main__":
    main()
