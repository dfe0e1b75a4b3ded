"""Measure the time and memory that a regularizer adds to a training step, compared with published packages.

The model is all-MiniLM-L6-v2 with a head for two classes, trained with AdamW on batches of 64 sentences from CoLA. The
arms alternate on the same batches, and the result is the median ratio of an arm's time to that of a plain step. Memory
is the peak memory of a separate process for each arm. Part of `make bench`.
"""

from __future__ import annotations

import argparse
import csv
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from IsoScore.IsoScore import istar
from torch_topological.nn import VietorisRipsComplex
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import isoscope
from isoscope.losses import CosReg, IStar, PersistentEntropy, Regularizer, UnbiasedIsoScore
from isoscope.training.capture import Capture
from packaged import MISSING_MODEL, packaged_model
from pages import write_table

BATCH = 64
Batch = dict[str, torch.Tensor]


# the arms


class PublishedIStar(Regularizer):
    """The istar loss of IsoScore 2.0.1 on the same states, with a given covariance."""

    layer, pool, together = "all", "tokens", True

    def __init__(self, covariance: torch.Tensor) -> None:
        super().__init__()
        self.covariance, self.published = covariance, istar()

    def penalty(self, states: torch.Tensor, labels: torch.Tensor | None) -> torch.Tensor:
        return 1 - self.published.IsoScore_star(states, self.covariance, 0.2, is_eval=False)


class PublishedEntropy(Regularizer):
    """The entropy of each class's bars, computed by torch-topological."""

    needs_labels = True

    def __init__(self) -> None:
        super().__init__()
        self.complex = VietorisRipsComplex(dim=0)

    def penalty(self, states: torch.Tensor, labels: torch.Tensor | None) -> torch.Tensor:
        total = states.sum() * 0
        for label in labels.unique():
            bars = self.complex(states[labels == label])[0].diagram[:, 1]
            shares = bars / bars.sum()
            total = total + (shares * shares.log()).sum()
        return total


ARMS: dict[str, tuple[Callable[[torch.Tensor], Regularizer | None], float | None]] = {
    "plain": (lambda covariance: None, None),
    "PersistentEntropy": (lambda covariance: PersistentEntropy(), 0.02),
    "PersistentEntropy, all bars": (lambda covariance: PersistentEntropy(select=False), 0.02),
    "the same, torch-topological": (lambda covariance: PublishedEntropy(), None),
    "CosReg": (lambda covariance: CosReg(), 0.02),
    "UnbiasedIsoScore": (lambda covariance: UnbiasedIsoScore(), 0.02),
    "IStar, all layers' tokens": (lambda covariance: refreshed(covariance), 0.08),
    "the same, IsoScore 2.0.1": (PublishedIStar, None),
}


def refreshed(covariance: torch.Tensor) -> IStar:
    loss = IStar()
    loss.refresh(covariance)
    return loss


# the work


def sentences(data: Path | None) -> tuple[list[str], list[int], str]:
    """Return CoLA's training set, or the packaged glosses if no folder is given."""
    if data is not None:
        path = data / "cola" / "train.tsv"
        with path.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
        return [row[3] for row in rows], [int(row[1]) for row in rows], "CoLA's training set"
    table = pq.read_table(files("isoscope") / "demo" / "glosses-layer6.parquet", columns=["text", "label"]).to_pydict()
    texts = table["text"] * 5  # about the size of CoLA
    return texts, [int(label == "person") for label in table["label"]] * 5, "the packaged WordNet glosses"


class Sentences(torch.utils.data.Dataset):
    def __init__(self, tokenizer: Any, texts: list[str], labels: list[int]) -> None:
        self.items = [
            {"input_ids": ids, "labels": label}
            for ids, label in zip(tokenizer(texts, truncation=True, max_length=128)["input_ids"], labels, strict=True)
        ]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.items[index]


def loader(model: Path, data: Path | None) -> tuple[torch.utils.data.DataLoader, str]:
    tokenizer = AutoTokenizer.from_pretrained(model)
    texts, labels, source = sentences(data)

    def collate(items: list[dict[str, Any]]) -> Batch:
        batch = tokenizer.pad({"input_ids": [item["input_ids"] for item in items]}, return_tensors="pt")
        return {**batch, "labels": torch.tensor([item["labels"] for item in items])}

    return torch.utils.data.DataLoader(
        Sentences(tokenizer, texts, labels),
        batch_size=BATCH,
        shuffle=True,
        collate_fn=collate,
        generator=torch.Generator().manual_seed(0),
        drop_last=True,
    ), source


def classifier(model: Path) -> tuple[Any, torch.optim.Optimizer]:
    torch.manual_seed(0)
    found = AutoModelForSequenceClassification.from_pretrained(model, num_labels=2).train()
    return found, torch.optim.AdamW(found.parameters(), lr=1e-6)


def step(model: Any, optimizer: torch.optim.Optimizer, batch: Batch) -> float:
    start = time.perf_counter()
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return time.perf_counter() - start


@contextmanager
def arm(name: str, model: Any, covariance: torch.Tensor) -> Iterator[None]:
    loss = ARMS[name][0](covariance)
    with nullcontext() if loss is None else isoscope.attach(model, loss):
        yield


def covariance_of(model: Any, batches: Any) -> torch.Tensor:
    loss = IStar()
    with isoscope.attach(model, loss) as attachment:
        attachment.refresh(batches, states=20_000)
    return loss.shrinkage


