"""How embed and finetune are typed."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from isoscope._core.errors import InputError
from isoscope.cli.options import check_overwriting, parse_columns

commands = typer.Typer()


class Pool(StrEnum):
    """What --pool takes."""

    tokens = "tokens"
    mean = "mean"
    cls = "cls"
    last = "last"
    sentence_transformers = "sentence-transformers"


class SpecialTokens(StrEnum):
    """What --special-tokens takes."""

    keep = "keep"
    drop = "drop"


class Precision(StrEnum):
    """What --dtype takes."""

    float32 = "float32"
    float16 = "float16"


class SplitUnit(StrEnum):
    """What --split takes."""

    line = "line"
    paragraph = "paragraph"
    file = "file"


@commands.command()
def embed(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A folder or a name on the Hugging Face hub; or a file of word vectors."),
    ],
    texts: Annotated[
        str,
        typer.Argument(metavar="TEXTS", help="A text, CSV, TSV, JSON lines or Parquet file, or the name of a dataset."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="STORE", help="The folder to write.")],
    layers: Annotated[
        str | None,
        typer.Option(metavar="NUMBERS", help="all, -1 for the last, or 0,6,12; 0 goes into the first. [all]"),
    ] = None,
    pool: Annotated[
        Pool, typer.Option(help="What a row is: each token, or a text in one of these ways.")
    ] = Pool.tokens,
    window: Annotated[
        int | None, typer.Option(metavar="TOKENS", help="Read at once, special ones among them. [512, or what fits]")
    ] = None,
    stride: Annotated[
        int | None, typer.Option(metavar="TOKENS", help="From one window of a long text to the next. [no overlap]")
    ] = None,
    special_tokens: Annotated[
        SpecialTokens | None,
        typer.Option(help="Whether [CLS] and its like are rows, or count. [drop as tokens, else keep]"),
    ] = None,
    dtype: Annotated[Precision, typer.Option(help="Of the rows.")] = Precision.float32,
    max_tokens: Annotated[int | None, typer.Option(metavar="TOKENS", help="Take a random choice of so many.")] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", metavar="ROLE=NAME", help="Which column of a table is what: text= and labels=."),
    ] = None,
    split: Annotated[SplitUnit, typer.Option(help="What one text of a plain text file is.")] = SplitUnit.line,
    config: Annotated[str | None, typer.Option(metavar="NAME", help="Of a dataset: which configuration.")] = None,
    part: Annotated[str | None, typer.Option(metavar="NAME", help="Of a dataset: which split, train or test.")] = None,
    device: Annotated[str | None, typer.Option(metavar="NAME", help="cpu, cuda, … [a GPU if there is one]")] = None,
    batch_tokens: Annotated[
        int | None, typer.Option(metavar="TOKENS", help="In a batch, padding among them. [2048, 16384 on a GPU]")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the choice that --max-tokens makes.")] = 0,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")
    ] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Throw away what is in STORE.")] = False,
) -> None:
    """Give texts to a model and keep its hidden states, layer by layer: a store to audit, --by layer.

    An interrupted run is gone on with by the same command.
    """
    from isoscope.cli.embed import Request
    from isoscope.cli.embed import embed as run

    roles = parse_columns(columns)
    if set(roles) - {"text", "labels"}:
        raise InputError("--columns takes text= and labels= here")
    options: dict[str, Any] = {"pool": pool.value, "window": window, "stride": stride, "dtype": dtype.value}
    options |= {"special_tokens": None if special_tokens is None else special_tokens.value, "max_tokens": max_tokens}
    options |= {"text": roles.get("text"), "labels": roles.get("labels"), "split": split.value, "config": config}
    options |= {"part": part, "device": device, "batch_tokens": batch_tokens, "seed": seed, "restart": restart}
    run(Request(model, texts, output, layers, options | {"trust_remote_code": trust_remote_code}))


class Regularizer(StrEnum):
    """What --regularizer takes."""

    none = "none"
    persistent_entropy = "persistent-entropy"
    istar = "istar"
    unbiased = "unbiased"
    cosreg = "cosreg"


class Schedule(StrEnum):
    """What --schedule takes."""

    cosine = "cosine"
    linear = "linear"
    constant = "constant"


_Column = typer.Option(metavar="COLUMN", help="Its column, of a file of your own.")


@commands.command()
def finetune(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A folder, or a name on the Hugging Face hub.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="OUT", help="The folder of the run; the same again goes on.")
    ],
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK", help="cola, mrpc, rte, qnli, sst2, sst5, snli, wic, stsb; or a file, as --train."
        ),
    ] = None,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the named TASK has its TSV files.")] = None,
    train: Annotated[Path | None, typer.Option(help="Your own rows: .csv, .tsv, .jsonl or .parquet.")] = None,
    dev: Annotated[Path | None, typer.Option(help="Rows to be scored on; or a share of --train is held out.")] = None,
    dev_share: Annotated[float | None, typer.Option(metavar="SHARE", help="How much.", show_default="0.1")] = None,
    text: Annotated[str | None, _Column] = None,
    text_pair: Annotated[str | None, _Column] = None,
    label: Annotated[str | None, _Column] = None,
    measure: Annotated[
        str | None, typer.Option(help="What counts, of a file: accuracy, f1, matthews; pearson, spearman for grades.")
    ] = None,
    regularizer: Annotated[Regularizer, typer.Option(help="What is added to the loss.")] = Regularizer.none,
    weight: Annotated[float | None, typer.Option(help="Its weight; 1 unless told, negative turns it round.")] = None,
    layer: Annotated[str | None, typer.Option(help="Where it looks: a number, a module's name, all.")] = None,
    pool: Annotated[str | None, typer.Option(help="At what: cls, mean, last or tokens.")] = None,
    all_bars: Annotated[bool, typer.Option("--all-bars", help="persistent-entropy of all bars.")] = False,
    zeta: Annotated[float, typer.Option(help="istar's share of the training set's covariance.")] = 0.2,
    repair: Annotated[
        str | None,
        typer.Option(metavar="K,D", help="In each batch, take the mean and D directions out of K clusters."),
    ] = None,
    seeds: Annotated[str, typer.Option(help="How many, or which: 0,1,2.")] = "1",
    epochs: Annotated[float | None, typer.Option(help="As published for the task, as the next three.")] = None,
    batch_size: Annotated[int | None, typer.Option()] = None,
    learning_rate: Annotated[float | None, typer.Option()] = None,
    weight_decay: Annotated[float | None, typer.Option()] = None,
    accumulate: Annotated[int, typer.Option(metavar="BATCHES", help="Batches for one step.")] = 1,
    warmup: Annotated[float, typer.Option(metavar="SHARE", help="Of the steps: the learning rate rises.")] = 0.1,
    schedule: Annotated[Schedule, typer.Option(help="What it does then.")] = Schedule.cosine,
    max_length: Annotated[int, typer.Option(metavar="TOKENS", help="Read of a text or pair.")] = 128,
    group_lengths: Annotated[
        bool, typer.Option("--group-lengths", help="Batches of texts of like length: less padding, faster.")
    ] = False,
    limit: Annotated[int | None, typer.Option(metavar="ROWS", help="Learn from a part of the rows.")] = None,
    probe: Annotated[int, typer.Option(metavar="ROWS", help="Of the dev set, whose space is watched.")] = 256,
    every: Annotated[int | None, typer.Option(metavar="STEPS", help="Measure so often; 20 times unless told.")] = None,
    bf16: Annotated[bool, typer.Option("--bf16", help="Compute in bfloat16 where that is safe.")] = False,
    stop_on_collapse: Annotated[bool, typer.Option("--stop-on-collapse", help="End a seed whose space did.")] = False,
    save_model: Annotated[bool, typer.Option("--save-model", help="Keep each seed's model in OUT.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write metrics.json here too; - for standard output.")] = None,
) -> None:
    """Fine-tune a model for a task, with a regulariser of its space or none, and watch the space meanwhile.

    OUT gets metrics.json and the page. An interrupted run is gone on with by the same command.
    """
    from isoscope.cli.finetune import Request
    from isoscope.cli.finetune import finetune as run

    learnt = task if train is None else train
    if learnt is None or (task is not None and train is not None):
        raise InputError("give one TASK, or --train FILE")
    check_overwriting([json], [str(each) for each in (train, dev) if each])
    options = {"data": data, "dev": dev, "dev_share": dev_share, "text": text, "text_pair": text_pair, "label": label}
    options |= {"measure": measure, "regularizer": regularizer.value, "weight": weight, "pool": pool, "zeta": zeta}
    options |= {"select": not all_bars, "epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate}
    options |= {"weight_decay": weight_decay, "accumulate": accumulate, "warmup": warmup, "schedule": schedule.value}
    options |= {"max_length": max_length, "limit": limit, "probe": probe, "every": every, "bf16": bf16}
    options |= {"stop_on_collapse": stop_on_collapse, "keep_model": save_model, "group_lengths": group_lengths}
    run(Request(model, learnt, output, seeds, layer, repair, json, options))
