"""The covariance that I-STAR leans on: of many states of the training set, with the model as it is now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from isoscope.arrays import whole
from isoscope.errors import InputError
from isoscope.losses.gathering import is_parallel
from isoscope.sketching import Sketch, sketch
from isoscope.training.capturing import Capture, evaluating, refuse_nonfinite

STATES = 250_000
"""How many token states I-STAR's authors take."""

_TOKENS = 4096  # in a batch: enough to keep the cores busy, few enough to stay in cache
_ITEMS = 1024  # of a dataset, looked at together to find texts of one length


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
    needed = whole(states, "states")
    processes, rank = (dist.get_world_size(), dist.get_rank()) if is_parallel() else (1, 0)
    needed = -(-needed // processes)

    def chunks() -> Iterator[Any]:
        found = 0
        for batch in even_batches(batches, seed=seed, part=rank, parts=processes):
            capture.start()
            run(batch)
            for layer, runs in capture.rows(capture.stop()).items():
                for rows in runs:
                    if len(rows.states):
                        refuse_nonfinite(rows.states, layer, "of the training set")
                        found += len(rows.states)
                        yield rows.states.float().cpu().numpy()
            if found >= needed:
                return

    with evaluating(model):
        own = _sketched(chunks())
    if processes > 1:
        parts: list[Any] = [None] * processes
        dist.all_gather_object(parts, own)
        own = sum(parts, Sketch())
    if own.n < 2:
        raise InputError(
            f"the batches gave {own.n} states: a covariance needs 2 at least, and should be of many thousands"
        )
    return own


def _sketched(chunks: Iterator[Any]) -> Sketch:
    first = next(chunks, None)
    if first is None:
        return Sketch()

    def all_of_them() -> Iterator[Any]:
        yield first
        yield from chunks

    return sketch(all_of_them())


def even_batches(batches: Iterable[Any], *, seed: int, part: int = 0, parts: int = 1) -> Iterator[Any]:
    """Batches of a random part of a loader's dataset, each of texts of one length: little padding, little time.

    What has no dataset that can be looked into, or no `input_ids` to measure, is given as it comes.
    """
    dataset: Any = getattr(batches, "dataset", None)
    collate: Any = getattr(batches, "collate_fn", None)
    if collate is None or not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__") or not len(dataset):
        yield from islice(batches, part, None, parts)
        return
    if _length(dataset[0]) is None:
        yield from islice(batches, part, None, parts)
        return
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(seed)).tolist()[part::parts]
    for start in range(0, len(order), _ITEMS):
        items = sorted((dataset[i] for i in order[start : start + _ITEMS]), key=lambda item: -(_length(item) or 0))
        while items:
            most = max(1, _TOKENS // max(1, _length(items[0]) or 1))
            yield collate(items[:most])
            items = items[most:]


def _length(item: Any) -> int | None:
    """How many tokens an item has; None if it cannot be told."""
    tokens: Any = item.get("input_ids") if isinstance(item, Mapping) else None
    return None if tokens is None else len(tokens)
