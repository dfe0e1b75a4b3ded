"""The command `embed`."""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from isoscope._core.errors import ParameterError
from isoscope.cli.options import RestartOption, check_output_name, parse_columns, resolve_ids
from isoscope.cli.session import InterruptibleProgressBar, Interruption, print_message, resume_command

commands = typer.Typer()

Pool = StrEnum(
    "Pool",
    {
        "tokens": "tokens",
        "mean": "mean",
        "cls": "cls",
        "last": "last",
        "sentence_transformers": "sentence-transformers",
    },
)
SpecialTokens = StrEnum("SpecialTokens", ["keep", "drop"])
Precision = StrEnum("Precision", ["float32", "float16"])
SplitUnit = StrEnum("SplitUnit", ["line", "paragraph", "file"])


@commands.command()
def embed(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A model folder, the name of a model on the Hugging Face Hub, or a file of word vectors.",
        ),
    ],
    texts: Annotated[
        str,
        typer.Argument(
            metavar="TEXTS",
            help="A text, CSV, TSV, JSON Lines or Parquet file, or the name of a dataset on the Hugging Face Hub.",
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            callback=check_output_name,
            help="Write to a .parquet or .arrow file, or to a folder (a name without an extension). Rerun the same "
            "command to resume.",
        ),
    ],
    layers: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS",
            help='Layers to write: "all", -1 for the last, or numbers such as 0,6,12. Layer 0 is the input of the '
            "first layer.",
            show_default="the last; all for --pool tokens",
        ),
    ] = None,
    pool: Annotated[
        Pool | None,
        typer.Option(
            help='How to pool the tokens of a text into one row; "tokens" writes one row per token instead.',
            show_default="sentence-transformers for such a model, else mean",
        ),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS",
            help="Number of tokens per window, including special tokens.",
            show_default="512, or the limit of the model",
        ),
    ] = None,
    stride: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS",
            help="Number of tokens between the starts of consecutive windows in a long text.",
            show_default="the window, without overlap",
        ),
    ] = None,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Read only the first window of a long text instead of all windows.")
    ] = False,
    special_tokens: Annotated[
        SpecialTokens | None,
        typer.Option(
            help="Keep or drop special tokens such as [CLS].", show_default="drop for --pool tokens, else keep"
        ),
    ] = None,
    dtype: Annotated[Precision, typer.Option(help="Data type of the written vectors.")] = Precision.float32,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS", help="Embed a random sample of the texts, with at most this many tokens in total."
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            metavar="ROLE=NAME",
            help="Columns of a table: text=NAME, labels=NAME, ids=NAME. Join several text columns with a space: "
            "text=title,body.",
        ),
    ] = None,
    ids: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Column with the ids of the texts, or a file with one id per text, line by line."
        ),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Text that a Sentence Transformers model puts before each text."),
    ] = None,
    prompt_name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of one of the prompts of a Sentence Transformers model."),
    ] = None,
    split: Annotated[
        SplitUnit,
        typer.Option(help="In a plain text file, treat each line, each paragraph or the whole file as one text."),
    ] = SplitUnit.line,
    config: Annotated[
        str | None, typer.Option(metavar="NAME", help="Configuration of the Hugging Face dataset.")
    ] = None,
    part: Annotated[
        str | None, typer.Option(metavar="NAME", help="Split of the Hugging Face dataset, such as train or test.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Device to run the model on, such as cpu or cuda.",
            show_default="a GPU if there is one",
        ),
    ] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS",
            help="Number of tokens per batch, including padding.",
            show_default="2048, or 16384 on a GPU",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="NUMBER", help="Random seed for the sample of --max-tokens.")] = 0,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Allow the model to run its own Python code.")
    ] = False,
    restart: RestartOption = False,
) -> None:
    """Embed texts with a model, one vector per text or per token.

    Other commands accept the output as their source. By default, a Sentence Transformers model uses its own pooling,
    and any other model the mean of its last layer. --pool tokens writes a row for every token in every layer:
    isoscope audit DIR --by layer audits each layer.
    """
    from isoscope.embedding.embed import embed as run_embed
    from isoscope.embedding.output import OutputPath
    from isoscope.stores.manifest import EMBEDDING_MANIFEST, describe_embedding

    text_columns, named = _parse_columns(columns)
    roles = resolve_ids(named, ids)
    target = OutputPath.parse(output)
    try:
        with InterruptibleProgressBar("tokens") as bar:
            run_embed(
                model,
                texts,
                output,
                layers=_parse_layers(layers),
                pool=cast(Any, pool and pool.value),
                window=window,
                stride=stride,
                truncate=truncate,
                special_tokens=cast(Any, special_tokens and special_tokens.value),
                dtype=cast(Any, dtype.value),
                max_tokens=max_tokens,
                text=text_columns or None,
                labels=roles.get("labels"),
                ids=roles.get("ids"),
                prompt=prompt,
                prompt_name=prompt_name,
                split=cast(Any, split.value),
                config=config,
                part=part,
                device=device,
                batch_tokens=batch_tokens,
                seed=seed,
                trust_remote_code=trust_remote_code,
                restart=restart,
                progress=bar,
                say=print_message,
            )
    except KeyboardInterrupt as stop:
        started = (target.folder / EMBEDDING_MANIFEST).exists()
        kept = f"finished work is kept in {target.folder}" if started else "nothing was written"
        raise Interruption(f"{kept}; to resume, run: {resume_command()}") from stop
    manifest = describe_embedding(target.file or target.folder)
    settings, rows = manifest["settings"], manifest["rows"]
    layer_count = len(settings["layers"])
    count = f"{layer_count} layers of {rows:,} vectors" if layer_count > 1 else f"{rows:,} vectors"
    print(f"{Path(output)}: {count}, {settings['dimensions']} dimensions")
    by = ["--by", "layer"] if layer_count > 1 else []
    audit = shlex.join(["isoscope", "audit", str(Path(output)), *by, "--html", "report.html"])
    print(f"Next: {audit}", file=sys.stderr)


def _parse_columns(pairs: list[str] | None) -> tuple[list[str], dict[str, str]]:
    """Parse ROLE=NAME pairs, where text= may have several names, and return the text columns and the others by role."""
    texts, others, role = [], [], ""
    for pair in ",".join(pairs or []).split(",") if pairs else []:
        before, equals, name = pair.partition("=")
        role, name = (before, name) if equals else (role, pair)
        if role == "text" and name:
            texts.append(name)
        else:
            others.append(pair)
    roles = parse_columns(others or None)
    if roles.keys() - {"labels", "ids"}:
        raise ParameterError("--columns: embed supports only text=, labels= and ids=")
    return texts, roles


def _parse_layers(text: str | None) -> Any:
    """Parse the layers: `all`, or a list of integers."""
    if text is None or text == "all":
        return text
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise ParameterError(f'--layers {text}: need "all", -1, or layer numbers such as 0,6,12') from None