def times(model: Any, optimizer: Any, batches: list[Batch], covariance: torch.Tensor) -> dict[str, np.ndarray]:
    """Return the time in seconds that each arm takes on each batch; the order of the arms rotates."""
    names = list(ARMS)
    found = {name: np.zeros(len(batches)) for name in names}
    for name in names:  # warm-up: compilation and setup
        with arm(name, model, covariance):
            step(model, optimizer, batches[0])
    for place, batch in enumerate(batches):
        turn = place % len(names)
        for name in names[turn:] + names[:turn]:
            with arm(name, model, covariance):
                found[name][place] = step(model, optimizer, batch)
    return found


def peak(name: str, model: Path, data: Path | None) -> int:
    """Return the peak memory, in bytes, of a process that runs a few steps of an arm."""
    command = [sys.executable, __file__, "--model", str(model), "--peak", name]
    command += ["--data", str(data)] if data else []
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1])


def tell_peak(name: str, model: Path, data: Path | None) -> None:
    found, _ = loader(model, data)
    net, optimizer = classifier(model)
    covariance = torch.eye(net.config.hidden_size)
    with arm(name, net, covariance):
        for place, batch in enumerate(found):
            if place == 12:
                break
            step(net, optimizer, batch)
    status = Path("/proc/self/status").read_text()
    print(1024 * int(status.split("VmHWM:")[1].split()[0]))


def lines_of(model: Path, data: Path | None, count: int) -> list[str]:
    found, source = loader(model, data)
    net, optimizer = classifier(model)
    covariance = covariance_of(net, found)
    batches = [batch for batch, _ in zip(found, range(count), strict=False)]
    taken = times(net, optimizer, batches, covariance)
    plain, plain_peak = taken["plain"], peak("plain", model, data)
    lines = []
    for name, (_, most) in ARMS.items():
        added = float(np.median(taken[name] / plain)) - 1
        memory = peak(name, model, data) / plain_peak - 1
        wanted = "" if most is None else f"{most:.0%} {'✓' if added <= most else '✗'}"
        room = "" if most is None else f"5% {'✓' if memory <= 0.05 else '✗'}"
        lines.append(
            f"| {name} | {np.median(taken[name]) * 1e3:.0f} ms | {added:+.1%} | {wanted} | {memory:+.1%} | {room} |"
        )
        print(lines[-1], flush=True)
    with isoscope.attach(net, IStar()) as attachment:
        start = time.perf_counter()
        states = attachment.refresh(found)
        refresh = time.perf_counter() - start
    epoch = float(np.mean(plain)) * len(found)
    share = refresh / epoch
    return [
        f"This table shows the time and peak memory that one training step needs, with a batch size of {BATCH} on "
        f"{source}. A plain step uses no regularizer. The added time is computed from the ratio to a plain step on the "
        f"same batch (median over {count} batches).",
        "",
        "| regularizer | time per step | added time | target: at most | added memory | target: at most |",
        "|---|---|---|---|---|---|",
        *lines,
        "",
        f"`IStar` computes its covariance once per epoch, from {states:,} token states. This takes {refresh:.2g} s, "
        f"which is {share:.1%} of an epoch of {len(found)} steps (target: at most 5%) {'✓' if share <= 0.05 else '✗'}.",
    ]


def alone_lines(model: Path, data: Path | None) -> list[str]:
    """Measure the time that each regularizer takes on its own, as a share of the time of a complete step."""
    found, _ = loader(model, data)
    net, optimizer = classifier(model)
    batch = next(iter(found))
    plain = min(step(net, optimizer, batch) for _ in range(6))
    lines = []
    for name, (make, most) in ARMS.items():
        loss = make(torch.eye(net.config.hidden_size))
        if loss is None:
            continue
        capture = Capture(net, loss.layer, loss.pool)
        capture.start()
        net(**batch)
        seen = [run.states.detach() for runs in capture.rows(capture.stop()).values() for run in runs]
        capture.remove()
        states = torch.cat(seen).requires_grad_()
        labels = batch["labels"] if loss.needs_labels else None

        def term(loss: Regularizer = loss, states: Any = states, labels: Any = labels) -> float:
            start = time.perf_counter()
            loss(states, labels).backward()
            return time.perf_counter() - start

        term()
        taken = min(term() for _ in range(10))
        share = taken / plain
        wanted = "" if most is None else f"{most:.0%} {'✓' if share <= most else '✗'}"
        lines.append(f"| {name} | {len(states):,} | {taken * 1e3:.1f} ms | {share:.2%} | {wanted} |")
    return [
        "This table shows how long each regularizer takes on its own (forward and backward, best of 10 runs). A "
        f"training step without a regularizer takes {plain * 1e3:.0f} ms.",
        "",
        "| regularizer | rows | time | share of a step's time | target: at most |",
        "|---|---|---|---|---|",
        *lines,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, help="write the tables into this page")
    parser.add_argument("--model", type=Path, default=packaged_model(), help="a folder with all-MiniLM-L6-v2")
    parser.add_argument(
        "--data", type=Path, help="a folder with cola/train.tsv; without it, the packaged glosses are used"
    )
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument(
        "--alone", action="store_true", help="measure only the regularizers on their own, without complete steps"
    )
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.model is None:
        parser.error(MISSING_MODEL)
    if options.peak:
        tell_peak(options.peak, options.model, options.data)
        return
    head = (
        f"isoscope {version('isoscope')}, Python {platform.python_version()}, torch {version('torch')}, "
        f"transformers {version('transformers')}, IsoScore {version('IsoScore')}, "
        f"torch-topological {version('torch-topological')}; {platform.machine()}, {torch.get_num_threads()} threads."
    )
    alone = "\n".join([head, "", *alone_lines(options.model, options.data)])
    print(alone)
    if options.page:
        write_table(options.page, alone, "terms")
    if options.alone:
        return
    text = "\n".join(lines_of(options.model, options.data, options.batches))
    print(text)
    if options.page:
        write_table(options.page, text, "training")


if __name__ == "__main__":
    main()
