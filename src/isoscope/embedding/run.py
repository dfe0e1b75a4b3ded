"""Embedding runs, which compute rows block by block and write each block while the next one is computed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import InputError, NotFoundError, ParameterError, plural, warn_data
from isoscope.embedding.embedder import WindowBatch
from isoscope.embedding.pooling import check_finite, make_pooling
from isoscope.embedding.row_columns import column_names, column_roles, text_columns, token_columns
from isoscope.embedding.shards import MemoryWriter
from isoscope.embedding.tokens import Windows, batches
from isoscope.stores.manifest import EMBEDDING_SCHEMA
from isoscope.stores.table_schema import with_metadata

if TYPE_CHECKING:
    from isoscope._io.progress import Progress
    from isoscope.embedding.embedder import Embedder
    from isoscope.embedding.shards import Part, ShardWriter
    from isoscope.embedding.texts import Texts
    from isoscope.embedding.tokens import Block, Counts, Spool

_BLOCK_BYTES = 768 * 2**20  # bytes of vectors kept in memory until they are written
_BLOCK_TOKENS = 8_192, 65_536  # minimum and maximum tokens in a block; larger blocks need less padding
_UNKNOWN_SHARE_LIMIT = 0.02  # a larger share of unknown tokens causes a warning
_MOST_UNKNOWN = 0.95  # a larger share of unknown tokens is an error; a skipped word of word vectors is no token
_ROWS = {
    "tokens": "one row per token",
    "mean": "one row per text, the mean of its tokens",
    "cls": "one row per text, its first token",
    "last": "one row per text, its last token",
    "sentence-transformers": "one row per text, as Sentence Transformers computes it",
}


@dataclass(frozen=True)
class Settings:
    """The settings that determine the rows."""

    pool: str
    window: int
    stride: int | None
    special_tokens: str
    dtype: str
    max_tokens: int | None
    seed: int
    truncate: bool


class EmbeddingRun:
    """A model and tokenized texts, embedded block by block.

    If `describe` is true, the schema of the rows records the model and the settings, for a file without a manifest.
    """

    def __init__(
        self,
        embedder: Embedder,
        settings: Settings,
        spool: Spool,
        batch_tokens: int | None,
        *,
        describe: bool = False,
    ) -> None:
        self.embedder, self.settings, self.spool, self._describe = embedder, settings, spool, describe
        self.pooled = settings.pool != "tokens"
        self.batch_tokens = batch_tokens or embedder.batch_tokens
        self.dtype = np.dtype(settings.dtype)
        self.windows = _windows(embedder, settings)

    def read(self, source: Texts, progress: Progress) -> None:
        """Tokenize the texts, and sample them if `max_tokens` is set."""
        self.spool.fill(source, self.embedder.reader, self.windows, progress)
        if self.settings.max_tokens is not None:
            self.spool.choose(self.settings.max_tokens, self.settings.seed, whole=self.pooled)

    def settings_dict(self) -> dict[str, Any]:
        """Return all settings that determine the rows; a run with other values cannot be resumed."""
        own = asdict(self.settings) | {"window": self.windows.length}
        reader = self.embedder.reader
        if self.windows.step == self.windows.length - len(reader.before) - len(reader.after):
            own["stride"] = None  # so that it equals the default
        if self.settings.max_tokens is None:
            own["seed"] = None  # the seed has no effect, because nothing is sampled
        return {
            "weights": self.embedder.digest,
            "texts": self.spool.digest,
            "layers": self.embedder.layers,
            "dimensions": self.embedder.dim,
            "prompt": self.embedder.prompt,
            "columns": column_names(self.spool, pooled=self.pooled),
        } | own

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The content of the manifest other than the settings and the progress."""
        rows = self.spool.documents if self.pooled else self.spool.rows
        model = {"model": self.embedder.name, "part": self.embedder.part}
        return {**model, "rows": rows, "counts": asdict(self.spool.counts)}

    @cached_property
    def _metadata(self) -> dict[str, Any]:
        """Return the schema metadata: the settings, and the column roles that cannot be inferred from the names."""
        roles = column_roles(self.spool, pooled=self.pooled)
        own = {"schema": EMBEDDING_SCHEMA, **self.facts, "settings": self.settings_dict()} if self._describe else {}
        return {**own, **({} if roles is None else {"roles": roles})}

    def blocks(self) -> list[tuple[int, int]]:
        """Return the blocks as ranges of windows; they depend only on the settings."""
        each = len(self.embedder.layers) * self.embedder.dim * self.dtype.itemsize
        least, most = _BLOCK_TOKENS
        if self.pooled:
            sums = len(self.embedder.layers) * self.embedder.dim * 8
            return self.spool.blocks(most, whole=True, most_texts=max(1, _BLOCK_BYTES // sums))
        return self.spool.blocks(min(max(_BLOCK_BYTES // each, least), most), whole=False)

    def columns(self, block: Block) -> Any:
        """Return the columns of a block other than its vectors."""
        if self.pooled:
            table = text_columns(np.unique(block.documents), self.spool)
        else:
            table = token_columns(block, self.spool, self.embedder.strings)
        if not self._metadata:
            return table
        return table.replace_schema_metadata(with_metadata(table.schema, self._metadata).metadata)

    def allocate_rows(self, spans: list[tuple[int, int]]) -> dict[int, np.ndarray]:
        """Return arrays large enough for the token rows of any block."""
        most = 0 if self.pooled else max(self.spool.block_tokens(*span) for span in spans)
        return {layer: np.empty((most, self.embedder.dim), self.dtype) for layer in self.embedder.layers}

    def vectors(self, block: Block, room: dict[int, np.ndarray], tick: Callable[[int], None]) -> dict[int, np.ndarray]:
        """Return the rows of a block for each layer; call `tick` with the number of tokens read."""
        rows = make_pooling(self.settings.pool, block, self.embedder, room)
        starts = np.cumsum(block.lengths) - block.lengths
        with self.embedder.evaluation_mode():
            for chosen in batches(block.lengths, self.batch_tokens, pads=self.embedder.can_pad):
                lengths = block.lengths[chosen]
                places = starts[chosen][:, None] + np.minimum(np.arange(lengths.max()), lengths[:, None] - 1)
                ids = block.tokens["ids"][places].astype(np.int64)
                rows.take(WindowBatch(ids, lengths, block.documents[chosen], self.spool.text), chosen, places)
                tick(int(lengths.sum()))
        return rows.layer_rows()


def _windows(embedder: Embedder, settings: Settings) -> Windows:
    """Return the rules for splitting texts into windows for a model."""
    reader, longest = embedder.reader, embedder.max_length
    length = min(settings.window, longest or settings.window)
    only = {"cls": "first", "last": "last"}.get(settings.pool)
    if settings.truncate:
        only = "first"
    if settings.pool == "sentence-transformers":
        length, only = longest or 2**31, "first"
    room = length - len(reader.before) - len(reader.after)
    if room < 1:
        raise ParameterError(
            f"window is {length}, but the special tokens alone take {length - room}: need at least {length - room + 1}"
        )
    step = settings.stride if settings.stride is not None else room
    if step > room:
        raise ParameterError(
            f"stride is {step}, which skips tokens between windows of {room} tokens: need at most {room}"
        )
    if settings.pool == "cls" and not reader.before:
        raise ParameterError(f'{embedder.name} adds no token such as [CLS] before a text: use pool="mean" or "last"')
    return Windows(length, step, only, step < room and embedder.causal(), settings.special_tokens == "keep")


def run(
    work: EmbeddingRun,
    shards: ShardWriter | None,
    progress: Progress,
    say: Callable[[str], None] | None,
    *,
    restart: bool,
) -> MemoryWriter | None:
    """Embed the missing blocks, and write each block while the next one is computed.

    If `shards` is None, return all rows in memory.
    """
    spool = work.spool
    spans = work.blocks()
    memory = MemoryWriter()
    into: MemoryWriter | ShardWriter = memory if shards is None else shards
    done = 0
    _report_counts(spool.counts, work, say)
    work.embedder.prepare(np.flatnonzero(spool.frequency))
    if shards is not None:
        message = shards.begin(work.settings_dict(), work.facts, len(spans), progress, restart=restart)
        done = shards.blocks_done
        if message and say is not None:
            say(message)
        if done == len(spans):
            return None
    tokens = [int(spool.block_tokens(*span)) for span in spans]
    read, total = sum(tokens[:done]), max(1, sum(tokens))

    def tick(more: int) -> None:
        nonlocal read
        read += more
        progress("embedding", read, read / total)

    def write_block(number: int, block: Block, vectors: dict[int, np.ndarray]) -> list[Part]:
        check_finite(vectors, work.embedder.name)
        return into.write(number, work.columns(block), vectors)

    # On a CPU all cores compute, so writing takes turns with computing; only flushing to disk runs in the background.
    # With a GPU a block is written while the next one is computed into other arrays.
    spare = work.embedder.uses_accelerator
    rooms = [work.allocate_rows(spans) for _ in range(2 if spare and len(spans) > done + 1 else 1)]
    progress("embedding", read, read / total)
    try:
        with ThreadPoolExecutor(1) as background:
            pending: Future[None] | None = None
            for number in range(done, len(spans)):
                block = spool.block(*spans[number])
                vectors = work.vectors(block, rooms[number % len(rooms)], tick)
                if pending is not None:
                    pending.result()
                if spare:
                    pending = background.submit(lambda *block: into.commit(write_block(*block)), number, block, vectors)
                else:
                    pending = background.submit(into.commit, write_block(number, block, vectors))
            if pending is not None:
                pending.result()
    except InputError:
        raise
    except BaseException as error:
        if shards is not None:
            error.add_note(f"run the same command again to resume from part {shards.blocks_done + 1} of {len(spans)}")
        raise
    return None if shards is not None else memory


def _report_counts(counts: Counts, work: EmbeddingRun, say: Callable[[str], None] | None) -> None:
    """Report counts of texts and tokens; if `say` is None, only warn about unread and unknown tokens."""
    columns = "".join(f", {role} from column {name}" for role, name in work.spool.columns.items())
    notes = [f"{plural(counts.texts, 'text')}, {plural(counts.tokens, 'token')}{columns}", _describe_rows(work)]
    warnings: list[str] = []
    if work.windows.length < work.settings.window:
        notes.append(f"windows of {work.windows.length} tokens, the model's limit")
    if counts.empty:
        have, which = ("has", "it has") if counts.empty == 1 else ("have", "they have")
        listed = ", ".join(work.spool.without_tokens) + (", …" if counts.empty > len(work.spool.without_tokens) else "")
        notes.append(f"{plural(counts.empty, 'text')} {have} no tokens, so {which} no row: {listed}")
    if counts.longer:
        longer = f"{plural(counts.longer, 'text')} {_are(counts.longer)} longer"
        room = f"{longer} than a window of {work.windows.length} tokens"
        if counts.unread:
            wanted = work.settings.truncate
            own = not wanted and work.settings.pool == "sentence-transformers"
            hint = '; pool="mean" (CLI: --pool mean) reads all windows' if own else ""
            unread = f"{plural(counts.unread, 'token')} {_are(counts.unread)} not read"
            (notes if wanted else warnings).append(f"{room}: {unread}{hint}")
        else:
            notes.append(f"{room}: read in several windows")
    if unknown := counts.unknown + counts.missed:
        share = unknown / (counts.tokens + counts.missed)
        percent = f"{100 * share:{'.0f' if share > 0.1 else '.2g'}}%"
        words = f"{plural(unknown, 'token')} ({percent}) {_are(unknown)} not in the vocabulary of {work.embedder.name}"
        if counts.unknown > _MOST_UNKNOWN * counts.tokens:
            raise NotFoundError(
                f"{words}, so the vectors would not represent the texts: use a model for the language of the texts, "
                "and check that its tokenizer files are complete"
            )
        (warnings if share > _UNKNOWN_SHARE_LIMIT else notes).append(words)
    if counts.without_id:
        have = "has" if counts.without_id == 1 else "have"
        warnings.append(f"{counts.without_id:,} of {plural(counts.texts, 'text')} {have} no id")
    if counts.left_out:
        left_out = f"{plural(counts.left_out, 'token')} {_are(counts.left_out)} not embedded"
        notes.append(f"{left_out}: max_tokens is {work.settings.max_tokens:,}")
    for words in warnings if say is None else [*notes, *warnings]:
        (say or warn_data)(words)


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _describe_rows(work: EmbeddingRun) -> str:
    """Return a sentence on what a row is, and on the layers and the part of the model that it comes from."""
    layers, pool = work.embedder.layers, work.settings.pool
    which = f"layer {layers[0]}" if len(layers) == 1 else f"each of {len(layers)} layers"
    where = "" if pool == "sentence-transformers" else f" in {which}"
    return f"{_ROWS[pool]}{where}; model: {work.embedder.part}"
