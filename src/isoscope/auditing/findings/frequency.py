"""Findings on token frequency, and kinds of tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from isoscope._core.errors import InputError
from isoscope.auditing import nulls
from isoscope.auditing.finding import Range
from isoscope.auditing.findings.evidence import FOLDS, IF_CONFIRMED, SHARE_BAD, SHARE_LOOK, SHARE_SOURCE
from isoscope.stores.columns import INVERSE_RANK

if TYPE_CHECKING:
    from isoscope.auditing.finding import Finding
    from isoscope.auditing.findings.evidence import Evidence


KINDS = ("word", "continuation", "number", "symbol", "special")
"""Begins a word; goes on with one; digits; no letter and no digit; put there by the tokenizer, as [CLS] is."""

_SPECIAL = re.compile(r"\[[A-Z]{2,}\d*\]|\[unused\d+\]|</?[A-Za-z_]+\d*>|<[|｜].+[|｜]>")
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")  # a byte that has no token of its own
_WORD_START_MARKS = {"Ġ": "bytes", "▁": "pieces"}  # what stands for the blank before a word
_MIN_MARKED_SHARE = 0.02  # of all tokens: fewer marks than this are part of the text
_MIN_ONE_WORD_SHARE = 0.95  # of entries that hold no blank, if they are to be words


def token_kinds(tokens: Sequence[str] | np.ndarray) -> np.ndarray:
    """The kind of each token, as codes into `KINDS`.

    How the tokenizer marks a word's beginning is told from all tokens together: `##` before a continuation (BERT), Ġ
    (GPT-2, Llama 3) or ▁ (SentencePiece) before a word. Where nothing is marked, as in a list of words, each token is
    whole. The first word of a text has no blank before it, so that byte-level tokenizers leave it unmarked: it counts
    as a continuation.

    Parameters
    ----------
    tokens : sequence of str
        As the tokenizer writes them; with repeats or without.

    Examples
    --------
    >>> [KINDS[code] for code in token_kinds(["[CLS]", "swim", "##ming", "1984", ","])]
    ['special', 'word', 'continuation', 'number', 'symbol']
    >>> [KINDS[code] for code in token_kinds(["<|endoftext|>", "Ġswim", "ming", "Ġ1984", "âĢĵ"])]
    ['special', 'word', 'continuation', 'number', 'symbol']
    >>> [KINDS[code] for code in token_kinds(["swim", "1984", ","])]
    ['word', 'number', 'symbol']
    """
    names, codes = np.unique(np.asarray(tokens, dtype=str), return_inverse=True)
    style = _detect_style(names.tolist())
    return np.asarray([KINDS.index(_classify_token(name, style)) for name in names.tolist()], dtype=int)[codes]


def are_words(entries: Sequence[object] | np.ndarray) -> bool:
    """Whether entries are words or tokens, and no sentences, numbers or identities.

    Examples
    --------
    >>> are_words(["the", "of"]), are_words(["A whole sentence."]), are_words([17, 4])
    (True, False, False)
    """
    values = np.asarray(entries)
    if not len(values) or not all(isinstance(entry, str) for entry in values.tolist()):
        return False
    return float(np.mean([len(entry.split()) == 1 for entry in values.tolist()])) >= _MIN_ONE_WORD_SHARE


def _detect_style(names: list[str]) -> str:
    """How continuations are told: "hashes", "bytes", "pieces", or "whole" if nothing marks them."""
    marks = {style: sum(name.startswith(mark) for name in names) for mark, style in _WORD_START_MARKS.items()}
    marks["hashes"] = sum(name.startswith("##") and len(name) > 2 for name in names)
    style = max(marks, key=marks.__getitem__)
    return style if marks[style] >= max(1, _MIN_MARKED_SHARE * len(names)) else "whole"


def _classify_token(name: str, style: str) -> str:
    if _SPECIAL.fullmatch(name):
        return "special"
    if _BYTE.fullmatch(name):
        return "symbol"
    begins, rest = True, name
    if style == "hashes":
        begins, rest = not (name.startswith("##") and len(name) > 2), name.removeprefix("##") or name
    elif style == "bytes":
        begins, rest = name.startswith("Ġ"), _decode_token(name)
    elif style == "pieces":
        begins, rest = name.startswith("▁"), name.replace("▁", " ")
    if any(mark.isalpha() for mark in rest):
        return "word" if begins else "continuation"
    return "number" if any(mark.isnumeric() for mark in rest) else "symbol"


def _decode_token(name: str) -> str:
    """The text of a byte-level token; a part of a character is no letter."""
    places = _byte_by_character()
    if any(mark not in places for mark in name):
        return name
    return bytes(places[mark] for mark in name).decode("utf-8", "replace")


@cache
def _byte_by_character() -> dict[str, int]:
    """The byte that each character stands for: bytes that can be seen are themselves, the others follow from U+0100."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + i): byte for i, byte in enumerate(hidden)}


