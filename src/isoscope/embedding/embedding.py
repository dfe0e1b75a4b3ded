"""Texts through a model, layer by layer, into a store: streamed to the disk, gone on with after an interruption."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isoscope.arrays import whole
from isoscope.embedding.embedder import Embedder, Given
from isoscope.embedding.gathering import gathering, refuse_nonfinite
from isoscope.embedding.rows import text_columns, token_columns
from isoscope.embedding.shards import Held, Shards
from isoscope.embedding.spool import Block, Counts, Progress, Spool, Windows, batches
from isoscope.embedding.texts import open_texts
from isoscope.embedding.words import open_words
from isoscope.errors import InputError, MissingExtra, tell
from isoscope.stores import Store, open_store

POOLS = ("tokens", "mean", "cls", "last", "sentence-transformers")
WINDOW = 512
"""Tokens that a model reads at once, unless it can read fewer."""

_BLOCK_BYTES = 512 * 2**20  # of vectors that are held until they are written
_BLOCK_TOKENS = 8_192, 49_152  # at least and at most in a block: the more, the less padding
_MUCH = 0.02  # of the tokens that are unknown


@dataclass(frozen=True)
class Settings:
    """What was asked for, and decides what the rows are."""

    pool: str
    window: int
    stride: int | None
    special_tokens: str
    dtype: str
    max_tokens: int | None
    seed: int


def embed(
    model: Any,
    texts: Any,
    output: str | os.PathLike[str] | None = None,
    *,
    layers: Any = None,
    pool: str = "tokens",
    window: int | None = None,
    stride: int | None = None,
    special_tokens: str | None = None,
    dtype: str = "float32",
    max_tokens: int | None = None,
    text: str | None = None,
    labels: Any = None,
    split: str = "line",
    config: str | None = None,
    part: str | None = None,
    tokenizer: Any = None,
    device: str | None = None,
    batch_tokens: int | None = None,
    seed: int = 0,
    trust_remote_code: bool = False,
    restart: bool = False,
    progress: bool | Progress = False,
    say: Callable[[str], None] | None = None,
) -> Store:
    """Give texts to a model and keep its hidden states, layer by layer, as a store.

    Parameters
    ----------
    model : path, name, or model
        The folder of a model or its name on the Hugging Face hub: encoders, decoders, the encoder of an
        encoder-decoder, Sentence Transformers; a file of word vectors (GloVe, word2vec, fastText), or a folder with
        `vectors.npy` and `words.txt`; or a loaded model (then with its `tokenizer`).
    texts : path, name, Dataset, or iterable of str
        A `.csv`, `.tsv`, `.jsonl` or `.parquet` file, any other file as plain text, a folder or name that `datasets`
        loads, or the strings. A text without any token has no row; it is counted, and keeps its number.
    output : path, optional
        The folder to write. An interrupted run is gone on with by the same call. Unless given, all is held in memory.
    layers : int, list of int, or "all"
        As in `hidden_states`: 0 is what goes into the first layer, i what comes out of the i-th, −1 the last, after the
        model's final norm. All unless given.
    pool : {"tokens", "mean", "cls", "last", "sentence-transformers"}
        What a row is: each token; a text, by the mean of its tokens, by its first or by its last one; or a text as a
        Sentence Transformers model embeds it.
    window, stride : int, optional
        How many tokens the model reads at once, special ones among them (512, or fewer if it can read fewer), and how
        far a long text's next window begins behind the one before (a whole window, so that none overlap). Where
        windows overlap a token's row comes from the window that shows most of its context.
    special_tokens : {"keep", "drop"}, optional
        Whether [CLS], [SEP], <s> and the like become rows and count for a mean. The model always reads them. By default
        tokens drop them, means keep them.
    dtype : {"float32", "float16"}
        Of the rows. The model computes in float32.
    max_tokens : int, optional
        Take a random choice of windows with so many rows (for pooled rows: of texts, with at most so many tokens).
    text, labels : str, optional
        The columns of a table that hold the texts and the labels; ones with usual names unless given. `labels` may also
        be a sequence with one for each text.
    split : {"line", "paragraph", "file"}
        What one text of a plain text file is.
    config, part : str, optional
        A dataset's configuration and split.
    tokenizer : tokenizer, optional
        Of a model that is given loaded.
    device : str, optional
        Where to compute: "cpu", "cuda", …; a GPU if there is one.
    batch_tokens : int, optional
        Tokens in a batch, once padded: 2,048 on a CPU, 16,384 elsewhere. Texts of like length go together.
    seed : int
        Of the choice that `max_tokens` makes.
    trust_remote_code : bool
        Run code that comes with the model. Never unless asked.
    restart : bool
        Throw away what an earlier run left in the folder.
    progress : bool or function
        Show a bar on the terminal; or a function that is told the stage, the tokens read and the share done.
    say : function, optional
        Told in sentences what was found in the texts, and from where a run goes on.

    Returns
    -------
    Store
        Its columns are `layer`, `document` (the text's number), `text`, `label` if there are labels; and for tokens
        `token_id`, `token`, `frequency` (how often it occurs in all texts) and `position` (in the text; −1 for a
        special token), with `text` the token in its context. Rows come layer after layer, in the order of the texts.

    Examples
    --------
    >>> import isoscope
    >>> with open("tiny.vec", "w") as file:
    ...     _ = file.write("river 1 0.5\\nbank -1 0.25\\nmoney 0 2\\n")
    >>> found = isoscope.embed("tiny.vec", ["river bank", "money bank"], pool="mean")
    >>> found.take([0, 1]).tolist(), found.text.tolist()
    ([[0.0, 0.375], [-0.5, 1.125]], ['river bank', 'money bank'])
    """
    source = open_texts(texts, text=text, labels=labels, split=split, config=config, part=part)
    settings = _checked(pool, window, stride, special_tokens, dtype, max_tokens, seed)
    if batch_tokens is not None and whole(batch_tokens, "batch_tokens") < 1:
        raise InputError(f"batch_tokens is {batch_tokens}: need 1 at least")
    embedder = _open_model(model, settings, layers, tokenizer, device, trust_remote_code)
    with ExitStack() as stack:
        stack.callback(embedder.close)
        shards = None if output is None else Shards(Path(output).expanduser())
        if shards is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        else:
            folder = stack.enter_context(shards.opened(restart=restart))
        shown = progress or _silent
        if progress is True:
            from isoscope.report.terminal import Bar

            shown = stack.enter_context(Bar("tokens"))
        assert callable(shown)
        work = _Work(embedder, settings, Spool(folder), batch_tokens)
        work.spool.fill(source, embedder.reader, work.windows, shown)
        held = _run(work, shards, shown, say)
    return open_store(held.table() if held is not None else shards.folder if shards is not None else None)


def _silent(stage: str, rows: int, share: float) -> None:
    """Show nothing."""


def _checked(
    pool: str,
    window: int | None,
    stride: int | None,
    special_tokens: str | None,
    dtype: str,
    max_tokens: int | None,
    seed: int,
) -> Settings:
    """Refuse what cannot be meant."""
    if pool not in POOLS:
        raise InputError(f"pool is {pool!r}: need one of {', '.join(POOLS)}")
    if special_tokens not in (None, "keep", "drop"):
        raise InputError(f'special_tokens is {special_tokens!r}: need "keep" or "drop"')
    if dtype not in ("float16", "float32"):
        raise InputError(f'dtype is {dtype!r}: need "float16" or "float32"')
    for name, value in (("window", window), ("stride", stride), ("max_tokens", max_tokens)):
        if value is not None and whole(value, name) < 1:
            raise InputError(f"{name} is {value}: need 1 at least")
    if not 0 <= whole(seed, "seed") < 2**32:
        raise InputError(f"seed is {seed}: need a whole number from 0 to {2**32 - 1}")
    if pool == "cls" and special_tokens == "drop":
        raise InputError("pool is cls and special_tokens is drop: [CLS] is such a token; keep them, or pool otherwise")
    if pool == "sentence-transformers":
        theirs: dict[str, Any] = {"window": window, "stride": stride, "special_tokens": special_tokens}
        for name, value in theirs.items():
            if value is not None:
                raise InputError(
                    f"{name} is {value!r} and pool is sentence-transformers: the model itself decides that"
                )
    if stride is not None and pool in ("cls", "last"):
        raise InputError(f"stride is {stride} and pool is {pool}: one window of a text is read, there is no next one")
    kept = special_tokens or ("drop" if pool == "tokens" else "keep")
    return Settings(pool, window or WINDOW, stride, kept, dtype, max_tokens, seed)


def _open_model(
    model: Any, settings: Settings, layers: Any, tokenizer: Any, device: str | None, trust: bool
) -> Embedder:
    """Load whatever is named."""
    model = os.fspath(model) if isinstance(model, os.PathLike) else model
    static = open_words(model) if isinstance(model, str) else None
    if static is not None:
        if settings.pool not in ("tokens", "mean"):
            raise InputError(f"pool is {settings.pool} and {model} holds word vectors: need tokens or mean")
        if layers not in (None, "all", 0, -1, [0], [-1]):
            raise InputError(f"layers is {layers} and {model} holds word vectors, which have no layers: leave it out")
        return static
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f'embedding with a model needs {error.name}, which is not installed: pip install "isoscope[embed]"'
        ) from error
    if settings.pool == "sentence-transformers":
        from isoscope.embedding.sentences import Sentences

        if layers not in (None, -1, [-1]):
            raise InputError(
                f"layers is {layers} and pool is sentence-transformers, which takes the last: leave it out"
            )
        return Sentences(model, device=device, trust_remote_code=trust)
    from isoscope.embedding.transformer import Transformer

    wanted = "all" if layers is None else layers
    return Transformer(model, tokenizer=tokenizer, layers=wanted, device=device, trust_remote_code=trust)


class _Work:
    """A model and texts, and what is computed of them block by block."""

    def __init__(self, embedder: Embedder, settings: Settings, spool: Spool, batch_tokens: int | None) -> None:
        self.embedder, self.settings, self.spool = embedder, settings, spool
        self.pooled = settings.pool != "tokens"
        self.batch_tokens = batch_tokens or embedder.batch_tokens
        self.dtype = np.dtype(settings.dtype)
        self.windows = _windows(embedder, settings)

    def about(self) -> dict[str, Any]:
        """What decides the rows: a run with other settings cannot be gone on with."""
        own = asdict(self.settings) | {"window": self.windows.length}
        return {
            "weights": self.embedder.digest,
            "texts": self.spool.digest,
            "layers": self.embedder.layers,
            "dimensions": self.embedder.dim,
        } | own

    def blocks(self) -> list[tuple[int, int]]:
        """Where the windows are cut; depends on the settings alone."""
        each = len(self.embedder.layers) * self.embedder.dim * self.dtype.itemsize
        least, most = _BLOCK_TOKENS
        tokens = most if self.pooled else min(max(_BLOCK_BYTES // each, least), most)
        return self.spool.cuts(tokens, whole=self.pooled)

    def columns(self, block: Block) -> Any:
        """What stands beside the vectors of a block."""
        if self.pooled:
            return text_columns(np.unique(block.documents), self.spool)
        return token_columns(block, self.spool, self.embedder.strings)

    def room(self, cuts: list[tuple[int, int]]) -> dict[int, np.ndarray]:
        """Arrays that hold the tokens' rows of any block."""
        most = 0 if self.pooled else max(self.spool.block_tokens(*cut) for cut in cuts)
        return {layer: np.empty((most, self.embedder.dim), self.dtype) for layer in self.embedder.layers}

    def vectors(self, block: Block, room: dict[int, np.ndarray], tick: Callable[[int], None]) -> dict[int, np.ndarray]:
        """The rows of a block, for each layer; `tick` is told how many tokens were read."""
        rows = gathering(self.settings.pool, block, self.embedder, room)
        starts = np.cumsum(block.lengths) - block.lengths
        with self.embedder.evaluating():
            for chosen in batches(block.lengths, self.batch_tokens):
                lengths = block.lengths[chosen]
                places = starts[chosen][:, None] + np.minimum(np.arange(lengths.max()), lengths[:, None] - 1)
                ids = block.tokens["ids"][places].astype(np.int64)
                rows.take(Given(ids, lengths, block.documents[chosen], self.spool.text), chosen, places)
                tick(int(lengths.sum()))
        return rows.found()


def _windows(embedder: Embedder, settings: Settings) -> Windows:
    """How texts are cut for a model."""
    reader, longest = embedder.reader, embedder.longest
    length = min(settings.window, longest or settings.window)
    only = {"cls": "first", "last": "last"}.get(settings.pool)
    if settings.pool == "sentence-transformers":
        length, only = longest or 2**31, "first"
    room = length - len(reader.before) - len(reader.after)
    if room < 1:
        raise InputError(f"window is {length}: {length - room} of it are special tokens; need 1 more at least")
    step = settings.stride if settings.stride is not None else room
    if step > room:
        raise InputError(f"stride is {step}: it would skip tokens between windows of {room}; need {room} at most")
    if settings.pool == "cls" and not reader.before:
        raise InputError(f"{embedder.name} puts no token such as [CLS] before a text: pool by mean or last")
    return Windows(length, step, only, step < room and embedder.causal(), settings.special_tokens == "keep")


def _run(work: _Work, shards: Shards | None, progress: Progress, say: Callable[[str], None] | None) -> Held | None:
    """Embed what is not done yet, and write it while the next block is computed."""
    spool, settings = work.spool, work.settings
    if settings.max_tokens is not None:
        spool.choose(settings.max_tokens, settings.seed, whole=work.pooled)
    cuts = work.blocks()
    held = Held()
    write, done = held.write, 0
    _tell_counts(spool.counts, work, say)
    if shards is not None:
        facts = {"model": work.embedder.name, "rows": spool.rows, "counts": asdict(spool.counts)}
        said = shards.begin(work.about(), facts, len(cuts))
        write, done = shards.write, shards.done
        if said and say is not None:
            say(said)
        if done == len(cuts):
            return None
    tokens = [int(spool.block_tokens(*cut)) for cut in cuts]
    read, total = sum(tokens[:done]), max(1, sum(tokens))
    work.embedder.prepare(np.flatnonzero(spool.frequency))

    def tick(more: int) -> None:
        nonlocal read
        read += more
        progress("embedding", read, read / total)

    def put(number: int, block: Block, vectors: dict[int, np.ndarray]) -> None:
        refuse_nonfinite(vectors, work.embedder.name)
        write(number, work.columns(block), vectors)

    progress("embedding", read, read / total)
    try:
        with ThreadPoolExecutor(1) as writer:
            pending: Future[None] | None = None
            rooms = [work.room(cuts) for _ in range(min(2, len(cuts) - done))]  # one is filled, one is written
            for number in range(done, len(cuts)):
                block = spool.block(*cuts[number])
                vectors = work.vectors(block, rooms[(number - done) % 2], tick)
                if pending is not None:
                    pending.result()
                pending = writer.submit(put, number, block, vectors)
            if pending is not None:
                pending.result()
    except InputError:
        raise
    except BaseException as error:
        if shards is not None:
            error.add_note(f"run the same command again to go on from part {shards.done + 1} of {len(cuts)}")
        raise
    return None if shards is not None else held


def _tell_counts(counts: Counts, work: _Work, say: Callable[[str], None] | None) -> None:
    """Say what was found in the texts; where nobody listens, warn of what was not read."""
    notes = [f"{counts.texts:,} texts, {counts.tokens:,} tokens"]
    warnings = []
    if counts.empty:
        notes.append(f"{counts.empty:,} texts have no token and no row")
    if counts.longer:
        room = f"{counts.longer:,} texts are longer than a window of {work.windows.length} tokens"
        if counts.unread:
            warnings.append(f"{room} and are cut: {counts.unread:,} tokens are not read")
        else:
            notes.append(f"{room} and are read in several")
    if unknown := counts.unknown + counts.missed:
        share = unknown / (counts.tokens + counts.missed)
        words = f"{unknown:,} tokens ({100 * share:.2g}%) are not in the vocabulary of {work.embedder.name}"
        (warnings if share > _MUCH else notes).append(words)
    if counts.left_out:
        notes.append(f"{counts.left_out:,} tokens are left out: at most {work.settings.max_tokens:,} were asked for")
    for words in warnings if say is None else [*notes, *warnings]:
        (say or tell)(words)
