"""The finding on token frequency, and the kinds of tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from isoscope._core.errors import TooFewRowsError
from isoscope.auditing import nulls
from isoscope.auditing.finding import Range
from isoscope.auditing.findings.evidence import ABOUT_SHAPE, FOLDS, IF_CONFIRMED, SHARE_BAD, SHARE_LOOK, SHARE_SOURCE
from isoscope.stores.columns import INVERSE_RANK

if TYPE_CHECKING:
    from isoscope.auditing.finding import Finding
    from isoscope.auditing.findings.evidence import Evidence


KINDS = ("word", "continuation", "number", "symbol", "special")
"""The kinds of tokens: word start, continuation of a word, number, symbol, special token such as [CLS]."""

_SPECIAL = re.compile(r"\[[A-Z]{2,}\d*\]|\[unused\d+\]|</?[A-Za-z_]+\d*>|<[|｜].+[|｜]>")
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")  # a single byte without a token of its own
_WORD_START_MARKS = {"Ġ": "bytes", "▁": "pieces"}  # marks for the space before a word
_MIN_MARKED_SHARE = 0.02  # minimum share of marked tokens; otherwise the mark counts as part of the text
_MIN_ONE_WORD_SHARE = 0.95  # minimum share of entries without a space, for entries to count as words


def token_kinds(tokens: Sequence[str] | np.ndarray) -> np.ndarray:
    """Return the kind of each token, as an index into `KINDS`.

    The function infers from all tokens how the tokenizer marks the start of a word: with `##` before a continuation
    (BERT), or with Ġ (GPT-2, Llama 3) or ▁ (SentencePiece) before a word. If there are no marks, as in a list of
    words, each token counts as a word. Byte-level tokenizers do not mark the first word of a text, so this word counts
    as a continuation.

    Parameters
    ----------
    tokens : sequence of str
        Tokens as the tokenizer writes them; they may repeat.

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
    """Return whether entries are words or tokens, rather than sentences, numbers or ids.

    Examples
    --------
    >>> are_words(["the", "of"]), are_words(["A full sentence."]), are_words([17, 4])
    (True, False, False)
    """
    values = np.asarray(entries)
    if not len(values) or not all(isinstance(entry, str) for entry in values.tolist()):
        return False
    return float(np.mean([len(entry.split()) == 1 for entry in values.tolist()])) >= _MIN_ONE_WORD_SHARE


def _detect_style(names: list[str]) -> str:
    """Return how the tokenizer marks tokens: "hashes", "bytes", "pieces", or "whole" if there are no marks."""
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
    """Return the text of a byte-level token; an incomplete character does not count as a letter."""
    places = _byte_by_character()
    if any(mark not in places for mark in name):
        return name
    return bytes(places[mark] for mark in name).decode("utf-8", "replace")


@cache
def _byte_by_character() -> dict[str, int]:
    """Return the byte that each character stands for; printable bytes are unchanged, and the others start at U+0100."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + i): byte for i, byte in enumerate(hidden)}


_SHUFFLES = 20
_RANK_NOTE = " Frequency is estimated as 1/rank, because word-vector files are sorted by frequency."


def frequency(e: Evidence) -> Iterator[Finding]:
    """Judge how much of the variance along the leading principal components token frequency explains."""
    frequencies = e.m.sample.columns.get("frequency")
    if frequencies is None:
        return
    if frequencies.min() == frequencies.max():
        raise TooFewRowsError(f"all rows have the frequency {frequencies[0]:g}: need at least two distinct frequencies")
    e.check_variance()
    logs = np.log(replace_zeros(frequencies))
    k = min(3, e.d)
    rows = e.m.sample.vectors - e.sketch.mean
    top = rows @ e.m.centered.vectors[:, :k]
    value, each = _explained_variance(top, logs), _squared_correlations(top, logs)
    overall = _explained_variance(rows, logs)
    rng = np.random.default_rng(e.m.settings.seed)
    null = float(np.mean([_explained_variance(top, rng.permutation(logs)) for _ in range(_SHUFFLES)]))
    folds = np.array_split(rng.permutation(len(top)), FOLDS)
    left = [_explained_variance(np.delete(top, fold, axis=0), np.delete(logs, fold)) for fold in folds]
    low, high = e.around(value, nulls.jackknife_error(np.asarray(left)), FOLDS)
    source = f"shuffled frequencies explain a share of {abs(null):.1g}; {SHARE_SOURCE}"
    judged = Range.lower_is_better(SHARE_LOOK, SHARE_BAD, source, null)
    fact = (
        f"frequency explains {100 * value:.0f}% of the variance along the first {k} principal components and "
        f"{100 * overall:.0f}% of the total variance"
    )
    if judged.verdict(value) == "ok":
        meaning, advice = f"Distances depend little on word frequency: {fact}.", "Leave it."
    else:
        meaning = f"Rows are near each other partly because their frequencies are similar: {fact}. {ABOUT_SHAPE}"
        advice = (
            "Compare only rows of similar frequency, or remove the leading principal components (`isoscope fix "
            f"all-but-the-top`) {IF_CONFIRMED}."
        )
    ranked = e.m.columns.get("frequency") == INVERSE_RANK
    yield e.finding(
        "frequency",
        "Frequency in the leading principal components",
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
    """Return frequencies without zeros: 0 becomes half of the smallest positive frequency."""
    least = frequencies[frequencies > 0].min(initial=np.inf)
    return np.asarray(np.maximum(frequencies, least / 2 if np.isfinite(least) else 1.0))


def _squared_correlations(columns: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the squared correlation of each column with the values; 0 for a constant column."""
    columns, values = columns - columns.mean(axis=0), values - values.mean()
    size = (columns**2).sum(axis=0) * (values**2).sum()
    return np.asarray((values @ columns) ** 2 / np.where(size > 0, size, np.inf))


def _explained_variance(columns: np.ndarray, values: np.ndarray) -> float:
    """Return the share of the columns' variance that a linear fit on the values explains, corrected for chance."""
    weights, m = columns.var(axis=0), len(values)
    share = float(weights @ _squared_correlations(columns, values) / max(weights.sum(), 1e-300))
    return 1 - (1 - share) * (m - 1) / (m - 2)
