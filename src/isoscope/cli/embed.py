"""The command `embed`."""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from isoscope._core.errors import ParameterError, plural
from isoscope.cli.help import INPUT, LIMITS, MODELS, OUTPUT, command
from isoscope.cli.options import (
    ColumnsOption,
    EmbeddingsOption,
    IdsOption,
    RestartOption,
    SeedOption,
    parse_columns,
    resolve_roles,
)
from isoscope.cli.session import InterruptibleProgressBar, Interruption, cli_form, print_message, resume_command

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


@command(
    commands,
    MODELS,
    "isoscope embed ./my-model texts.txt -o vectors.parquet",
    "isoscope embed ./my-model table.csv --columns text=body,ids=key -o vectors",
    "isoscope embed ./my-model texts.txt --pool tokens --max-tokens 50000 -o states",
)
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
    output: EmbeddingsOption,
    restart: RestartOption = False,
    columns: ColumnsOption = None,
    ids: IdsOption = None,
    layers: Annotated[
        str | None,
        typer.Option(
            rich_help_panel="Model",
            metavar="NUMBERS",
            help='Layers to write: "all", -1 for the last, or numbers such as 0,6,12. Layer 0 is the input of the '
            "first layer.",
            show_default="the last; all for --pool tokens",
        ),
    ] = None,
    pool: Annotated[
        Pool | None,
        typer.Option(
            rich_help_panel="Model",
            metavar="NAME",
            help="How to pool the tokens of a text into one vector: mean, cls, last or sentence-transformers; tokens "
            "writes one row per token instead.",
            show_default="sentence-transformers for such a model, else mean",
        ),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(
            rich_help_panel="Model",
            metavar="TOKENS",
            help="Number of tokens per window, including special tokens.",
            show_default="512, or the limit of the model",
        ),
    ] = None,
    stride: Annotated[
        int | None,
        typer.Option(
            rich_help_panel="Model",
            metavar="TOKENS",
            help="Number of tokens between the starts of consecutive windows in a long text.",
            show_default="the window, without overlap",
        ),
    ] = None,
    truncate: Annotated[
        bool,
        typer.Option(
            "--truncate",
            rich_help_panel="Model",
            help="Read only the first window of a long text instead of all windows. Sentence Transformers pooling "
            "always does this.",
        ),
    ] = False,
    special_tokens: Annotated[
        SpecialTokens | None,
        typer.Option(
            rich_help_panel="Model",
            metavar="ACTION",
            help="What to do with special tokens such as [CLS]: keep or drop.",
            show_default="drop for --pool tokens, else keep",
        ),
    ] = None,
    dtype: Annotated[
        Precision,
        typer.Option(
            rich_help_panel=OUTPUT, metavar="TYPE", help="Number format of the written vectors: float32 or float16."
        ),
    ] = Precision.float32,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=LIMITS,
            metavar="TOKENS",
            help="Embed a random sample of the texts, with at most this many tokens in total.",
        ),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            rich_help_panel="Model",
            metavar="TEXT",
            help="Prompt that a Sentence Transformers model prepends to each text.",
        ),
    ] = None,
    prompt_name: Annotated[
        str | None,
        typer.Option(
            rich_help_panel="Model", metavar="NAME", help="Name of one of the prompts of a Sentence Transformers model."
        ),
    ] = None,
    split: Annotated[
        SplitUnit,
        typer.Option(
            rich_help_panel=INPUT,
            metavar="UNIT",
            help="Unit of text in a plain text file: a line, a paragraph or the whole file.",
        ),
    ] = SplitUnit.line,
    config: Annotated[
        str | None,
        typer.Option(rich_help_panel=INPUT, metavar="NAME", help="Configuration of the Hugging Face dataset."),
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=INPUT, metavar="NAME", help="Split of the Hugging Face dataset, such as train or test."
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            rich_help_panel="Model",
            metavar="NAME",
            help="Device to run the model on, such as cpu or cuda.",
            show_default="a GPU if there is one",
        ),
    ] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            rich_help_panel="Model",
            metavar="TOKENS",
            help="Number of tokens per batch, including padding.",
            show_default="2048, or 16384 on a GPU",
        ),
    ] = None,
    trust_remote_code: Annotated[
        bool,
        typer.Option(
            "--trust-remote-code", rich_help_panel="Model", help="Allow the model to run its own Python code."
        ),
    ] = False,
    seed: SeedOption = 0,
) -> None:
    """Embed texts with a model and write the vectors.

    Other commands accept the output as their source. By default, a Sentence Transformers model uses its own pooling,
    and any other model the mean of its last layer. --pool tokens writes a row for every token in every layer:
    isoscope audit DIR --by layer audits each layer. --columns accepts text, labels and ids; text=title,body joins
    two columns with a space. Rerun the same command to resume.
    """
    from isoscope.embedding.embed import embed as run_embed
    from isoscope.embedding.output import OutputPath
    from isoscope.stores.manifest import EMBEDDING_MANIFEST, describe_embedding

    text_columns, named = _parse_columns(columns)
    roles = resolve_roles(named, {"ids": ids})
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
                say=lambda words: print_message(cli_form(words)),
            )
    except KeyboardInterrupt as stop:
        started = (target.folder / EMBEDDING_MANIFEST).exists()
        kept = f"finished work is kept in {target.folder}" if started else "nothing was written"
        raise Interruption(f"{kept}; to resume, run: {resume_command()}") from stop
    manifest = describe_embedding(target.file or target.folder)
    settings, rows = manifest["settings"], manifest["rows"]
    layer_count = len(settings["layers"])
    count = f"{layer_count} layers of {plural(rows, 'vector')}" if layer_count > 1 else plural(rows, "vector")
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
        raise ParameterError("embed --columns supports only text=, labels= and ids=")
    return texts, roles


def _parse_layers(text: str | None) -> Any:
    """Parse the layers: `all`, or a list of integers."""
    if text is None or text == "all":
        return text
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise ParameterError(f'--layers {text}: need "all", -1, or layer numbers such as 0,6,12') from None
