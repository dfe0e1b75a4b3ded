"""Tokenize texts, store the tokens in files, split them into windows for a model and read them block by block."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from isoscope._core.errors import MissingValueError, ParameterError
from isoscope.embedding.texts import FIELDS, is_missing, replace_surrogates

if TYPE_CHECKING:
    from isoscope._io.progress import Progress
    from isoscope.embedding.texts import Texts


_MAX_LISTED = 3  # texts without tokens that a message names
_TEXTS_PER_BATCH = 256  # number of texts tokenized together
_TOKEN = {"ids": "<i4", "kept": "u1", "positions": "<i4", "starts": "<i4", "ends": "<i4"}
"""The fields of a token: id, whether it becomes a row, position in the text, first character and end character."""
_A = {"label": "a label", "id": "an id"}
_WINDOW = np.dtype([("document", "<i8"), ("at", "<i8"), ("length", "<i4"), ("rows", "<i4")])


class Tokens(NamedTuple):
    """The tokens of one text, without special tokens."""

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


class Tokenizer(Protocol):
    """An object that splits texts into tokens."""

    @property
    def before(self) -> Sequence[int]:
        """The special tokens before every window."""

    @property
    def after(self) -> Sequence[int]:
        """The special tokens after every window."""

    @property
    def unknown(self) -> int | None:
        """The id of the unknown token, if there is one."""

    @property
    def missed(self) -> int:
        """The number of words skipped because they are not in the vocabulary."""

    def read(self, texts: list[str]) -> list[Tokens]:
        """Return the tokens of each text."""


@dataclass(frozen=True)
class Windows:
    """The rules for splitting texts into windows, each of which a model reads in one pass."""

    length: int
    """The number of tokens in a window, including special ones."""
    step: int
    """The number of tokens from the start of a window to the start of the next."""
    only: str | None = None
    """"first" or "last" if only that window of a text is needed; None for all windows."""
    causal: bool = False
    """Whether a token depends only on earlier ones, so that the earlier of two overlapping windows has more context."""
    special: bool = False
    """Whether special tokens become rows."""

    def split(self, n: int, room: int) -> list[tuple[int, int, int, int]]:
        """Split n tokens into windows: return (start, stop) of each window, and (start, stop) of its row tokens."""
        if n <= room or self.only == "first":
            return [(0, min(n, room), 0, min(n, room))]
        if self.only == "last":
            return [(n - room, n, n - room, n)]
        starts = [*range(0, n - room, self.step)]
        starts.append(starts[-1] + self.step)
        ends = [min(start + room, n) for start in starts]
        overlaps = zip(ends[:-1], starts[1:], strict=True)
        borders = [end if self.causal else (end + start) // 2 for end, start in overlaps]
        return [*zip(starts, ends, [0, *borders], [*borders, n], strict=True)]


@dataclass
class Counts:
    """Counts of texts and tokens."""

    texts: int = 0
    empty: int = 0
    tokens: int = 0
    """The number of tokens in all texts, without special tokens."""
    unknown: int = 0
    """The number of unknown tokens."""
    missed: int = 0
    """The number of words that were skipped because they are not in the vocabulary."""
    longer: int = 0
    """The number of texts longer than a window."""
    unread: int = 0
    """The number of tokens of these texts that are in no window."""
    left_out: int = 0
    """The number of tokens that are not embedded because of `max_tokens`."""
    without_id: int = 0
    """The number of texts without an id, if other texts have one."""


class Block(NamedTuple):
    """Consecutive windows and their tokens."""

    documents: np.ndarray
    lengths: np.ndarray
    rows: np.ndarray
    """The number of tokens of each window that become rows."""
    tokens: dict[str, np.ndarray]
    """The fields of `_TOKEN`, concatenated over all windows."""


@dataclass
class Spool:
    """Texts, labels, ids and tokens in the files of a folder; `fill` writes them, and the other methods read them."""

    folder: Path
    counts: Counts = field(default_factory=Counts)
    frequency: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    """The number of occurrences of each token id in the texts."""
    kinds: dict[str, str] = field(default_factory=dict)
    """The type of the labels and of the ids: int, float or str. There is no entry if no text has a label or an id."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """The columns that the texts were read from; see `Texts`."""
    without_tokens: list[str] = field(default_factory=list)
    """The first three texts without tokens: their ids, or else their numbers, counted from 1."""
    digest: str = ""
    """A checksum of the texts, their tokens, labels and ids."""
    _maps: dict[str, np.ndarray] = field(default_factory=dict)

    def fill(self, texts: Texts, reader: Tokenizer, windows: Windows, progress: Progress) -> None:
        """Tokenize all texts and write them to the folder."""
        room = windows.length - len(reader.before) - len(reader.after)
        digest = hashlib.blake2b(repr([*reader.before, 0, *reader.after]).encode(), digest_size=16)
        types: dict[str, set[type]] = {name: set() for name in FIELDS.values()}
        with ExitStack() as stack:
            values_and_ends = (f"{name}_{what}" for name in ("text", *types) for what in ("values", "ends"))
            names = (*_TOKEN, "windows", *values_and_ends)
            files = {name: stack.enter_context((self.folder / name).open("wb")) for name in names}
            at = 0
            reading = texts.read()
            while group := list(islice(reading, _TEXTS_PER_BATCH)):
                spoken = [
                    each.text.strip() and replace_surrogates(each.text) for each in group
                ]  # some tokenizers have a token for spaces
                for each, tokens in zip(group, reader.read(spoken), strict=True):
                    values = {name: _plain_value(getattr(each, name), name) for name in types}
                    written = {name: _encode_value(value, name) for name, value in values.items()}
                    for name, data in {"text": each.text.encode("utf-8", "surrogatepass"), **written}.items():
                        files[f"{name}_values"].write(data)
                        files[f"{name}_ends"].write(np.int64(files[f"{name}_values"].tell()).tobytes())
                        if name != "id" or values["id"] is not None:
                            digest.update(len(data).to_bytes(8, "little") + data)
                    digest.update(tokens.ids.astype("<i8").tobytes())  # a different tokenizer yields different rows
                    for name, value in values.items():
                        if value is not None:
                            types[name].add(type(value))
                    self.counts.without_id += values["id"] is None
                    if not len(tokens.ids) and len(self.without_tokens) < _MAX_LISTED:
                        number, own = f"text {self.counts.texts + 1:,}", values["id"]
                        self.without_tokens.append(number if own is None else f"id {own}")
                    spans = windows.split(len(tokens.ids), room) if len(tokens.ids) else []
                    self._count(tokens, reader.unknown, room, spans)
                    for span in spans:
                        window = _window(tokens, span, reader, windows.special)
                        for name, kind in _TOKEN.items():
                            files[name].write(window[name].astype(kind).tobytes())
                        if windows.special:
                            self._add_frequencies(np.asarray([*reader.before, *reader.after], int))
                        rows, length = int(window["kept"].sum()), len(window["ids"])
                        one = np.array([(self.counts.texts, at, length, rows)], _WINDOW)
                        files["windows"].write(one.tobytes())
                        at += length
                    self.counts.texts += 1
                progress("reading texts", self.counts.texts, 0.0)
        if not self.counts.texts:
            raise MissingValueError(f"{texts.name} contains no texts: there is nothing to embed")
        if not at:
            raise MissingValueError(
                f"all {self.counts.texts:,} texts in {texts.name} are empty: there is nothing to embed"
            )
        self.counts.missed = reader.missed
        chosen = {FIELDS[role]: _choose_kind(types[FIELDS[role]], role, texts) for role in FIELDS}
        self.kinds = {name: kind for name, kind in chosen.items() if kind is not None}
        self.columns = texts.columns
        if "id" not in self.kinds:
            self.counts.without_id = 0
        self.digest = digest.hexdigest()
        self._chosen = np.arange(len(self._windows()))
        self._cut = -1, 0

    def _count(self, tokens: Tokens, unknown: int | None, room: int, spans: list[tuple[int, int, int, int]]) -> None:
        n = len(tokens.ids)
        self.counts.empty += n == 0
        self.counts.tokens += n
        self.counts.longer += n > room
        self.counts.unread += n - sum(stop - start for _, _, start, stop in spans)
        if n:
            if unknown is not None:
                self.counts.unknown += int((tokens.ids == unknown).sum())
            self._add_frequencies(tokens.ids)

    def _add_frequencies(self, ids: np.ndarray) -> None:
        if len(ids) and (most := int(ids.max())) >= len(self.frequency):
            self.frequency = np.append(self.frequency, np.zeros(most + 1, np.int64))
        np.add.at(self.frequency, ids, 1)

    def choose(self, most: int, seed: int, *, whole: bool) -> None:
        """Sample windows with at most `most` rows in total; if `whole`, sample texts with at most `most` tokens."""
        windows = self._windows()
        if whole:
            _, unit = np.unique(windows["document"], return_inverse=True)
            sizes = np.bincount(unit, windows["length"]).astype(np.int64)
        else:
            unit, sizes = np.arange(len(windows)), windows["rows"].astype(np.int64)
        order = np.random.default_rng(seed).permutation(len(sizes))
        total = np.cumsum(sizes[order])
        if total[-1] <= most:
            return
        fit = int(np.searchsorted(total, most, "right" if whole else "left")) + (not whole)
        if not fit:
            raise ParameterError(
                f"max_tokens is {most}, but the first sampled text has {total[0]:,} tokens: need at least that many"
            )
        taken = np.zeros(len(sizes), bool)
        taken[order[:fit]] = True
        self._chosen = np.flatnonzero(taken[unit])
        if not whole:  # the window sampled last is truncated
            self._cut = int(order[fit - 1]), int(total[fit - 1]) - most
        self.counts.left_out = int(windows["rows"].sum()) - self.rows

    @property
    def documents(self) -> int:
        """The number of sampled texts."""
        return len(np.unique(self._windows()["document"][self._chosen]))

    @property
    def rows(self) -> int:
        """The number of tokens that become rows."""
        return int(self._windows()["rows"][self._chosen].sum()) - self._cut[1]

    def blocks(self, most_tokens: int, *, whole: bool, most_texts: int | None = None) -> list[tuple[int, int]]:
        """Split the sampled windows into blocks of at most `most_tokens` tokens; if `whole`, never split a text."""
        windows = self._windows()[self._chosen]
        ends = np.cumsum(windows["length"])
        borders = np.arange(1, len(windows) + 1)
        if whole:
            borders = np.append(np.flatnonzero(np.diff(windows["document"])) + 1, len(windows))
        reached = ends[borders - 1]
        found, place = [], 0  # index of the next border
        while place < len(borders):
            start, read = (int(borders[place - 1]), int(reached[place - 1])) if place else (0, 0)
            reaches = int(np.searchsorted(reached, read + most_tokens, "right"))
            place = max(place + 1, reaches if most_texts is None else min(reaches, place + most_texts))
            found.append((start, int(borders[place - 1])))
        return found

    def block_tokens(self, start: int, stop: int) -> int:
        """Return the number of tokens in a range of sampled windows."""
        return int(self._windows()["length"][self._chosen[start:stop]].sum())

    def block(self, start: int, stop: int) -> Block:
        """Return a range of sampled windows with their tokens."""
        windows = self._windows()[self._chosen[start:stop]]
        places = np.concatenate([np.arange(w["at"], w["at"] + w["length"]) for w in windows])
        tokens = {name: np.asarray(self._tokens(name)[places]) for name in _TOKEN}
        rows = windows["rows"].copy()
        window, over = self._cut
        if over and window in self._chosen[start:stop]:
            place = int(np.searchsorted(self._chosen[start:stop], window))
            end = int(windows["length"][: place + 1].sum())
            last = np.flatnonzero(tokens["kept"][:end])[-over:]
            tokens["kept"][last] = 0
            rows[place] -= over
        return Block(windows["document"], windows["length"], rows, tokens)

    def text(self, document: int) -> str:
        """Return a text by its number."""
        return self._blob("text", document).decode("utf-8", "surrogatepass")

    def value(self, name: str, document: int) -> Any:
        """Return the label or the id of a text, in the type that all labels or ids share, or None if it has none."""
        value = json.loads(self._blob(name, document))
        return None if value is None else {"int": int, "float": float, "str": str}[self.kinds[name]](value)

    def _blob(self, kind: str, number: int) -> bytes:
        ends = self._mapped(f"{kind}_ends", "<i8")
        start = int(ends[number - 1]) if number else 0
        return self._mapped(f"{kind}_values", "u1")[start : int(ends[number])].tobytes()

    def _windows(self) -> np.ndarray:
        return self._mapped("windows", _WINDOW)

    def _tokens(self, name: str) -> np.ndarray:
        return self._mapped(name, _TOKEN[name])

    def _mapped(self, name: str, dtype: Any) -> np.ndarray:
        if name not in self._maps:
            path = self.folder / name
            self._maps[name] = np.memmap(path, dtype, "r") if path.stat().st_size else np.zeros(0, dtype)
        return self._maps[name]

    def close(self) -> None:
        """Close the files."""
        self._maps.clear()


def _plain_value(value: Any, name: str) -> Any:
    """Return a label or an id as a Python value, or None if it is missing."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ParameterError(f"{_A[name]} is {value}: need 64-bit integers or strings")
    return None if is_missing(value) else value


