"""Fine-tune with several seeds and an optional regularizer, and track the shape of the embedding space."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from isoscope._core.errors import (
    FileFormatError,
    MissingExtra,
    NotFoundError,
    OutputError,
    ParameterError,
    ShapeError,
    TooFewRowsError,
)
from isoscope._io.files import atomic_replace, expand_user
from isoscope._io.json import CHANGED, checksum, jsonable, write_json
from isoscope._io.progress import show_progress
from isoscope._io.runs import RunFolder
from isoscope._render import render
from isoscope.finetuning.result import FineTuning, SeedOutcome, score_constant_prediction
from isoscope.finetuning.settings import DEFAULT_ZETA, OPTIONS, REGULARIZERS, compare_settings, make_settings
from isoscope.finetuning.task_data import GLUE_NAMES, Task, read_custom_task, read_glue, stratified_sample

if TYPE_CHECKING:
    from isoscope._io.progress import Progress
    from isoscope.finetuning.settings import Settings
    from isoscope.finetuning.tokenizing import Reader
    from isoscope.finetuning.train import TaskRows
    from isoscope.losses.regularizer import Regularizer
    from isoscope.training.repair_layer import BatchRepair

RegularizerName = Literal["none", "persistent-entropy", "istar", "unbiased", "cosreg"]

_SCHEMA = "isoscope.finetuning-settings/1"
_MAX_SEEDS = 1000
"""The maximum number of seeds; a larger number is probably meant as a seed."""
_SAMPLING_SEED = 0
"""The random seed for samples that all runs share: the training subset and the probe."""


def finetune(
    model: str | os.PathLike[str],
    task: str | os.PathLike[str] | Task | None = None,
    *,
    output: str | os.PathLike[str],
    data: str | os.PathLike[str] | None = None,
    train: str | os.PathLike[str] | None = None,
    dev: str | os.PathLike[str] | None = None,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    dev_share: float | None = None,
    measure: str | None = None,
    regularizer: RegularizerName | Regularizer = "none",
    weight: float | None = None,
    layer: int | str | list[int] | tuple[int, ...] | None = None,
    pool: str | None = None,
    select: bool = True,
    per_class: bool = True,
    zeta: float = DEFAULT_ZETA,
    repair: BatchRepair | None = None,
    seeds: int | Iterable[int] = 1,
    epochs: float | None = None,
    batch_size: int | None = None,
    accumulate: int = 1,
    learning_rate: float | None = None,
    weight_decay: float | None = None,
    warmup: float = 0.1,
    schedule: Literal["cosine", "linear", "constant"] = "cosine",
    max_length: int = 128,
    group_lengths: bool = False,
    group_classes: bool = False,
    limit: int | None = None,
    probe: int = 256,
    every: int | None = None,
    bf16: bool = False,
    stop_on_collapse: bool = False,
    keep_model: bool = False,
    progress: bool | Progress | None = None,
) -> FineTuning:
    """Fine-tune a model for a task, with or without a regularizer, and track the shape of its embedding space.

    Results are saved in `output`. After an interruption, repeat the same call: it reads the finished seeds, resumes the
    interrupted seed from its last checkpoint with identical results, and runs the remaining seeds. If the folder
    contains a run with other settings, an error is raised.

    Parameters
    ----------
    model : str or path
        A model folder, or a model name on the Hugging Face Hub. Code that comes with a model is never run.
    task : str, path or Task, optional
        The name of a task whose files are in the folder `data` ("cola", "mrpc", "rte", "qnli", "sst2", "sst5", "snli",
        "wic" or "stsb"), a file of texts and labels for training, or a `Task`.
    output : path
        The folder of the run: ``settings.json``, ``metrics.json``, ``page.html``, and for each seed ``result.json``,
        ``history.parquet`` and, until the seed is done, a checkpoint.
    data : path, optional
        The folder of the named task's TSV files, or the folder that contains the folders of all tasks.
    train : path, optional
        A file of texts and labels for training, instead of `task`.
    dev, text, text_pair, label, dev_share, measure
        For a file: the dev set (or the share of rows to hold out), the columns, and the main score.
    regularizer : str or Regularizer
        A name ("none", "persistent-entropy", "istar", "unbiased" or "cosreg"), or an object from `isoscope.losses`,
        which has its own options.
    weight : float, optional
        The weight of a regularizer given by name; a negative weight reverses its effect. The default is 1 for
        "persistent-entropy" and "istar", 0.1 for "cosreg" and 0.01 for "unbiased".
    layer, pool : optional
        The layer and the pooling mode for the regularizer (see `attach`); by default, those of its paper.
    select : bool
        If `regularizer` is "persistent-entropy": whether to use only the selected bars. Otherwise, all bars are used.
    per_class : bool
        If `regularizer` is "persistent-entropy": whether to compute the term for each class. Otherwise, the batch is
        treated as one class, as it always is if the labels are grades.
    zeta : float
        If `regularizer` is "istar": the weight of the training set's covariance.
    repair : BatchRepair, optional
        A repair of the vectors that the head reads, inside the model, in training and evaluation: see
        `isoscope.training.repair_layer`. The tracker measures the repaired last layer.
    seeds : int or iterable of int
        The number of seeds (0, 1, …), or the seeds themselves.
    epochs, batch_size, learning_rate, weight_decay : optional
        By default the task's published values: see `isoscope.finetuning.settings.RECIPES`.
    accumulate : int
        The number of batches per optimizer step; the regularizer sees one batch at a time.
    warmup : float
        The share of steps during which the learning rate rises.
    schedule : {"cosine", "linear", "constant"}
        The learning rate schedule after the warm-up.
    max_length : int
        Texts and pairs are truncated to this many tokens.
    group_lengths : bool
        Whether batches contain texts of similar length, reshuffled in each epoch. This reduces padding and is faster
        for short texts.
    group_classes : bool
        Whether batches contain several rows of each class that they contain, reshuffled in each epoch. This lets
        "persistent-entropy" use all rows even if there are many classes.
    limit : int, optional
        The number of training rows to use: a random sample, the same for all seeds, and stratified by class unless the
        labels are grades.
    probe : int
        The number of dev rows that the tracker measures.
    every : int, optional
        The number of steps between measurements; by default a twentieth of the run.
    bf16 : bool
        Whether to compute in bfloat16 where this is safe.
    stop_on_collapse : bool
        Whether to stop the run of a seed if its embedding space has collapsed.
    keep_model : bool
        Whether to keep the model of each seed, in ``seed-0/model``.
    progress : bool or function, optional
        Whether to show a progress bar: by default in notebooks and at a Python prompt. A function is called
        with the stage (``"seed 0"``), the step, the share of the whole run, and a note with the loss and the
        score.

    Returns
    -------
    FineTuning
        The scores and the shape of the embedding space, for each seed and aggregated over all seeds: at the end of
        training, and averaged over the last 30% of steps.

    Examples
    --------
    >>> import isoscope
    >>> isoscope.finetune("bert-base-uncased", "cola", output="run", regularizer="istar")
    Traceback (most recent call last):
    ...
    isoscope.errors.ParameterError: cola needs the folder of its TSV files: pass data= (on the command line: --data)
    """
    if (task is None) == (train is None):
        problem = "neither a task nor train= is set" if task is None else "a task and train= are both set"
        raise ParameterError(f"{problem}: pass one of them (CLI: TASK or --train FILE)")
    task_data = (
        _read_task(task, data, dev, text, text_pair, label, dev_share, measure)
        if train is None
        else _read_file(train, data, dev, text, text_pair, label, dev_share, measure)
    )
    numbers = _check_seeds(seeds)
    name = _regularizer_name(regularizer)
    options = {"weight": weight, "layer": layer, "select": select, "per_class": per_class, "zeta": zeta}
    _check_options(regularizer, options)
    _check_extra()
    settings = make_settings(
        os.fspath(model),
        task_data,
        regularizer=name,
        weight=weight,
        layer=list(layer) if isinstance(layer, tuple) else layer,
        pool=pool,
        select=select,
        per_class=per_class,
        zeta=zeta,
        epochs=epochs,
        batch_size=batch_size,
        accumulate=accumulate,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        warmup=warmup,
        schedule=schedule,
        max_length=max_length,
        group_lengths=group_lengths,
        group_classes=group_classes,
        limit=limit,
        probe=probe,
        every=every,
        bf16=bf16,
        stop_on_collapse=stop_on_collapse,
        repair=None if repair is None else repr(repair),
    )
    parts = ("seed-*/result.json", "seed-*/checkpoint-*/trainer_state.json")
    folder = RunFolder(expand_user(output), "settings.json", _SCHEMA, parts=parts)
    with show_progress(progress, "steps") as report, folder.open(parents=True):
        folder.check(settings.to_dict(), compare=compare_settings)
        done = _read_finished_seeds(folder, numbers, keep_model=keep_model)
        run = _Run(folder, settings, task_data, regularizer, repair, keep_model=keep_model, progress=report)
        return run.run_seeds(numbers, done)


class _Run:
    """A run with several seeds, saved in a folder."""

    def __init__(
        self,
        folder: RunFolder,
        settings: Settings,
        task: Task,
        regularizer: str | Regularizer,
        repair: BatchRepair | None,
        *,
        keep_model: bool,
        progress: Progress,
    ) -> None:
        self.folder, self.settings, self.task, self.regularizer = folder, settings, task, regularizer
        self.repair, self.keep_model, self.progress = repair, keep_model, progress

    def run_seeds(self, seeds: list[int], done: dict[int, SeedOutcome]) -> FineTuning:
        from isoscope.finetuning.tokenizing import load_reader
        from isoscope.finetuning.train import make_regularizer

        reader = load_reader(self.settings.model, self.settings.max_length)
        make_regularizer(self.settings, self.regularizer, graded=self.task.is_graded)  # checks the options
        rows, notes = self._rows(reader)
        self.folder.begin(self.settings.to_dict(), compare=compare_settings)
        for place, seed in enumerate(seeds):
            if seed not in done:
                done[seed] = self._run_seed(seed, place / len(seeds), 1 / len(seeds), rows, reader)
        outcomes = tuple(done[seed] for seed in seeds)
        baseline = score_constant_prediction(self.task.dev.labels, len(self.task.labels))
        result = FineTuning(self.settings, outcomes, self.folder.path, tuple(notes), _versions(), baseline)
        write_json(result.to_dict(), self.folder.path / "metrics.json")
        _write_page(result)
        return result

    def _run_seed(self, seed: int, before: float, share: float, rows: TaskRows, reader: Reader) -> SeedOutcome:
        from isoscope.finetuning.checkpoints import remove_checkpoints
        from isoscope.finetuning.train import run_seed

        folder = self.folder.path / f"seed-{seed}"
        folder.mkdir(exist_ok=True)

        def report(step: int, share_of_seed: float, note: str) -> None:
            self.progress(f"seed {seed}", step, before + share * share_of_seed, note)

        outcome = run_seed(
            seed,
            folder,
            self.settings,
            self.task,
            rows,
            reader,
            self.regularizer,
            repair=self.repair,
            keep_model=self.keep_model,
            report=report,
        )
        content = jsonable(outcome.to_dict())
        self.folder.record(f"seed-{seed}/result.json", {**content, "checksum": checksum(content)})
        remove_checkpoints(folder)
        return outcome

    def _rows(self, reader: Reader) -> tuple[TaskRows, list[str]]:
        from isoscope.finetuning.tokenizing import describe_rows
        from isoscope.finetuning.train import TaskRows

        all_rows = self.task.train
        part = (
            all_rows
            if len(all_rows) == self.settings.train_rows
            else all_rows.part(stratified_sample(all_rows.labels, self.settings.train_rows, _SAMPLING_SEED))
        )
        if len(np.unique(part.labels)) < 2:
            raise TooFewRowsError(
                f"limit is {self.settings.limit}, but all sampled rows have the same class: use a larger limit"
            )
        train, truncated_train = reader.read(part)
        dev, truncated_dev = reader.read(self.task.dev)
        probe = [dev[i] for i in stratified_sample(self.task.dev.labels, self.settings.probe, _SAMPLING_SEED)]
        notes = describe_rows(
            len(part), len(all_rows), truncated_train + truncated_dev, reader, graded=self.task.is_graded
        )
        return TaskRows(train, dev, probe), notes


def _read_task(
    task: Any, data: Any, dev: Any, text: Any, text_pair: Any, label: Any, dev_share: float | None, measure: Any
) -> Task:
    for_files = {
        "dev": dev,
        "text": text,
        "text_pair": text_pair,
        "label": label,
        "dev_share": dev_share,
        "measure": measure,
    }
    if isinstance(task, Task) or task in GLUE_NAMES:
        for name, value in for_files.items():
            if value is not None:
                raise ParameterError(f"{name} applies only to a file of your own: omit it for a named task or a Task")
    if isinstance(task, Task):
        return _check_task(task)
    if task in GLUE_NAMES:
        if data is None:
            raise ParameterError(f"{task} needs the folder of its TSV files: pass data= (on the command line: --data)")
        return read_glue(str(task), data)
    if isinstance(task, str) and "." not in task and not expand_user(task).exists():
        raise NotFoundError(
            f"there is no task named {task}: need one of {', '.join(GLUE_NAMES)}, or a file of texts and labels"
        )
    return _read_file(task, data, dev, text, text_pair, label, dev_share, measure)


def _read_file(
    train: Any, data: Any, dev: Any, text: Any, text_pair: Any, label: Any, dev_share: float | None, measure: Any
) -> Task:
    if data is not None:
        raise ParameterError(f"data applies only to a named task, but {os.fspath(train)} is a file: omit data")
    if dev is not None and dev_share is not None:
        raise ParameterError("dev and dev_share are both set: pass either a dev set or the share of rows to hold out")
    share = 0.1 if dev_share is None else dev_share
    return read_custom_task(train, dev, text=text, text_pair=text_pair, label=label, dev_share=share, measure=measure)


def _check_task(task: Task) -> Task:
    for word, split in (("train", task.train), ("dev", task.dev)):
        rows, labels = len(split), np.asarray(split.labels)
        if len(labels) != rows or (split.pairs is not None and len(split.pairs) != rows):
            raise ShapeError(
                f"the {word} split of {task.name} has {rows} texts but {len(labels)} labels; pass one label per text"
            )
        numbered = labels.dtype.kind in "iu" and rows > 0
        if task.labels and not (numbered and 0 <= labels.min() <= labels.max() < len(task.labels)):
            raise ParameterError(
                f"the {word} split of {task.name} has labels that are not class numbers: need integers from 0 to "
                f"{len(task.labels) - 1}"
            )
    return task


def _check_seeds(seeds: int | Iterable[int]) -> list[int]:
    message = f"seeds is {seeds!r}: need a number of seeds, or a list of distinct integers from 0 to {2**32 - 1}"
    if isinstance(seeds, bool) or not isinstance(seeds, int | np.integer | Iterable):
        raise ParameterError(message)
    if not isinstance(seeds, Iterable) and seeds > _MAX_SEEDS:
        raise ParameterError(
            f"seeds is {seeds}, which would start more than {_MAX_SEEDS} runs; to use {seeds} as the only seed, pass "
            f"[{seeds}] (on the command line, add a trailing comma: --seeds {seeds},)"
        )
    numbers = list(seeds) if isinstance(seeds, Iterable) else list(range(seeds))
    wrong = [each for each in numbers if not isinstance(each, int | np.integer) or not 0 <= each < 2**32]
    if not numbers or wrong or len(set(numbers)) < len(numbers):
        raise ParameterError(message)
    return [int(each) for each in numbers]


def _regularizer_name(regularizer: Any) -> str:
    """Return the name of a regularizer; for an object, its repr on one line."""
    if isinstance(regularizer, str):
        if regularizer not in REGULARIZERS:
            raise ParameterError(f"regularizer is {regularizer!r}: need one of {', '.join(REGULARIZERS)}")
        return regularizer
    from isoscope.losses.regularizer import Regularizer

    if not isinstance(regularizer, Regularizer):
        raise ParameterError(
            f"regularizer is a {type(regularizer).__name__}: need one of {', '.join(REGULARIZERS)}, or an object from "
            "isoscope.losses"
        )
    return " ".join(repr(regularizer).split())


def _check_options(regularizer: str | Regularizer, options: dict[str, Any]) -> None:
    """Raise a `ParameterError` for an option that the regularizer does not accept."""
    known = OPTIONS[regularizer] if isinstance(regularizer, str) else ("layer",)
    defaults = {"select": True, "per_class": True, "zeta": DEFAULT_ZETA}
    for name, value in options.items():
        if name not in known and value != defaults.get(name):
            if isinstance(regularizer, str):
                raise ParameterError(
                    f"{name} is {value!r}, but regularizer {regularizer!r} has no such option: omit it"
                )
            raise ParameterError(f"{name} is {value!r}, but regularizer is an object: set {name} in that object")


def _check_extra() -> None:
    missing = [name for name in ("torch", "transformers", "accelerate") if find_spec(name) is None]
    if missing:
        raise MissingExtra(f'fine-tuning needs {", ".join(missing)}: pip install "isoscope[train]"')


def _read_finished_seeds(folder: RunFolder, seeds: list[int], *, keep_model: bool) -> dict[int, SeedOutcome]:
    done = {}
    for seed in seeds:
        if folder.is_done(f"seed-{seed}/result.json"):
            path = folder.path / f"seed-{seed}"
            done[seed] = _read_outcome(path / "result.json")
            if keep_model and not (path / "model").is_dir():
                raise OutputError(
                    f"{path} is complete, but its model was not saved: to save the model, train again in another folder"
                )
    return done


def _read_outcome(path: Path) -> SeedOutcome:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        saved = content.pop("checksum", None)  # older runs have none
        if saved is not None and saved != checksum(content):
            raise ValueError(CHANGED)
        outcome = SeedOutcome.from_dict(content)
        _ = outcome.final, outcome.late  # raise an error for values of wrong types
        return outcome
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileFormatError(
            f"{path} cannot be read as the result of a seed ({error}): remove it to train that seed again"
        ) from error


def _write_page(result: FineTuning) -> None:
    """Write the HTML page with the scores, the losses and the measurements of all seeds."""
    with atomic_replace(result.folder / "page.html") as temporary:
        temporary.write_text(render("FineTuning", "page", result), encoding="utf-8")


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("isoscope", "torch", "transformers", "numpy")}
