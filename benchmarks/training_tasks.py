"""Small tasks and resumable runs for the commands that train many models."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from isoscope._io.files import atomic_replace
from isoscope.finetuning import Split, Task
from isoscope.finetuning.task_data import read_glue

SEED = 0
"""The seed of the samples, which all runs share."""


def sst2(data: Path, train: int, dev: int) -> Task:
    """Return sentences about films, of two classes."""
    return _sample(read_glue("sst2", data), train, dev)


def stsb(data: Path, train: int, dev: int) -> Task:
    """Return pairs of sentences with grades of their similarity."""
    return _sample(read_glue("stsb", data), train, dev)


def banking(data: Path, train: int, dev: int, classes: int = 8) -> Task:
    """Return questions to a bank, of the most frequent classes of BANKING77."""
    parts = {}
    for name in ("train", "test"):
        with (data / "banking77" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            parts[name] = [(row["text"], row["category"]) for row in csv.DictReader(file)]
    counts = Counter(category for _, category in parts["train"])
    names = sorted(name for name, _ in counts.most_common(classes))
    splits = {}
    for name, rows in parts.items():
        kept = [(text, names.index(category)) for text, category in rows if category in names]
        splits[name] = Split([text for text, _ in kept], None, np.array([number for _, number in kept]))
    return _sample(Task(f"banking{classes}", splits["train"], splits["test"], tuple(names), "accuracy"), train, dev)


def subjectivity(data: Path, train: int, dev: int) -> Task:
    """Return subjective and objective sentences."""
    texts: list[str] = []
    labels: list[int] = []
    for number, name in enumerate(("objective", "subjective")):
        lines = (data / "senteval_extra" / f"subj.{name}").read_text(encoding="utf-8").splitlines()
        texts += lines
        labels += [number] * len(lines)
    order = np.random.default_rng(SEED).permutation(len(texts))
    every = Split(texts, None, np.array(labels)).part(order)
    half = len(every) // 2
    split = (every.part(np.arange(half)), every.part(np.arange(half, len(every))))
    return _sample(Task("subj", *split, ("objective", "subjective"), "accuracy"), train, dev)


def _sample(task: Task, train: int, dev: int) -> Task:
    rng = np.random.default_rng(SEED)
    train_part, dev_part = (
        split.part(rng.permutation(len(split))[:count]) for split, count in ((task.train, train), (task.dev, dev))
    )
    return Task(task.name, train_part, dev_part, task.labels, task.measure)


def run_all(
    names: Sequence[str], folder: Path, run: Callable[..., dict[str, Any]], *arguments: Any, jobs: int
) -> dict[str, dict[str, Any]]:
    """Return the result of `run(name, *arguments)` for each name; each is kept as a JSON file, so a rerun resumes."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [name for name in names if not _file(folder, name).exists()]
    print(f"{len(names) - len(missing)} of {len(names)} runs are done", flush=True)
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        running = {pool.submit(run, name, *arguments): name for name in missing}
        for count, future in enumerate(as_completed(running), len(names) - len(missing) + 1):
            name = running[future]
            _keep(folder, name, future.result())
            print(f"{count} of {len(names)}: {name}", flush=True)
    return read_finished(names, folder)


def read_finished(names: Sequence[str], folder: Path) -> dict[str, dict[str, Any]]:
    """Return the results of the finished runs."""
    return {name: json.loads(_file(folder, name).read_text()) for name in names if _file(folder, name).exists()}


def _keep(folder: Path, name: str, found: dict[str, Any]) -> None:
    with atomic_replace(_file(folder, name)) as path:
        path.write_text(json.dumps(found))


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"
