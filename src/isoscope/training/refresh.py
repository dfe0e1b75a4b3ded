"""The covariance that I-STAR leans on: of many states of the training set, with the model as it is now."""

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
from isoscope._core.errors import InputError
from isoscope.engines.engine import sketch
from isoscope.losses.regularizer import is_parallel
from isoscope.sketching.sketch import Sketch
from isoscope.training.capture import check_finite_states, evaluation_mode

if TYPE_CHECKING:
    from isoscope.training.capture import Capture

SHRINKAGE_STATES = 250_000
"""How many token states I-STAR's authors take."""

_TOKENS = 2048  # in a batch: enough to keep the cores busy, few enough to stay in cache
_BATCH = 32  # examples, where the loader does not say how many


def shrinkage_sketch(
    model: nn.Module,
    capture: Capture,
    run: Callable[[Any], None],
    batches: Iterable[Any],
    states: int,
    seed: int,
) -> Sketch:
    """The sketch of at least so many states, seen by `capture` while `run` shows the model one batch after another.

    Under data-parallel training each process takes its share, and all get the sum.
    """
    needed = check_integer(states, "states")
    processes, rank = (dist.get_world_size(), dist.get_rank()) if is_parallel() else (1, 0)
    needed = -(-needed // processes)

    layers = len(capture.layers)

    def rows_of(length: int) -> int:
        return layers * (length if capture.pool == "tokens" else 1)

    def chunks() -> Iterator[np.ndarray]:
        found = 0
        for batch in equal_length_batches(batches, rows_of, needed, seed=seed, part=rank, parts=processes):
            capture.start()
            run(batch)
            parts = []
            for layer, runs in capture.rows(capture.stop()).items():
                for rows in runs:
                    check_finite_states(rows.states, layer, "of the training set")
                    parts.append(rows.states.float().cpu().numpy())
            widths = {part.shape[1] for part in parts}
            if not widths:  # a training step that leaves the batch out
                continue
            if len(widths) > 1:
                raise InputError(f"the layers have {sorted(widths)} dimensions: one covariance needs one width")
            states = np.concatenate(parts)
            found += len(states)
            if len(states):
                yield states
            if found >= needed:
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
        raise InputError(
            f"the batches gave {own.n} states: a covariance needs 2 at least, and should be of many thousands"
        )
    return own


def _sketch_chunks(chunks: Iterator[Any]) -> Sketch:
    first = next(chunks, None)
    if first is None:
        return Sketch()

    def all_of_them() -> Iterator[Any]:
        yield first
        yield from chunks

    return sketch(all_of_them())


def equal_length_batches(
    batches: Iterable[Any], rows_of: Callable[[int], int], needed: int, *, seed: int, part: int = 0, parts: int = 1
) -> Iterator[Any]:
    """Batches of a random part of a loader's dataset, each of texts of one length: no padding, little time.

    So many texts are drawn as give the rows that are needed, by what `rows_of` says of a text's length, and only then
    are they sorted: who would stop among sorted ones would have the long ones alone. Items without `input_ids` to
    measure are put in batches of the loader's size. What has no dataset that can be looked into is given as it comes.
    """
    dataset: Any = getattr(batches, "dataset", None)
    collate: Any = getattr(batches, "collate_fn", None)
    if collate is None or not _is_indexable(dataset):
        yield from islice(batches, part, None, parts)
        return
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(seed)).tolist()[part::parts]
    if _count_tokens(dataset[0]) is None:
        # Not from the loader itself: its sampler may have random numbers of its own, which training would then lack.
        for rows in blocks(len(order), _batch_size(batches)):
            yield collate([dataset[index] for index in order[rows]])
        return
    by_length: dict[int, list[Any]] = {}
    found = 0
    for index in order:
        item = dataset[index]
        length = _count_tokens(item) or 0
        by_length.setdefault(length, []).append(item)
        found += rows_of(length)
        if found >= needed:
            break
    for length in sorted(by_length, reverse=True):
        for rows in blocks(len(by_length[length]), max(1, _TOKENS // max(1, length))):
            yield collate(by_length[length][rows])


def _is_indexable(dataset: Any) -> bool:
    """Whether any item of a dataset can be had; one that is put together of several may allow no mixed batches."""
    if isinstance(dataset, IterableDataset | ConcatDataset):  # the first has a __getitem__ that only raises
        return False
    return hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__") and len(dataset) > 0


def _batch_size(loader: Any) -> int:
    sampler = getattr(loader, "batch_sampler", None)
    found = getattr(loader, "batch_size", None) or getattr(sampler, "batch_size", None)
    return found if isinstance(found, int) else _BATCH


def _count_tokens(item: Any) -> int | None:
    """How many tokens an item has; None if it cannot be told."""
    tokens: Any = item.get("input_ids") if isinstance(item, Mapping) else None
    return None if tokens is None else len(tokens)
