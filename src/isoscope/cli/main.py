"""The commands: what is typed is checked here, the work is done elsewhere.

Only what the help needs is imported at the top, so that `isoscope --help` answers at once.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from threading import Event
from typing import Annotated, Any

import typer

from isoscope.errors import InputError

GATE, BAD_INPUT, INTERNAL, INTERRUPTED = 1, 2, 3, 130
"""Exit codes: the gate of --fail-on is shut; the input is bad; isoscope is; Ctrl-C."""


class Interruption(Exception):
    """Ctrl-C, with a word on what it left."""


interrupted = Event()
"""Whether Ctrl-C or its like has come."""

typed: list[str] = []
"""The command's words, as they were typed."""

app = typer.Typer(
    name="isoscope",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    help="The shape of an embedding space: what it is, what it means for your task, what to try.",
    epilog="Exit codes: 0 all is well, 1 the gate of --fail-on is shut, 2 the input cannot be used.",
)


class Gate(StrEnum):
    """What --fail-on takes."""

    look = "look"
    bad = "bad"
    worse = "worse"


class Metric(StrEnum):
    """What --metric takes."""

    cosine = "cosine"
    euclidean = "euclidean"


class Missing(StrEnum):
    """What --missing takes."""

    error = "raise"
    drop = "drop"


class Nonfinite(StrEnum):
    """What --nonfinite takes."""

    error = "raise"
    drop = "drop"


def _version(asked: bool) -> None:
    if asked:
        from isoscope import __version__

        typer.echo(f"isoscope {__version__}")
        raise typer.Exit


@app.callback()
def _isoscope(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback where something fails.")] = False,
) -> None:
    """The shape of an embedding space: what it is, what it means for your task, what to try."""


_ROLES = ("vectors", "labels", "types", "text", "ids", "frequency")
_Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--columns",
        metavar="ROLE=NAME",
        help="Which column of the source is what: vectors=, labels=, types=, text=, ids= or frequency=; several with "
        "commas.",
    ),
]
_Sample = Annotated[
    int, typer.Option("--sample", metavar="ROWS", help="Rows up to which all pairs are looked at; above, a sample.")
]
_Seed = Annotated[int, typer.Option("--seed", help="Of the sample and of K-means.")]
_Metric = Annotated[Metric, typer.Option("--metric", help="How neighbours are sought.")]
_Nonfinite = Annotated[Nonfinite, typer.Option("--nonfinite", help="Refuse rows with NaN or infinity, or drop them.")]


@app.command()
def audit(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE…", help="A file, a folder or glob of shards, or - for .npy on stdin; several to compare."
        ),
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Audit each group of rows apart: layer, label, …")
    ] = None,
    columns: _Columns = None,
    labels: Annotated[Path | None, typer.Option(help="A label for each row: .npy, or a text file of lines.")] = None,
    types: Annotated[Path | None, typer.Option(help="What each row is a token of; likewise.")] = None,
    text: Annotated[Path | None, typer.Option(help="What to show for each row; likewise.")] = None,
    frequency: Annotated[Path | None, typer.Option(help="How often each row occurs; likewise.")] = None,
    queries: Annotated[str | None, typer.Option(metavar="SOURCE", help="Queries to be answered from SOURCE.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the page.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the findings for machines; - for standard output.")] = None,
    baseline: Annotated[Path | None, typer.Option(help="An earlier --json: say what has changed.")] = None,
    fail_on: Annotated[
        Gate | None, typer.Option(help="Exit with 1 if a finding is so bad; or worse than in the baseline.")
    ] = None,
    compare: Annotated[
        tuple[str, str] | None, typer.Option(metavar="A B", help="Two sources, side by side: as SOURCE SOURCE.")
    ] = None,
    metric: _Metric = Metric.cosine,
    sample: _Sample = 20_000,
    seed: _Seed = 0,
    nonfinite: _Nonfinite = Nonfinite.error,
) -> None:
    """Measure a space and say what is wrong with it, what that means, and what to try."""
    from isoscope.cli.auditing import Request, audit_groups, audit_one, audit_several

    if (not sources) == (compare is None):
        raise InputError("give a SOURCE, or several to compare, or --compare A B")
    sources = list(compare) if compare else list(sources or ())
    if fail_on is Gate.worse and baseline is None:
        raise InputError("--fail-on worse needs a --baseline to be worse than")
    if (len(sources) > 1 or by) and (baseline or queries):
        what = "--by goes" if by else "several sources go"
        raise InputError(f"{what} without --baseline and --queries: audit each source on its own for those")
    given = {"labels": labels, "types": types, "text": text, "frequency": frequency}
    inputs = [*sources, queries, *(str(each) for each in (*given.values(), baseline) if each)]
    refuse_overwriting([html, json], inputs)
    request = Request(
        columns=_roles(columns),
        given=given,
        by=by,
        queries=queries,
        html=html,
        json=json,
        baseline=baseline,
        options={"metric": metric.value, "sample": sample, "seed": seed, "nonfinite": nonfinite.value},
    )
    verdicts: set[str]
    if by is not None:
        verdicts = {each.verdict for each in audit_groups(sources, request)}
    elif len(sources) > 1:
        verdicts = {each.verdict for each in audit_several(sources, request)}
    else:
        done, directions = audit_one(sources[0], request)
        verdicts = {done.verdict, *directions}
    if fail_on is not None and verdicts & {Gate.look: {"look", "bad"}}.get(fail_on, {fail_on.value}):
        raise typer.Exit(GATE)


