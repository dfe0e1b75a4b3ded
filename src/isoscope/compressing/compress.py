"""The function `compress`: find the smallest way to store vectors that keeps the score."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import (
    InputError,
    MissingValueError,
    ParameterError,
    ShapeError,
    TooFewRowsError,
    was_dropped,
)
from isoscope._core.memory import limit_sample_size
from isoscope._core.missing import note_zero_rows
from isoscope._core.random import check_seed
from isoscope._io.progress import show_progress
from isoscope.advising.task_inputs import TaskInputs
from isoscope.compressing.candidates import build_candidates
from isoscope.compressing.compression import Compression, CompressionSettings
from isoscope.compressing.confirmation import confirm
from isoscope.compressing.recall import NeighborRecall
from isoscope.compressing.trials import try_candidates
from isoscope.engines.engine import SampleTally, open_engine

if TYPE_CHECKING:
    from isoscope._core.types import Column, Metric, Missing, Seed, Zeros
    from isoscope._io.progress import Progress
    from isoscope.advising.task import Task
    from isoscope.stores.store import Store


def compress(
    source: Any,
    *,
    pairs: Any = None,
    queries: Any = None,
    qrels: Any = None,
    labels: Column | None = None,
    keep: float = 0.99,
    measure: str | None = None,
    precisions: Iterable[str] | None = None,
    dimensions: Iterable[int] | None = None,
    rescore: bool = False,
    vectors: str | None = None,
    ids: Column | None = None,
    query_ids: Column | None = None,
    text: Column | None = None,
    layer: int | None = None,
    metric: Metric = "cosine",
    sample: int = 20_000,
    seed: Seed = 0,
    missing: Missing = "error",
    zeros: Zeros = "keep",
    engine: Any = "local",
    progress: bool | Progress | None = None,
) -> Compression:
    """Find the smallest way to store vectors that keeps a share of the score, and return it as a fitted `Quantizer`.

    Candidates combine fewer dimensions, preprocessing and fewer bits. Without a task, the score is recall@10: how many
    of the 10 nearest rows of exact search a search in the codes finds. With `pairs`, `queries` and `qrels`, or
    `labels`, it is the score of that task, as in `isoscope.advise`.

    Parameters
    ----------
    source : path, array, DataFrame, Dataset or store
        The corpus; anything that `open_store` opens.
    pairs, queries, qrels, labels : optional
        A task; see `isoscope.advise`.
    keep : float
        The share of the score to keep, above 0 and at most 1.
    measure : str, optional
        Decide by this measure only. By default, the first measure of the task decides, and a candidate that keeps
        significantly less than the share on another measure is excluded.
    precisions : iterable of str, optional
        The precisions to try: "float32", "float16", "int8", "int4", "bit" and "pq", product quantization (default:
        all).
    dimensions : iterable of int, optional
        The numbers of dimensions to try, such as those that a Matryoshka model was trained for (default: 3/4, 1/2, 1/4
        and 1/8 of all dimensions). All dimensions are always tried.
    rescore : bool
        Whether the original vectors stay stored, such as on disk, to rescore the results of a search. The smallest
        index is then recommended, which may need rescoring.
    vectors, ids, text : str, or values, optional
        Columns of the source; see `open_store`.
    query_ids : str, or values, optional
        The ids of the queries.
    layer : int, optional
        The layer to use if the source has hidden states of several layers (default: the last one).
    metric : {"cosine", "euclidean"}
        How vectors are compared.
    sample : int
        The number of rows to keep in memory; rows that the task refers to are kept in addition.
    seed : int, sequence of int, SeedSequence, Generator or None
        Random seed for the sample, the queries, rotations and product quantization.
    missing : {"error", "drop"}
        Raise an error for rows, labels and judgments with a missing value, or drop them and report how many.
    zeros : {"keep", "drop"}
        Keep rows of zeros, or drop them. Cosine is undefined for them, so recall is always measured without them.
    engine : {"local", "dask"}, address of a Dask scheduler, or dask.distributed.Client
        Where the rows of the source are read. This process reads judgments, labels and queries.
    progress : bool or function, optional
        Whether to show a progress bar: by default in notebooks and at a Python prompt, for work of more than a second;
        or a function that is called with the stage, the number of rows read and the share of the work done (0 to 1).

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> X = np.random.default_rng(0).standard_normal((2000, 32)).astype(np.float32)
    >>> compression = isoscope.compress(X, keep=0.9, precisions=["float16", "int8", "int4"])
    >>> compression.choice.name, compression.choice.bytes, compression.original.bytes
    ('int8 per coordinate', 32, 128)
    >>> compression.quantizer.encode(X).shape
    (2000, 32)
    """
    settings = CompressionSettings(
        keep=keep,
        metric=metric,
        rescore=bool(rescore),
        sample=sample,
        seed=check_seed(seed),
        missing=missing,
        zeros=zeros,
        precisions=None if precisions is None else _list_given("precisions", precisions),
        dimensions=None if dimensions is None else _list_given("dimensions", dimensions),
    )
    inputs = TaskInputs(source, pairs, queries, qrels, labels, vectors, ids, query_ids, text, layer)
    has_task = any(each is not None for each in (pairs, queries, labels))
    store, query_store, notes = inputs.open_stores(missing, zeros)
    settings = replace(settings, layer=store.layer)
    if store.dim < 2:
        raise ShapeError(f"{store.name} has vectors with 1 dimension: need at least 2")
    with show_progress(progress) as report, open_engine(engine) as running:
        task: Task | NeighborRecall
        if has_task:
            task = inputs.open_task(store, query_store, settings.for_task(), report, running)
            notes, total = notes + task.notes, task.corpus.total
        else:
            task, more, total = _open_recall(store, settings, running, report)
            notes += more
        if measure is not None and measure not in task.measures:
            raise ParameterError(f"measure is {measure!r}: this task supports {', '.join(task.measures)}")
        candidates = build_candidates(
            store.dim,
            store.dtype.itemsize,
            metric,
            settings.seed,
            rows=len(task.corpus.rows) if isinstance(task, NeighborRecall) else int(task.corpus.sampled.sum()),
            rescored=pairs is None and labels is None,
            precisions=settings.precisions,
            dimensions=settings.dimensions,
        )
        trials = try_candidates(task, candidates, keep, settings.seed, report)
        if len(trials.candidates) == 1:  # only the unchanged vectors
            name, reason = next(iter(trials.left_out.items()))
            raise InputError(f"none of the candidates could be fitted; {name}: {reason}")
        compression = Compression.of(store, task, trials, settings, total, measure)
        if isinstance(task, NeighborRecall) and len(task.corpus.rows) + len(task) < total:
            compression.confirm(lambda chosen, of: confirm(task, chosen, of, store, running, report), trials)
    compression.notes = notes + compression.notes
    compression.given = inputs.names
    return compression


def _open_recall(
    store: Store, settings: CompressionSettings, engine: Any, progress: Progress
) -> tuple[NeighborRecall, list[str], int]:
    """Return the measurement of recall on a sample of a store, notes for the reader, and the number of usable rows."""
    size = limit_sample_size(settings.sample, store.dim, 2 * store.dtype.itemsize)
    tally = SampleTally(size, settings.seed, store.name, "drop" if store.drops_rows else "error")
    kept = engine.tally(tally, store, progress).partial_result()
    vectors, numbers, notes = kept.vectors, kept.rows, []
    if not len(vectors):
        raise MissingValueError(f"{store.name} has no finite rows: need at least one row without NaN or infinity")
    total = len(store)
    if len(vectors) < min(size, total):  # the sample contains all usable rows
        reasons = {"missing": "with a missing value", "zeros": "of zeros"}
        dropped = " or ".join(words for name, words in reasons.items() if getattr(settings, name) == "drop")
        notes.append(was_dropped(total - len(vectors), "row", dropped) + ".")
        total = len(vectors)
    nonzero = vectors.any(axis=1)
    if settings.metric == "cosine" and not nonzero.all():
        count = int((~nonzero).sum())
        notes.append(note_zero_rows(count))
        vectors, numbers = vectors[nonzero], numbers[nonzero]
        total -= count if total == len(nonzero) else 0
    try:
        task = NeighborRecall(vectors, numbers, settings.metric, settings.seed)
    except TooFewRowsError as error:
        raise TooFewRowsError(". ".join([str(error), *notes]).removesuffix(".")) from None
    return task, notes, total


def _list_given(name: str, given: Any) -> tuple[Any, ...]:
    """Return the values of an option that is one value or an iterable."""
    if isinstance(given, str | int | np.integer):
        return (given,)
    if not isinstance(given, Iterable):
        raise ParameterError(f"{name} is {given!r}: need a list")
    return tuple(given)
