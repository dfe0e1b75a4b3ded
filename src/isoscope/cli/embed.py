"""The command `embed`."""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from typing import Annotated, Any, cast

import typer

from isoscope._core.errors import ParameterError
from isoscope.cli.options import RestartOption, RunFolderOption, parse_columns
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
    output: RunFolderOption,
    layers: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS",
            help='Layers to write: "all", -1 for the last, or numbers such as 0,6,12. Layer 0 is the input of the '
            "first layer.",
            show_default="all",
        ),
    ] = None,
    pool: Annotated[
        Pool,
        typer.Option(help='How to pool the tokens of a text into one row; "tokens" writes one row per token instead.'),
    ] = Pool.tokens,
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
            help="Columns with the texts and labels of a table: text=NAME and labels=NAME.",
        ),
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
    """Run texts through a model and write its hidden states.

    Other commands accept the output folder as their source: isoscope audit DIR --by layer audits each layer. Rerun the
    same command to resume an interrupted run.
    """
    from isoscope.embedding.embed import embed as run_embed
    from isoscope.stores.manifest import EMBEDDING_MANIFEST, read_manifest

    roles = parse_columns(columns)
    if roles.keys() - {"text", "labels"}:
        raise ParameterError("--columns: embed supports only text= and labels=")
    try:
        with InterruptibleProgressBar("tokens") as bar:
            run_embed(
                model,
                texts,
                output,
                layers=_parse_layers(layers),
                pool=pool.value,
                window=window,
                stride=stride,
                special_tokens=cast(Any, special_tokens and special_tokens.value),
                dtype=cast(Any, dtype.value),
                max_tokens=max_tokens,
                text=roles.get("text"),
                labels=roles.get("labels"),
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
        started = (output / EMBEDDING_MANIFEST).exists()
        kept = f"finished work is kept in {output}" if started else "nothing was written"
        raise Interruption(f"{kept}; to resume, run: {resume_command()}") from stop
    manifest = read_manifest(output)
    assert manifest is not None
    settings, rows = manifest["settings"], manifest["rows"]
    layer_count = len(settings["layers"])
    count = f"{layer_count} layers of {rows:,} vectors" if layer_count > 1 else f"{rows:,} vectors"
    print(f"{output}: {count}, {settings['dimensions']} dimensions")
    by = ["--by", "layer"] if layer_count > 1 else []
    audit = shlex.join(["isoscope", "audit", str(output), *by, "--html", "report.html"])
    print(f"Next: {audit}", file=sys.stderr)


def _parse_layers(text: str | None) -> Any:
    """Parse the layers: `all`, or a list of integers."""
    if text is None or text == "all":
        return text
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise ParameterError(f'--layers {text}: need "all", -1, or layer numbers such as 0,6,12') from None
