"""Texts through a model, layer by layer, into a store."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isoscope._core.arrays import check_integer
from isoscope._core.errors import InputError, MissingExtra
from isoscope._io.progress import show_progress
from isoscope.embedding.run import EmbeddingRun, Settings, run
from isoscope.embedding.shards import ShardWriter
from isoscope.embedding.static import open_words
from isoscope.embedding.texts import open_texts
from isoscope.embedding.tokens import Spool
from isoscope.stores.open import open_store

if TYPE_CHECKING:
    from isoscope._io.progress import Progress
    from isoscope.embedding.transformer import Embedder
    from isoscope.stores.store import Store

POOLS = ("tokens", "mean", "cls", "last", "sentence-transformers")
WINDOW = 512
"""Tokens that a model reads at once, unless it can read fewer."""


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
    settings = _check_settings(pool, window, stride, special_tokens, dtype, max_tokens, seed)
    if batch_tokens is not None and check_integer(batch_tokens, "batch_tokens") < 1:
        raise InputError(f"batch_tokens is {batch_tokens}: need 1 at least")
    embedder = _open_model(model, settings, layers, tokenizer, device, trust_remote_code)
    with ExitStack() as stack:
        stack.callback(embedder.close)
        shards = None if output is None else ShardWriter(Path(output).expanduser())
        if shards is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        else:
            folder = stack.enter_context(shards.open_folder())
        report = stack.enter_context(show_progress(progress, "tokens"))
        spool = Spool(folder)
        stack.callback(spool.close)  # before the folder goes
        work = EmbeddingRun(embedder, settings, spool, batch_tokens)
        work.read(source, report)
        held = run(work, shards, report, say, restart=restart)
    if shards is not None:
        return open_store(shards.folder)
    assert held is not None
    return open_store(held.table())


def _check_settings(
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
        if value is not None and check_integer(value, name) < 1:
            raise InputError(f"{name} is {value}: need 1 at least")
    if not 0 <= check_integer(seed, "seed") < 2**32:
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
        from isoscope.embedding.sentence_transformer import SentenceEmbedder

        if layers not in (None, -1, [-1]):
            raise InputError(
                f"layers is {layers} and pool is sentence-transformers, which takes the last: leave it out"
            )
        return SentenceEmbedder(model, device=device, trust_remote_code=trust)
    from isoscope.embedding.transformer import TransformerEmbedder

    wanted = "all" if layers is None else layers
    return TransformerEmbedder(model, tokenizer=tokenizer, layers=wanted, device=device, trust_remote_code=trust)
