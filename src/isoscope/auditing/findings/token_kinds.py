"""The kind of a token, told from its string: whether it begins a word, goes on with one, or is a number or a sign."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import numpy as np

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
