"""Measure the layers of a trained model on a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope.metrics.spectra import isoscore_star
from isoscope.sketching.sketch import Sketch
from isoscope.training.layer_metrics import measure

if TYPE_CHECKING:
    from isoscope.finetuning.task_data import Split, Task
    from isoscope.finetuning.tokenizing import Reader

_AT_ONCE = 64
_TOKENS_AT_ONCE = 4096


def measure_layers(
    place: str,
    task: Task,
    *,
    zeta: float,
    reference: int,
    max_length: int = 128,
    tell: Callable[[float, str], None] = lambda share, words: None,
) -> dict[str, Any]:
    """Return IsoScore*, TwoNN, mean cosine and other measurements of every layer above the embeddings.

    Parameters
    ----------
    place : str
        The model's folder, or its name on the Hugging Face Hub.
    task : Task
        For each dev row, one text state is measured: [CLS], or the last token, as in training. The shrinkage covariance
        of IsoScore* for each layer is computed from the token states of the train rows, without padding.
    zeta : float
        The weight of the shrinkage covariance.
    reference : int
        The total number of token states for the shrinkage covariances of all layers.
    max_length : int
        The number of tokens at which a text is truncated.
    tell : callable
        A function that receives the share of the work done, and a note.

    Returns
    -------
    dict
        ``layers``: for each layer, ``layer``, ``isoscore_star`` and the results of `measure`. ``mean_state``: the mean
        of the last layer's text states. ``tokens_isoscore``: the IsoScore of the token states of all layers together.
        ``last_isoscore`` and ``last_cosine``: the IsoScore and mean cosine of the last layer's token states.
        ``token_states``: the number of token states.
    """
    from transformers import DataCollatorWithPadding

    from isoscope.finetuning.tokenizing import load_model, load_reader
    from isoscope.training.capture import probe_states
    from isoscope.training.layers import find_stack
    from isoscope.training.loading import mute_transformers

    reader = load_reader(place, max_length)
    model = load_model(place, task, reader)
    numbers = list(range(1, find_stack(model).depth + 1))
    with mute_transformers():
        collate = DataCollatorWithPadding(reader.tokenizer)

        def batches(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
            return (dict(collate(rows[start : start + _AT_ONCE])) for start in range(0, len(rows), _AT_ONCE))

        sums = {number: Sketch() for number in numbers}
        rows = _sample_rows(reader, task.train, ceil(reference / len(numbers)))
        done = 0
        while done < len(rows):
            some = rows[done : done + max(_AT_ONCE, _TOKENS_AT_ONCE // _count_tokens(rows[done]))]
            for number, states in probe_states(model, batches(some), layer=numbers, pool="tokens").items():
                sums[int(number)] += Sketch.of(states)
            done += len(some)
            tell(0.8 * done / len(rows), "token states")
        dev, _ = reader.read(task.dev)
        by_length = np.argsort([_count_tokens(row) for row in dev], kind="stable")  # to reduce padding
        dev = [dev[i] for i in by_length]
        texts = probe_states(model, batches(dev), layer=numbers, pool=reader.pool)
    labels = None if task.is_graded else task.dev.labels[by_length]
    layers = []
    for number in numbers:
        star = float(isoscore_star(texts[number], sums[number].covariance(), zeta))
        layers.append({"layer": number, "isoscore_star": star, **measure(texts[number], labels)})
        tell(0.8 + 0.2 * number / len(numbers), "layers")
    last = sums[numbers[-1]]
    return {
        "layers": layers,
        "mean_state": [round(float(each), 6) for each in texts[numbers[-1]].mean(axis=0)],
        "tokens_isoscore": sum(sums.values(), Sketch()).isoscore(),
        "last_isoscore": last.isoscore(),
        "last_cosine": last.mean_cosine(),
        "token_states": sum(each.n for each in sums.values()),
    }


def _sample_rows(reader: Reader, split: Split, tokens: int) -> list[dict[str, Any]]:
    """Return random rows with at least this many tokens in total (or all rows), sorted by length to reduce padding."""
    sample: list[dict[str, Any]] = []
    order, seen = np.random.default_rng(0).permutation(len(split)), 0
    for start in range(0, len(order), _AT_ONCE):
        rows, _ = reader.read(split.part(order[start : start + _AT_ONCE]))
        sample += rows
        seen += sum(map(_count_tokens, rows))
        if seen >= tokens:
            break
    return sorted(sample, key=_count_tokens)


def _count_tokens(row: dict[str, Any]) -> int:
    return len(row["input_ids"])