@app.command(context_settings={"ignore_unknown_options": True})  # -0.5 is a cosine
def similarity(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="As for audit.")],
    cosines: Annotated[list[float], typer.Argument(metavar="COSINE…", help="One or several, from -1 to 1.")],
    columns: _Columns = None,
    sample: _Sample = 20_000,
    seed: _Seed = 0,
    nonfinite: _Nonfinite = Nonfinite.error,
) -> None:
    """Say what percentile a cosine is in this corpus: is 0.8 high here?"""
    from isoscope.auditing.settings import Settings
    from isoscope.cli.auditing import tell_similarity

    tell_similarity(source, cosines, _roles(columns), Settings(sample=sample, seed=seed, nonfinite=nonfinite.value))


@app.command()
def convert(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="As for audit.")],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="A .npy, .safetensors or .parquet file.")],
    columns: _Columns = None,
    vectors_only: Annotated[bool, typer.Option("--vectors-only", help="Leave all other columns behind.")] = False,
) -> None:
    """Copy vectors from any format to .npy, .safetensors or Parquet (which keeps a table's other columns)."""
    from isoscope.cli.auditing import convert as copy

    refuse_overwriting([target], [source])
    copy(source, target, _roles(columns), vectors_only=vectors_only)


_MethodName = Annotated[
    str,
    typer.Argument(
        metavar="METHOD", help="center, standardize, all-but-the-top, whiten, cluster-center or cluster-null."
    ),
]
_Source = Annotated[str, typer.Argument(metavar="SOURCE", help="As for audit.")]
_Target = Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="A .npy, .safetensors or .parquet file.")]
_VectorsOnly = Annotated[bool, typer.Option("--vectors-only", help="Leave all other columns behind.")]
_Restart = Annotated[bool, typer.Option("--restart", help="Throw away what an interrupted run left.")]
_Components = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBER", help="Directions taken out, or auto (all-but-the-top, cluster-null); kept (whiten)."
    ),
]
_Clusters = Annotated[str | None, typer.Option(metavar="NUMBER", help="How many, or auto (cluster-*).")]
_Clusterer = Annotated[str | None, typer.Option(metavar="NAME", help="kmeans or gmm (cluster-*).")]
_Axes = Annotated[str | None, typer.Option("--method", metavar="NAME", help="zca or pca (whiten).")]
_Shrinkage = Annotated[str | None, typer.Option(metavar="SHARE", help="auto, none, or from 0 to 1 (whiten).")]
_FitSample = Annotated[int | None, typer.Option("--sample", metavar="ROWS", help="Rows to learn from (cluster-*).")]
_FitSeed = Annotated[int | None, typer.Option("--seed", help="Of the sample and the clusters (cluster-*).")]


