"""Compute the shrinkage covariance of I-STAR from many states of the training set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import ConcatDataset, IterableDataset

from isoscope._core.arrays import blocks, check_integer
from isoscope._core.errors import ShapeError, TooFewRowsError
from isoscope.engines.engine import sketch
from isoscope.losses.regularizer import is_parallel
from isoscope.sketching.sketch import Sketch
from isoscope.training.capture import check_finite_states, evaluation_mode

if TYPE_CHECKING:
    from isoscope.training.capture import Capture

SHRINKAGE_STATES = 250_000
"""The number of token states that I-STAR's authors use."""

_TOKENS = 2048  # per batch: enough to keep the cores busy, few enough to stay in cache
_BATCH = 32  # examples per batch if the loader has no batch size


def shrinkage_sketch(
    model: nn.Module,
    capture: Capture,
    run: Callable[[Any], None],
    batches: Iterable[Any],
    states: int,
    seed: int,
) -> Sketch:
    """Return a sketch of at least `states` hidden states, captured while `run` runs the model on batches.

    In data-parallel training, each process handles its share of the data, and all processes receive the
    merged sketch.
    """
    needed = check_integer(states, "states")
    processes, rank = (dist.get_world_size(), dist.get_rank()) if is_parallel() else (1, 0)
    needed = -(-needed // processes)

    layers = len(capture.layers)

    def rows_of(length: int) -> int:
        return layers * (length if capture.pool == "tokens" else 1)

    def chunks() -> Iterator[np.ndarray]:
        collected = 0
        for batch in equal_length_batches(batches, rows_of, needed, seed=seed, part=rank, parts=processes):
            capture.start()
            run(batch)
            parts = []
            for layer, runs in capture.rows(capture.stop()).items():
                for rows in runs:
                    check_finite_states(rows.states, layer, "of the training set")
                    parts.append(rows.states.float().cpu().numpy())
            widths = {part.shape[1] for part in parts}
            if not widths:  # the training step skipped the batch
                continue
            if len(widths) > 1:
                raise ShapeError(f"the layers have {sorted(widths)} dimensions: a covariance needs equal dimensions")
            states = np.concatenate(parts)
            collected += len(states)
            if len(states):
                yield states
            if collected >= needed:
                return

    try:
        with evaluation_mode(model):
            own = _sketch_chunks(chunks())
    finally:
        capture.stop()
    if processes > 1:
        parts: list[Any] = [None] * processes
        dist.all_gather_object(parts, own)
        own = sum(parts, Sketch())
    if own.n < 2:
        raise TooFewRowsError(
            f"the batches contain {own.n} states: need at least 2 for a covariance, and preferably many thousands"
        )
    return own


def _sketch_chunks(chunks: Iterator[Any]) -> Sketch:
    first = next(chunks, None)
    if first is None:
        return Sketch()

    def all_chunks() -> Iterator[Any]:
        yield first
        yield from chunks

    return sketch(all_chunks())


def equal_length_batches(
    batches: Iterable[Any], rows_of: Callable[[int], int], needed: int, *, seed: int, part: int = 0, parts: int = 1
) -> Iterator[Any]:
    """Yield batches from a random subset of a dataset; texts in a batch have equal length and need no padding.

    Texts are sampled until they yield the `needed` number of rows; `rows_of` maps the length of a text to its number of
    rows. Only then are the texts sorted by length, because stopping early in sorted order would select only long texts.
    Items without `input_ids` are batched with the loader's batch size. If the dataset cannot be indexed, the batches
    are yielded unchanged.
    """
    dataset: Any = getattr(batches, "dataset", None)
    collate: Any = getattr(batches, "collate_fn", None)
    if collate is None or not _is_indexable(dataset):
        yield from islice(batches, part, None, parts)
        return
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(seed)).tolist()[part::parts]
    if _count_tokens(dataset[0]) is None:
        # Do not iterate over the loader: its sampler may have its own random generator, whose state must not change.
        for rows in blocks(len(order), _batch_size(batches)):
            yield collate([dataset[index] for index in order[rows]])
        return
    by_length: dict[int, list[Any]] = {}
    drawn = 0
    for index in order:
        item = dataset[index]
        length = _count_tokens(item) or 0
        by_length.setdefault(length, []).append(item)
        drawn += rows_of(length)
        if drawn >= needed:
            break
    for length in sorted(by_length, reverse=True):
        for rows in blocks(len(by_length[length]), max(1, _TOKENS // max(1, length))):
            yield collate(by_length[length][rows])


def _is_indexable(dataset: Any) -> bool:
    """Return whether items can be read in any order and batched together, which a ConcatDataset may not allow."""
    if isinstance(dataset, IterableDataset | ConcatDataset):  # the first has a __getitem__ that only raises
        return False
    return hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__") and len(dataset) > 0


def _batch_size(loader: Any) -> int:
    sampler = getattr(loader, "batch_sampler", None)
    size = getattr(loader, "batch_size", None) or getattr(sampler, "batch_size", None)
    return size if isinstance(size, int) else _BATCH


def _count_tokens(item: Any) -> int | None:
    """Return the number of tokens of an item, or None if it has no `input_ids`."""
    tokens: Any = item.get("input_ids") if isinstance(item, Mapping) else None
    return None if tokens is None else len(tokens)
