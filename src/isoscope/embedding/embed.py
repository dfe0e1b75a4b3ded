"""Embed texts with a model and collect the hidden states of its layers in a store."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from isoscope._core.arrays import check_integer
from isoscope._core.errors import MissingExtra, ParameterError
from isoscope._core.random import check_seed
from isoscope._io.progress import show_progress
from isoscope.embedding.model_files import is_sentence_model
from isoscope.embedding.output import OutputPath
from isoscope.embedding.run import EmbeddingRun, Settings, run
from isoscope.embedding.shards import ShardWriter
from isoscope.embedding.static import is_word_source, open_words
from isoscope.embedding.texts import open_texts
from isoscope.embedding.tokens import Spool
from isoscope.stores.open import open_store

if TYPE_CHECKING:
    from isoscope._io.progress import Progress
    from isoscope.embedding.embedder import Embedder
    from isoscope.stores.store import Store

Pool = Literal["tokens", "mean", "cls", "last", "sentence-transformers"]
POOLS = get_args(Pool)
WINDOW = 512
"""The default number of tokens in a window."""


def embed(
    model: Any,
    texts: Any,
    output: str | os.PathLike[str] | None = None,
    *,
    layers: int | Sequence[int] | Literal["all"] | None = None,
    pool: Pool | None = None,
    window: int | None = None,
    stride: int | None = None,
    truncate: bool = False,
    special_tokens: Literal["keep", "drop"] | None = None,
    dtype: Literal["float32", "float16"] = "float32",
    max_tokens: int | None = None,
    text: str | Sequence[str] | None = None,
    labels: Any = None,
    ids: Any = None,
    prompt: str | None = None,
    prompt_name: str | None = None,
    split: Literal["line", "paragraph", "file"] = "line",
    config: str | None = None,
    part: str | None = None,
    tokenizer: Any = None,
    device: str | None = None,
    batch_tokens: int | None = None,
    seed: int | Sequence[int] | np.random.SeedSequence | np.random.Generator | None = 0,
    trust_remote_code: bool = False,
    restart: bool = False,
    progress: bool | Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Store:
    """Embed texts with a model, and return one vector per text, or the hidden states of its tokens, as a store.

    Parameters
    ----------
    model : path, name, or model
        A model folder, or a model name on the Hugging Face Hub: an encoder, a decoder, an encoder-decoder (only its
        encoder is used) or a Sentence Transformers model. It can also be a file of word vectors (GloVe, word2vec,
        fastText), a folder with `vectors.npy` and `words.txt`, or a loaded model with its `tokenizer`.
    texts : path, name, Dataset, or iterable of str
        A `.csv`, `.tsv`, `.jsonl` or `.parquet` file; any other file, which is read as plain text; a folder or name
        that `datasets` loads; or the strings themselves. A text without tokens gets no row, but keeps its number.
    output : path, optional
        A `.parquet` or `.arrow` file, which is written atomically, or a folder: a path without an extension. After an
        interruption, the same call resumes the run. By default, the result stays in memory.
    layers : int, list of int, or "all"
        The layers to embed, numbered as in `hidden_states`: 0 is the input of the first layer, i is the output of the
        i-th layer, and −1 is the last, after the model's final norm. By default, the last layer if rows are texts, and
        all layers if rows are tokens.
    pool : {"tokens", "mean", "cls", "last", "sentence-transformers"}, optional
        What a row represents: a token; a text, as the mean of its tokens, its first token or its last token; or a text
        as a Sentence Transformers model embeds it. By default, "sentence-transformers" for such a model, and "mean" for
        all others.
    window, stride : int, optional
        `window` is the number of tokens that the model reads together, including special tokens (default: 512, or the
        model's limit). `stride` is the number of tokens between the starts of consecutive windows of a long text
        (default: one window, so that windows do not overlap). If windows overlap, the row of a token comes from the
        window with the most context.
    truncate : bool
        Whether to read only the first window of a long text. The pooling "sentence-transformers" always does so.
    special_tokens : {"keep", "drop"}, optional
        Whether special tokens such as [CLS], [SEP] and <s> become rows and count in means. The model always reads them.
        By default, they are dropped if rows are tokens, and kept in means.
    dtype : {"float32", "float16"}
        The dtype of the rows. The model computes in float32.
    max_tokens : int, optional
        The size of a random sample. If rows are tokens, windows with this many rows in total are sampled; otherwise,
        texts with at most this many tokens in total.
    text : str, or list of str, optional
        The column of a table that contains the texts; by default, a column with a common name. The texts of several
        columns, such as a title and a body, are joined with a space.
    labels, ids : str, or sequence with one entry per text, optional
        The columns of a table that contain the labels and the ids, or their values; by default, columns with common
        names. They keep their names in the result.
    prompt, prompt_name : str, optional
        The prompt that a Sentence Transformers model prepends to each text, or the name of one of the model's prompts.
        By default, the model's own default prompt.
    split : {"line", "paragraph", "file"}
        Unit of text in a plain text file.
    config, part : str, optional
        The configuration and the split of a dataset.
    tokenizer : tokenizer, optional
        The tokenizer of a loaded model.
    device : str, optional
        The device: "cpu", "cuda", …; by default, a GPU if there is one.
    batch_tokens : int, optional
        The number of tokens in a padded batch: by default 2,048 on a CPU, 16,384 elsewhere.
    seed : int, or anything that NumPy accepts as a seed
        Random seed for `max_tokens`.
    trust_remote_code : bool
        Whether to run code that comes with the model.
    restart : bool
        Whether to delete an earlier run in the folder and start from the beginning.
    progress : bool or function, optional
        Whether to show a progress bar: by default in notebooks and at a Python prompt. A function is called
        with the stage, the number of tokens read and the share done.
    say : function, optional
        A function that is called with messages about the texts and about resuming.

    Returns
    -------
    Store
        Its columns are `layer`, `document` (the number of the text), the text, and the labels and ids if there are any.
        Texts, labels and ids from a table keep the names of their columns; otherwise, they are `text`, `label` and
        `id`. Rows of tokens also have `token_id`, `token`, `frequency` (occurrences in all texts) and `position` (in
        the text; −1 for a special token), and `text` is the token in its context. Rows are ordered by layer, then by
        text.

    Examples
    --------
    >>> import isoscope
    >>> with open("tiny.vec", "w") as file:
    ...     _ = file.write("river 1 0.5\\nbank -1 0.25\\nmoney 0 2\\n")
    >>> store = isoscope.embed("tiny.vec", ["river bank", "money bank"], ids=["r1", "m1"])
    >>> store.take([0, 1]).tolist(), store.text.tolist(), store.ids.tolist()
    ([[0.0, 0.375], [-0.5, 1.125]], ['river bank', 'money bank'], ['r1', 'm1'])
    """
    source = open_texts(texts, text=text, labels=labels, ids=ids, split=split, config=config, part=part)
    target = None if output is None else OutputPath.parse(output)
    if target is not None:
        target.check_not_input(texts, model)
    model = os.fspath(model) if isinstance(model, os.PathLike) else model
    chosen = _default_pool(model) if pool is None else pool
    settings = _check_settings(chosen, window, stride, special_tokens, dtype, max_tokens, check_seed(seed), truncate)
    if settings.pool != "sentence-transformers" and (prompt is not None or prompt_name is not None):
        name = "prompt" if prompt is not None else "prompt_name"
        raise ParameterError(
            f'{name} is set, but pool is "{settings.pool}": prompts belong to Sentence Transformers models; omit '
            f"{name}, or put the prompt into the texts"
        )
    if batch_tokens is not None and check_integer(batch_tokens, "batch_tokens") < 1:
        raise ParameterError(f"batch_tokens is {batch_tokens}: need a positive integer")
    embedder = _open_model(model, settings, layers, tokenizer, device, trust_remote_code, prompt, prompt_name)
    with ExitStack() as stack:
        stack.callback(embedder.close)
        if target is not None:
            stack.callback(target.remove_empty_parts)
        shards = None if target is None else ShardWriter(target.folder)
        if shards is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        else:
            folder = stack.enter_context(shards.open_folder())
        report = stack.enter_context(show_progress(progress, "tokens"))
        spool = Spool(folder)
        stack.callback(spool.close)  # before the folder is removed
        is_file = target is not None and target.file is not None
        work = EmbeddingRun(embedder, settings, spool, batch_tokens, describe=is_file)
        work.read(source, report)
        if target is not None and not restart:
            target.check_replaceable(work.settings_dict())
        memory = run(work, shards, report, say, restart=restart)
        if target is not None:
            target.finish(report)
    if target is not None:
        return open_store(target.file or target.folder)
    assert memory is not None
    return open_store(memory.table())


def _default_pool(model: Any) -> str:
    """Return the pooling of a model: its own if it is a Sentence Transformers model, or else the mean."""
    if isinstance(model, str):
        own = not is_word_source(model) and is_sentence_model(model)
    else:
        own = hasattr(model, "encode") and hasattr(model, "get_max_seq_length")
    return "sentence-transformers" if own else "mean"


def _check_settings(
    pool: str,
    window: int | None,
    stride: int | None,
    special_tokens: str | None,
    dtype: str,
    max_tokens: int | None,
    seed: int,
    truncate: bool,
) -> Settings:
    """Return the settings after checking them; raise a `ParameterError` if some contradict each other."""
    if pool not in POOLS:
        raise ParameterError(f"pool is {pool!r}: need one of {', '.join(POOLS)}")
    if special_tokens not in (None, "keep", "drop"):
        raise ParameterError(f'special_tokens is {special_tokens!r}: need "keep" or "drop"')
    if dtype not in ("float16", "float32"):
        raise ParameterError(f'dtype is {dtype!r}: need "float16" or "float32"')
    for name, value in (("window", window), ("stride", stride), ("max_tokens", max_tokens)):
        if value is not None and check_integer(value, name) < 1:
            raise ParameterError(f"{name} is {value}: need a positive integer")
    if pool == "cls" and special_tokens == "drop":
        raise ParameterError(
            'pool="cls" needs the token [CLS], but special_tokens="drop" drops it: set special_tokens="keep", or '
            "choose another pool"
        )
    if pool == "sentence-transformers":
        theirs: dict[str, Any] = {"window": window, "stride": stride, "special_tokens": special_tokens}
        for name, value in theirs.items():
            if value is not None:
                raise ParameterError(
                    f'{name} is {value!r}, but pool is "sentence-transformers", so the model determines it: omit '
                    f'{name}, or set pool="mean"'
                )
    if stride is not None and (truncate or pool in ("cls", "last")):
        option = "truncate" if truncate else f'pool="{pool}"'
        raise ParameterError(f"stride is {stride}, but with {option} only one window per text is read: omit stride")
    kept = special_tokens or ("drop" if pool == "tokens" else "keep")
    return Settings(pool, window or WINDOW, stride, kept, dtype, max_tokens, seed, bool(truncate))


def _open_model(
    model: Any,
    settings: Settings,
    layers: Any,
    tokenizer: Any,
    device: str | None,
    trust: bool,
    prompt: str | None,
    prompt_name: str | None,
) -> Embedder:
    """Open a model or word vectors."""
    static = open_words(model) if isinstance(model, str) else None
    if static is not None:
        if settings.pool not in ("tokens", "mean"):
            raise ParameterError(
                f'pool is "{settings.pool}", but {model} contains word vectors: use pool="tokens" or "mean"'
            )
        if layers not in (None, "all", 0, -1, [0], [-1]):
            raise ParameterError(
                f"layers is {layers}, but {model} contains word vectors, which have no layers: omit layers"
            )
        return static
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtra(f'embedding with a model needs {error.name}: pip install "isoscope[embed]"') from error
    if settings.pool == "sentence-transformers":
        from isoscope.embedding.sentence_transformer import SentenceEmbedder

        if layers not in (None, -1, [-1]):
            raise ParameterError(
                f'layers is {layers}, but pool is "sentence-transformers", which always uses the last layer: omit '
                'layers, or set pool="mean" or "tokens"'
            )
        return SentenceEmbedder(model, prompt=prompt, prompt_name=prompt_name, device=device, trust_remote_code=trust)
    from isoscope.embedding.transformer import TransformerEmbedder

    default = "all" if settings.pool == "tokens" else -1
    wanted = default if layers is None else layers
    return TransformerEmbedder(model, tokenizer=tokenizer, layers=wanted, device=device, trust_remote_code=trust)