@app.command()
def fit(
    method: _MethodName,
    source: _Source,
    folder: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The folder to save the repair in.")],
    columns: _Columns = None,
    components: _Components = None,
    clusters: _Clusters = None,
    clusterer: _Clusterer = None,
    axes: _Axes = None,
    shrinkage: _Shrinkage = None,
    sample: _FitSample = None,
    seed: _FitSeed = None,
) -> None:
    """Learn a repair from a corpus and save it; apply it to corpus and queries alike."""
    from isoscope.cli.repairing import Method
    from isoscope.cli.repairing import fit as learn

    options: dict[str, Any] = {"components": components, "clusters": clusters, "clusterer": clusterer, "method": axes}
    options |= {"shrinkage": shrinkage, "sample": sample, "seed": seed}
    learn(Method(method, options), source, folder, _roles(columns))


@app.command()
def apply(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What fit saved.")],
    source: _Source,
    output: _Target,
    columns: _Columns = None,
    vectors_only: _VectorsOnly = False,
    restart: _Restart = False,
) -> None:
    """Write the repaired vectors of a source; Parquet keeps a table's other columns.

    An interrupted run leaves OUT as it was, and is gone on with by the same command.
    """
    from isoscope.cli.repairing import apply as write

    refuse_overwriting([output], [source])
    write(folder, source, output, _roles(columns), vectors_only=vectors_only, restart=restart)


@app.command()
def fix(
    method: _MethodName,
    source: _Source,
    output: _Target,
    save: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the repair, as fit does.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the page: before and after.")] = None,
    columns: _Columns = None,
    vectors_only: _VectorsOnly = False,
    restart: _Restart = False,
    components: _Components = None,
    clusters: _Clusters = None,
    clusterer: _Clusterer = None,
    axes: _Axes = None,
    shrinkage: _Shrinkage = None,
    sample: _FitSample = None,
    seed: _FitSeed = None,
) -> None:
    """Fit a repair to a source, apply it, and show the audits before and after side by side."""
    from isoscope.cli.repairing import Method
    from isoscope.cli.repairing import fix as repair

    options: dict[str, Any] = {"components": components, "clusters": clusters, "clusterer": clusterer, "method": axes}
    options |= {"shrinkage": shrinkage, "sample": sample, "seed": seed}
    refuse_overwriting([output, html], [source])
    repair(
        Method(method, options),
        source,
        output,
        _roles(columns),
        saved=save,
        html=html,
        vectors_only=vectors_only,
        restart=restart,
    )


