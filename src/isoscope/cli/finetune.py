"""The command `finetune`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from isoscope._core.errors import ParameterError
from isoscope.cli.help import MODELS, OUTPUT, command
from isoscope.cli.options import (
    JsonOption,
    ModelArgument,
    RunFolderOption,
    check_overwriting,
    check_result_files,
    parse_seeds,
)
from isoscope.cli.session import (
    STDOUT,
    InterruptibleProgressBar,
    Interruption,
    report_written,
    resume_command,
    show,
    write_json_output,
)

if TYPE_CHECKING:
    from isoscope.training.repair_layer import BatchRepair

commands = typer.Typer()

RegularizerName = StrEnum(
    "RegularizerName",
    {
        "none": "none",
        "persistent_entropy": "persistent-entropy",
        "istar": "istar",
        "unbiased": "unbiased",
        "cosreg": "cosreg",
    },
)
Schedule = StrEnum("Schedule", ["cosine", "linear", "constant"])


@command(
    commands,
    MODELS,
    "isoscope finetune ./my-model cola --data data -o run",
    "isoscope finetune ./my-model reviews.csv --label-column stars -o run",
)
def finetune(
    model: ModelArgument,
    output: RunFolderOption,
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK",
            help="cola, mrpc, rte, qnli, sst2, sst5, snli, wic or stsb; or your own file, as with --train.",
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(rich_help_panel="Task", metavar="DIR", help="Folder with the TSV files of TASK.")
    ] = None,
    train: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel="Task", metavar="FILE", help="Train on your own .csv, .tsv, .jsonl or .parquet file."
        ),
    ] = None,
    dev: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel="Task",
            metavar="FILE",
            help="File with the rows to score on; without it, a share of --train is held out.",
        ),
    ] = None,
    dev_share: Annotated[
        float | None,
        typer.Option(rich_help_panel="Task", metavar="SHARE", help="Share of --train to hold out.", show_default="0.1"),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            "--text-column", rich_help_panel="Task", metavar="COLUMN", help="Column with the text in your file."
        ),
    ] = None,
    text_pair: Annotated[
        str | None,
        typer.Option(
            "--text-pair-column",
            rich_help_panel="Task",
            metavar="COLUMN",
            help="Column with the second text of each pair in your file.",
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            "--label-column",
            rich_help_panel="Task",
            metavar="COLUMN",
            help="Column with the labels or numeric grades in your file.",
        ),
    ] = None,
    measure: Annotated[
        str | None,
        typer.Option(
            rich_help_panel="Task",
            metavar="NAME",
            help="Main metric for your file: accuracy, f1 or matthews for labels; pearson or spearman for grades.",
        ),
    ] = None,
    regularizer: Annotated[
        RegularizerName,
        typer.Option(
            rich_help_panel="Regularizer",
            metavar="NAME",
            help="Regularizer that is added to the loss: none, persistent-entropy, istar, unbiased or cosreg.",
        ),
    ] = RegularizerName.none,
    weight: Annotated[
        float | None,
        typer.Option(
            rich_help_panel="Regularizer",
            metavar="NUMBER",
            help="Regularizer weight; a negative weight reverses its effect.",
            show_default="0.01 for unbiased, 0.1 for cosreg, 1 for others",
        ),
    ] = None,
    layer: Annotated[
        str | None,
        typer.Option(
            rich_help_panel="Regularizer",
            metavar="LAYER",
            help="Layer to regularize: a number, the name of a module, or all.",
            show_default="as published",
        ),
    ] = None,
    pool: Annotated[
        str | None,
        typer.Option(
            rich_help_panel="Regularizer",
            metavar="NAME",
            help="Pooling of the states to regularize: cls, mean, last, or tokens (no pooling).",
            show_default="as published",
        ),
    ] = None,
    all_bars: Annotated[
        bool,
        typer.Option(
            "--all-bars",
            rich_help_panel="Regularizer",
            help="For persistent-entropy: use all bars, not only the significant ones.",
        ),
    ] = False,
    whole_batch: Annotated[
        bool,
        typer.Option(
            "--whole-batch",
            rich_help_panel="Regularizer",
            help="For persistent-entropy: treat the batch as one class, for tasks with many classes.",
        ),
    ] = False,
    zeta: Annotated[
        float,
        typer.Option(
            rich_help_panel="Regularizer",
            metavar="SHARE",
            help="For istar: weight of the covariance of the training set, from 0 to 1.",
        ),
    ] = 0.2,
    repair: Annotated[
        str | None,
        typer.Option(
            rich_help_panel="Regularizer",
            metavar="K,D",
            help="In each batch, remove the mean and D principal components from each of K clusters.",
        ),
    ] = None,
    seeds: Annotated[
        str,
        typer.Option(
            rich_help_panel="Training", metavar="SEEDS", help="Number of seeds, or a list of seeds such as 0,1,2."
        ),
    ] = "1",
    epochs: Annotated[
        float | None,
        typer.Option(
            rich_help_panel="Training", metavar="NUMBER", help="Number of training epochs.", show_default="as published"
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            rich_help_panel="Training", metavar="ROWS", help="Number of rows per batch.", show_default="as published"
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            rich_help_panel="Training", metavar="NUMBER", help="Peak learning rate.", show_default="as published"
        ),
    ] = None,
    weight_decay: Annotated[
        float | None,
        typer.Option(rich_help_panel="Training", metavar="NUMBER", help="Weight decay.", show_default="as published"),
    ] = None,
    accumulate: Annotated[
        int,
        typer.Option(
            rich_help_panel="Training",
            metavar="BATCHES",
            help="Number of batches per optimizer step (gradient accumulation).",
        ),
    ] = 1,
    warmup: Annotated[
        float,
        typer.Option(
            rich_help_panel="Training",
            metavar="SHARE",
            help="Share of the steps used for the warmup, in which the learning rate rises.",
        ),
    ] = 0.1,
    schedule: Annotated[
        Schedule,
        typer.Option(
            rich_help_panel="Training",
            metavar="NAME",
            help="Learning rate after the warmup: cosine, linear or constant.",
        ),
    ] = Schedule.cosine,
    max_length: Annotated[
        int,
        typer.Option(rich_help_panel="Task", metavar="TOKENS", help="Truncate each text or pair to this many tokens."),
    ] = 128,
    group_lengths: Annotated[
        bool,
        typer.Option(
            "--group-lengths",
            rich_help_panel="Training",
            help="Batch texts of similar length together, which is faster.",
        ),
    ] = False,
    group_classes: Annotated[
        bool,
        typer.Option(
            "--group-classes",
            rich_help_panel="Training",
            help="Put several rows of a class into a batch, for tasks with many classes.",
        ),
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(rich_help_panel="Task", metavar="ROWS", help="Train on a random sample of this many rows."),
    ] = None,
    probe: Annotated[
        int,
        typer.Option(
            rich_help_panel=OUTPUT,
            metavar="ROWS",
            help="Number of dev set rows used to measure the embedding space during training.",
        ),
    ] = 256,
    every: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=OUTPUT,
            metavar="STEPS",
            help="Number of steps between measurements.",
            show_default="20 measurements in total",
        ),
    ] = None,
    bf16: Annotated[
        bool, typer.Option("--bf16", rich_help_panel="Training", help="Train with bfloat16 mixed precision.")
    ] = False,
    stop_on_collapse: Annotated[
        bool,
        typer.Option(
            "--stop-on-collapse",
            rich_help_panel="Training",
            help="Stop the run of a seed if its embedding space collapses.",
        ),
    ] = False,
    save_model: Annotated[
        bool, typer.Option("--save-model", rich_help_panel=OUTPUT, help="Save the trained model of each seed.")
    ] = False,
    json: JsonOption = None,
) -> None:
    """Fine-tune a model and track the shape of its space.

    A regularizer can raise or lower the isotropy of the space. The output folder receives metrics.json and page.html.
    Rerun the same command to resume an interrupted run.
    """
    from isoscope.finetuning.finetune import finetune as run_finetune

    own_files = [output / name for name in ("settings.json", "metrics.json", "page.html")]
    check_overwriting([json], [train, dev, *own_files], folders=[model, data])
    check_result_files(json)
    seed_list, layer_choice, batch_repair = parse_seeds(seeds), _parse_layer(layer), _parse_repair(repair)
    try:
        with InterruptibleProgressBar("steps") as bar:
            result = run_finetune(
                model,
                task,
                output=output,
                data=data,
                train=train,
                dev=dev,
                dev_share=dev_share,
                text=text,
                text_pair=text_pair,
                label=label,
                measure=measure,
                regularizer=regularizer.value,
                weight=weight,
                layer=layer_choice,
                pool=pool,
                select=not all_bars,
                per_class=not whole_batch,
                zeta=zeta,
                repair=batch_repair,
                seeds=seed_list,
                epochs=epochs,
                batch_size=batch_size,
                learning_rate=learning_rate,
                weight_decay=weight_decay,
                accumulate=accumulate,
                warmup=warmup,
                schedule=cast(Any, schedule.value),
                max_length=max_length,
                group_lengths=group_lengths,
                group_classes=group_classes,
                limit=limit,
                probe=probe,
                every=every,
                bf16=bf16,
                stop_on_collapse=stop_on_collapse,
                keep_model=save_model,
                progress=bar,
            )
    except KeyboardInterrupt as stop:
        started = (output / "settings.json").exists()
        kept = f"finished work is kept in {output}" if started else "nothing was written"
        raise Interruption(f"{kept}; to resume, run: {resume_command()}") from stop
    if json is not None:
        write_json_output(result.to_dict(), json)
    if json != STDOUT:
        from isoscope._report.finetuning_text import render_finetuning

        show(render_finetuning(result))
        for name in ("metrics.json", "page.html"):
            report_written(output / name)


def _parse_layer(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.removeprefix("-").isdecimal() else text


def _parse_repair(text: str | None) -> BatchRepair | None:
    """Parse the repair inside the model: the numbers of clusters and components, such as `3,1`."""
    if text is None:
        return None
    numbers = text.split(",")
    if len(numbers) != 2 or not all(each.strip().isdecimal() for each in numbers):
        raise ParameterError(f"--repair {text}: need two integers, the numbers of clusters and components, such as 3,1")
    from isoscope.training.repair_layer import BatchRepair

    return BatchRepair(int(numbers[0]), int(numbers[1]))