def _encode_value(value: Any, name: str) -> bytes:
    try:
        return json.dumps(value).encode()
    except TypeError as error:
        raise ParameterError(f"{_A[name]} is a {type(value).__name__}: need a number or a string") from error


def _choose_kind(kinds: set[type], role: str, texts: Texts) -> str | None:
    """Return the type that all labels or all ids share: int or float if possible, otherwise str."""
    if not kinds:
        return None
    if any(issubclass(kind, list | dict | tuple) for kind in kinds):
        where = f"column {texts.columns[role]} of {texts.name}" if role in texts.columns else texts.name
        raise ParameterError(
            f"the {role} in {where} are lists or objects: need one number or string per text; choose another column "
            f'with {role}="NAME" (on the command line: --columns {role}=NAME)'
        )
    if all(issubclass(kind, int) for kind in kinds):
        return "int"
    return "float" if all(issubclass(kind, int | float) for kind in kinds) else "str"


def _window(tokens: Tokens, span: tuple[int, int, int, int], reader: Tokenizer, special: bool) -> dict[str, np.ndarray]:
    start, stop, first, last = span
    before, after = np.asarray(reader.before, int), np.asarray(reader.after, int)
    kept = np.zeros(stop - start, bool)
    kept[first - start : last - start] = True

    def around(values: np.ndarray, front: Any, back: Any) -> np.ndarray:
        return np.concatenate([np.full(len(before), front), values, np.full(len(after), back)])

    ends = int(tokens.ends[stop - 1]) if stop else 0
    return {
        "ids": np.concatenate([before, tokens.ids[start:stop], after]),
        "kept": around(kept, special, special),
        "positions": around(np.arange(start, stop), -1, -1),
        "starts": around(tokens.starts[start:stop], int(tokens.starts[start]), ends),
        "ends": around(tokens.ends[start:stop], int(tokens.starts[start]), ends),
    }


def batches(lengths: np.ndarray, most_tokens: int, *, pads: bool = True) -> Iterator[np.ndarray]:
    """Yield batches of windows of similar length, with at most `most_tokens` tokens including padding.

    A batch that is at least a quarter full ends before a window that is over 10% longer than its first window, because
    a smaller batch costs less than padding. If `pads` is false, only windows of equal length share a batch.
    """
    order = np.argsort(lengths, kind="stable")
    ordered = lengths[order].tolist()
    start = 0
    for stop, length in enumerate(ordered[1:], 1):
        count = stop - start
        uneven = ordered[start] < 0.9 * length and length * count >= most_tokens / 4
        uneven = uneven or (not pads and ordered[start] < length)
        if uneven or length * (count + 1) > most_tokens:
            yield order[start:stop]
            start = stop
    yield order[start:]