@app.command()
def advise(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The corpus, as for audit.")],
    pairs: Annotated[Path | None, typer.Option(help="Graded pairs of rows: .tsv, .csv, .jsonl or .parquet.")] = None,
    queries: Annotated[str | None, typer.Option(metavar="SOURCE", help="Queries to be answered from SOURCE.")] = None,
    qrels: Annotated[Path | None, typer.Option(help="What answers which query, in TREC's or BEIR's format.")] = None,
    labels: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column of classes; or a file with one for each row.")
    ] = None,
    measure: Annotated[
        str | None,
        typer.Option(help="What decides alone: probe, knn or v_measure; ndcg@10 or recall@100."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Keep the prescribed repair, fitted.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the page with the evidence.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write it for machines; - for standard output.")] = None,
    columns: _Columns = None,
    metric: _Metric = Metric.cosine,
    folds: Annotated[int, typer.Option(help="In how many parts examples are held out.")] = 5,
    sample: Annotated[int, typer.Option(metavar="ROWS", help="Rows of SOURCE that are looked at, at most.")] = 20_000,
    seed: _Seed = 0,
    missing: Annotated[
        Missing, typer.Option(help="Refuse judgements of rows that are not there, or leave them out.")
    ] = Missing.error,
) -> None:
    """Try every repair on your own task and prescribe the simplest that surely helps, or none.

    Give --pairs, or --queries and --qrels, or --labels; without any, the evidence is weak.
    """
    from isoscope.cli.advising import Request, give_advice

    refuse_overwriting([html, json], [source, queries, *(str(each) for each in (pairs, qrels, labels) if each)])
    options = {"metric": metric.value, "folds": folds, "sample": sample, "seed": seed, "missing": missing.value}
    give_advice(
        source,
        Request(_roles(columns), pairs, queries, qrels, labels, output, html, json, {**options, "measure": measure}),
    )


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


@app.command()
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
    seeds: Annotated[str, typer.Option(help="How many, or which: 0,1,2.")] = "1",
    epochs: Annotated[float | None, typer.Option(help="As published for the task, as the next three.")] = None,
    batch_size: Annotated[int | None, typer.Option()] = None,
    learning_rate: Annotated[float | None, typer.Option()] = None,
    weight_decay: Annotated[float | None, typer.Option()] = None,
    accumulate: Annotated[int, typer.Option(metavar="BATCHES", help="Batches for one step.")] = 1,
    warmup: Annotated[float, typer.Option(metavar="SHARE", help="Of the steps: the learning rate rises.")] = 0.1,
    schedule: Annotated[Schedule, typer.Option(help="What it does then.")] = Schedule.cosine,
    max_length: Annotated[int, typer.Option(metavar="TOKENS", help="Read of a text or pair.")] = 128,
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
    from isoscope.cli.training import Request
    from isoscope.cli.training import finetune as run

    learnt = task if train is None else train
    if learnt is None or (task is not None and train is not None):
        raise InputError("give one TASK, or --train FILE")
    refuse_overwriting([json], [str(each) for each in (train, dev) if each])
    options = {"data": data, "dev": dev, "dev_share": dev_share, "text": text, "text_pair": text_pair, "label": label}
    options |= {"measure": measure, "regularizer": regularizer.value, "weight": weight, "pool": pool, "zeta": zeta}
    options |= {"select": not all_bars, "epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate}
    options |= {"weight_decay": weight_decay, "accumulate": accumulate, "warmup": warmup, "schedule": schedule.value}
    options |= {"max_length": max_length, "limit": limit, "probe": probe, "every": every, "bf16": bf16}
    options |= {"stop_on_collapse": stop_on_collapse, "keep_model": save_model}
    run(Request(model, learnt, output, seeds, layer, json, options))


class Pool(StrEnum):
    """What --pool takes."""

    tokens = "tokens"
    mean = "mean"
    cls = "cls"
    last = "last"
    sentence_transformers = "sentence-transformers"


class Special(StrEnum):
    """What --special-tokens takes."""

    keep = "keep"
    drop = "drop"


class Precision(StrEnum):
    """What --dtype takes."""

    float32 = "float32"
    float16 = "float16"


class Unit(StrEnum):
    """What --split takes."""

    line = "line"
    paragraph = "paragraph"
    file = "file"


@app.command()
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
        Special | None, typer.Option(help="Whether [CLS] and its like are rows, or count. [drop as tokens, else keep]")
    ] = None,
    dtype: Annotated[Precision, typer.Option(help="Of the rows.")] = Precision.float32,
    max_tokens: Annotated[int | None, typer.Option(metavar="TOKENS", help="Take a random choice of so many.")] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", metavar="ROLE=NAME", help="Which column of a table is what: text= and labels=."),
    ] = None,
    split: Annotated[Unit, typer.Option(help="What one text of a plain text file is.")] = Unit.line,
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
    from isoscope.cli.embedding import Request
    from isoscope.cli.embedding import embed as run

    roles = _roles(columns)
    if set(roles) - {"text", "labels"}:
        raise InputError("--columns takes text= and labels= here")
    options: dict[str, Any] = {"pool": pool.value, "window": window, "stride": stride, "dtype": dtype.value}
    options |= {"special_tokens": None if special_tokens is None else special_tokens.value, "max_tokens": max_tokens}
    options |= {"text": roles.get("text"), "labels": roles.get("labels"), "split": split.value, "config": config}
    options |= {"part": part, "device": device, "batch_tokens": batch_tokens, "seed": seed, "restart": restart}
    run(Request(model, texts, output, layers, options | {"trust_remote_code": trust_remote_code}))