_SHUFFLES = 20
_RANK_NOTE = " Frequency is taken as 1/rank: such a file is sorted by it."


def frequency(e: Evidence) -> Iterator[Finding]:
    """How much of the first directions' variance is frequency."""
    given = e.m.sample.columns.get("frequency")
    if given is None:
        return
    if given.min() == given.max():
        raise InputError(f"all rows have the frequency {given[0]:g}: need different ones")
    e.check_variance()
    logs = np.log(replace_zeros(given))
    k = min(3, e.d)
    rows = e.m.sample.vectors - e.sketch.mean
    top = rows @ e.m.centred.vectors[:, :k]
    value, each = _explained_variance(top, logs), _squared_correlations(top, logs)
    overall = _explained_variance(rows, logs)
    rng = np.random.default_rng(e.m.settings.seed)
    null = float(np.mean([_explained_variance(top, rng.permutation(logs)) for _ in range(_SHUFFLES)]))
    folds = np.array_split(rng.permutation(len(top)), FOLDS)
    left = [_explained_variance(np.delete(top, fold, axis=0), np.delete(logs, fold)) for fold in folds]
    low, high = e.around(value, nulls.jackknife_error(np.asarray(left)), FOLDS)
    source = f"shuffled frequencies explain {abs(null):.1g}; {SHARE_SOURCE}"
    judged = Range.lower_is_better(SHARE_LOOK, SHARE_BAD, source, null)
    fact = f"Frequency explains {100 * value:.0f}% of the first {k} directions' variance ({100 * overall:.0f}% of all)"
    if judged.verdict(value) == "ok":
        meaning, advice = f"{fact}: what is far apart is not so for being rare.", "Leave it."
    else:
        meaning = f"{fact}: rows are near each other for being as frequent, besides what they mean."
        advice = (
            "Compare rows of similar frequency, or remove the first directions (`isoscope fix all-but-the-top`) "
            f"{IF_CONFIRMED}."
        )
    ranked = e.m.columns.get("frequency") == INVERSE_RANK
    yield e.finding(
        "frequency",
        "Frequency in the first directions",
        max(value, 0.0),
        (low, high),
        judged,
        meaning + (_RANK_NOTE if ranked else ""),
        advice,
        rows=len(top),
        form="share",
        sampled=not e.m.complete,
        details={"directions": each.tolist(), "of_all_variance": overall, "shuffled": null, "from_rank": ranked},
    )


def replace_zeros(frequencies: np.ndarray) -> np.ndarray:
    """Frequencies that have a logarithm: none at all counts as half of the least there is."""
    least = frequencies[frequencies > 0].min(initial=np.inf)
    return np.asarray(np.maximum(frequencies, least / 2 if np.isfinite(least) else 1.0))


def _squared_correlations(columns: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Of each column with some values; 0 for a column that does not vary."""
    columns, values = columns - columns.mean(axis=0), values - values.mean()
    size = (columns**2).sum(axis=0) * (values**2).sum()
    return np.asarray((values @ columns) ** 2 / np.where(size > 0, size, np.inf))


def _explained_variance(columns: np.ndarray, values: np.ndarray) -> float:
    """The share of the columns' variance that a linear fit on the values explains, less what chance would."""
    weights, m = columns.var(axis=0), len(values)
    share = float(weights @ _squared_correlations(columns, values) / max(weights.sum(), 1e-300))
    return 1 - (1 - share) * (m - 1) / (m - 2)