@app.command()
def demo(
    html: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("isoscope-demo.html"),
) -> None:
    """Audit real vectors that come with isoscope: WordNet glosses in a hidden layer of a sentence encoder."""
    from isoscope.cli.demo import show

    show(html)


def _roles(pairs: list[str] | None) -> dict[str, str]:
    """ROLE=NAME pairs as a mapping."""
    roles: dict[str, str] = {}
    for pair in ",".join(pairs or []).split(",") if pairs else []:
        role, equals, name = pair.partition("=")
        if role not in _ROLES or not equals or not name:
            listed = f"{', '.join(_ROLES[:-1])} or {_ROLES[-1]}"
            raise InputError(f"--columns {pair!r}: need ROLE=NAME with the role {listed}")
        roles[role] = name
    return roles


def refuse_overwriting(outputs: list[Path | None], inputs: list[str | None]) -> None:
    """Refuse to write over what is read, or twice to one file."""
    taken = {os.path.realpath(each): each for each in inputs if each and os.path.isfile(each)}
    for output in outputs:
        if output is None or str(output) == "-":
            continue
        place = os.path.realpath(output)
        if place in taken:
            raise InputError(f"{output} is read or written already, as {taken[place]}: give another file to write to")
        if os.path.isfile(place) or not os.path.exists(place):
            taken[place] = str(output)


def main(arguments: list[str] | None = None) -> int:
    """Run a command; bad input is one line on standard error and exit code 2, a traceback comes with --debug alone."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    if debug:
        arguments = ["--debug", *(argument for argument in arguments if argument != "--debug")]
    interrupted.clear()
    typed[:] = arguments
    for terminating in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        with suppress(ValueError):  # not in the main thread
            signal.signal(terminating, _end)
    try:
        return _run(arguments)
    except InputError as error:
        return _fail(str(error), BAD_INPUT, debug)
    except Interruption as stop:
        return _fail(f"interrupted; {stop}", INTERRUPTED, debug)
    except KeyboardInterrupt:
        return _fail("interrupted; files that were being written are as they were", INTERRUPTED, debug)
    except BrokenPipeError:
        mute()
        return 0
    except OSError as error:
        return _fail(_os_words(error), BAD_INPUT, debug)
    except MemoryError as error:
        return _fail(f"out of memory: {error}; try a smaller --sample", BAD_INPUT, debug)
    except Exception as error:
        words = f"{type(error).__name__}: {error}".splitlines()[0]
        return _fail(f"this should not have happened ({words}); run it with --debug and report it", INTERNAL, debug)


def mute() -> None:
    """Write no more to a standard output that nobody reads."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains once more at the end


def _end(number: int, frame: object) -> None:
    """Be ended as by Ctrl-C: what is being written is cleared away."""
    interrupted.set()  # a library that was called back just then may swallow the exception: it is raised again later
    raise KeyboardInterrupt


def _run(arguments: list[str]) -> int:
    try:
        outcome: Any = app(args=arguments, standalone_mode=False)
        code = int(outcome or 0)
    except typer.Exit as done:
        code = done.exit_code
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else 0
        if code == 1:  # what typer and rich make of a pipe that nobody reads
            mute()
            code = 0
    except typer.Abort:
        code = INTERRUPTED
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message())  # type: ignore[attr-defined]
            return 0
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # of typer's parser
            raise InputError(error.format_message().replace("\n", " ") + " See isoscope --help.") from error
        raise
    if code == INTERRUPTED:  # typer makes this of Ctrl-C
        raise KeyboardInterrupt
    return code


def _os_words(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    words = f"{where}{error.strerror or error}"
    if error.errno == errno.ENOSPC:
        words += "; the old file, if there was one, is as it was: make room and run it again"
    return "; ".join([words, *getattr(error, "__notes__", [])])


def _fail(words: str, code: int, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exc()
    print("isoscope: " + " ".join(words.split()), file=sys.stderr)
    return code
