"""Fine-tuning a model for a task, with a regulariser of its space and a tracker on it, over several seeds."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import InputError, MissingExtra
from isoscope._io.files import atomic_replace
from isoscope._render import render
from isoscope.finetuning.result import FineTuning, SeedOutcome, write_json
from isoscope.finetuning.settings import REGULARIZERS, make_settings
from isoscope.finetuning.task_data import GLUE_NAMES, Task, read_custom_task, read_glue, stratified_sample

if TYPE_CHECKING:
    from isoscope.finetuning.settings import Settings
    from isoscope.finetuning.tokenizing import Reader
    from isoscope.finetuning.train import SeedProgress, TaskRows

Progress = Callable[["SeedProgress", float], None]
"""Is told how far a seed is, and the share of the whole run that is done."""

_SETTINGS = "isoscope.finetuning-settings/1"
_ZETA = 0.2
_MAX_SEEDS = 1000
"""More seeds than this are one seed by its number."""
_SAMPLING_SEED = 0
"""The seed of what is drawn once for all seeds: the part of the training set, and the probe."""


def finetune(
    model: str | os.PathLike[str],
    task: str | os.PathLike[str] | Task,
    *,
    output: str | os.PathLike[str],
    data: str | os.PathLike[str] | None = None,
    dev: str | os.PathLike[str] | None = None,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    dev_share: float | None = None,
    measure: str | None = None,
    regularizer: Any = "none",
    weight: float | None = None,
    layer: Any = None,
    pool: str | None = None,
    select: bool = True,
    zeta: float = _ZETA,
    repair: Any = None,
    seeds: int | Iterable[int] = 1,
    epochs: float | None = None,
    batch_size: int | None = None,
    accumulate: int = 1,
    learning_rate: float | None = None,
    weight_decay: float | None = None,
    warmup: float = 0.1,
    schedule: str = "cosine",
    max_length: int = 128,
    group_lengths: bool = False,
    limit: int | None = None,
    probe: int = 256,
    every: int | None = None,
    bf16: bool = False,
    stop_on_collapse: bool = False,
    keep_model: bool = False,
    progress: Progress | None = None,
) -> FineTuning:
    """Fine-tune a model for a task, with a regulariser of its space or none, and watch the space meanwhile.

    What is done is kept in `output`: called again with the same settings, seeds that are finished are read back, the one
    that was interrupted goes on from its last checkpoint and gives what it would have given, and further seeds are
    added. Other settings in the same folder are refused.

    Parameters
    ----------
    model : str or path
        A folder, or a name on the Hugging Face hub. Code that comes with a model is never run.
    task : str, path or Task
        A name (cola, mrpc, rte, qnli, sst2, sst5, snli, wic, stsb; `data` says where its files are), a file of texts
        and labels to learn from, or a `Task`.
    output : path
        The folder of the run: ``settings.json``, ``metrics.json``, ``page.html``, and for each seed ``result.json``,
        ``history.parquet`` and, until it is done, a checkpoint.
    data : path, optional
        The folder of the named task's TSV files, or the one that holds the folders of all tasks.
    dev, text, text_pair, label, dev_share, measure
        Of a file: the rows to be scored on (or the share to hold out), the columns, the score that counts.
    regularizer : str or Regularizer
        none, persistent-entropy, istar, unbiased or cosreg; or a module of `isoscope.losses`.
    weight : float, optional
        Of the regulariser, 1 unless told; negative turns the effect round.
    layer, pool : optional
        Where the regulariser is put, as for `attach`; each has its paper's place.
    select : bool
        Whether persistent-entropy looks at the selected bars alone, or at all.
    zeta : float
        The share of I-STAR's covariance of the training set.
    repair : BatchRepair, optional
        Of the vectors that the head reads, inside the model, while it trains and when it is scored: see
        `isoscope.training.repair_layer`. The tracker sees the last layer repaired.
    seeds : int or iterable of int
        Which, or how many from 0.
    epochs, batch_size, learning_rate, weight_decay : optional
        The task's published ones unless told: see `isoscope.finetuning.settings.RECIPES`.
    accumulate : int
        Batches for a step of the optimiser; the regulariser sees one batch.
    warmup : float
        The share of the steps over which the learning rate rises.
    schedule : str
        What it does then: cosine, linear or constant.
    max_length : int
        Tokens that are read of a text or pair.
    group_lengths : bool
        Whether a batch holds texts of like length, drawn anew in each epoch: less padding, and faster on short texts.
    limit : int, optional
        Rows to learn from, drawn evenly from every class, the same for all seeds.
    probe : int
        Rows of the dev set that the tracker watches.
    every : int, optional
        Steps from one measurement to the next; a twentieth of the run unless told.
    bf16 : bool
        Whether to compute in bfloat16 where that is safe.
    stop_on_collapse : bool
        Whether to end a seed whose space has collapsed.
    keep_model : bool
        Whether to keep the model of each seed, in ``seed-0/model``.
    progress : callable, optional
        Is told how far it is.

    Returns
    -------
    FineTuning
        Scores and shape of the space, at the end and as means over the last 30%, for each seed and over the seeds.

    Examples
    --------
    >>> import isoscope
    >>> isoscope.finetune("bert-base-uncased", "cola", output="run", regularizer="istar")
    Traceback (most recent call last):
    ...
    isoscope._core.errors.InputError: cola needs the folder of its TSV files: data=, on the command line --data
    """
    found = _read_task(task, data, dev, text, text_pair, label, dev_share, measure)
    numbers = _check_seeds(seeds)
    _check_unused_options(regularizer, weight=weight, layer=layer, select=select, zeta=zeta)
    _check_extra()
    settings = make_settings(
        os.fspath(model),
        found,
        regularizer=_regularizer_name(regularizer),
        weight=weight,
        layer=list(layer) if isinstance(layer, tuple) else layer,
        pool=pool,
        select=select,
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
        limit=limit,
        probe=probe,
        every=every,
        bf16=bf16,
        stop_on_collapse=stop_on_collapse,
        repair=None if repair is None else repr(repair),
    )
    folder = Path(output).expanduser()
    done = _read_finished_seeds(folder, settings, numbers, keep_model=keep_model)
    run = _Run(folder, settings, found, regularizer, repair, keep_model=keep_model, progress=progress)
    return run.run_seeds(numbers, done)


class _Run:
    """A run of several seeds in a folder."""

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        task: Task,
        regularizer: Any,
        repair: Any,
        *,
        keep_model: bool,
        progress: Progress | None,
    ) -> None:
        self.folder, self.settings, self.task, self.regularizer = folder, settings, task, regularizer
        self.repair, self.keep_model, self.progress = repair, keep_model, progress

    def run_seeds(self, seeds: list[int], done: dict[int, SeedOutcome]) -> FineTuning:
        from isoscope.finetuning.tokenizing import load_reader
        from isoscope.finetuning.train import make_regularizer

        reader = load_reader(self.settings.model, self.settings.max_length)
        make_regularizer(
            self.settings, self.regularizer, graded=self.task.is_graded
        )  # refuses what is wrong before the work
        rows, notes = self._rows(reader)
        self._begin()
        for place, seed in enumerate(seeds):
            if seed not in done:
                done[seed] = self._run_seed(seed, place / len(seeds), 1 / len(seeds), rows, reader)
        found = FineTuning(self.settings, tuple(done[seed] for seed in seeds), self.folder, tuple(notes), _versions())
        write_json(found.to_dict(), self.folder / "metrics.json")
        _write_page(found)
        return found

    def _run_seed(self, seed: int, before: float, share: float, rows: TaskRows, reader: Reader) -> SeedOutcome:
        from isoscope.finetuning.train import remove_checkpoints, run_seed

        folder = self.folder / f"seed-{seed}"
        folder.mkdir(exist_ok=True)

        def tell(moment: SeedProgress) -> None:
            if self.progress is not None:
                self.progress(moment, before + share * moment.step / moment.steps)

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
            tell_moment=tell,
        )
        write_json(outcome.to_dict(), folder / "result.json")
        remove_checkpoints(folder)
        return outcome

    def _rows(self, reader: Reader) -> tuple[TaskRows, list[str]]:
        from isoscope.finetuning.tokenizing import describe_rows
        from isoscope.finetuning.train import TaskRows

        whole = self.task.train
        part = (
            whole
            if len(whole) == self.settings.train_rows
            else whole.part(stratified_sample(whole.labels, self.settings.train_rows, _SAMPLING_SEED))
        )
        if len(np.unique(part.labels)) < 2:
            raise InputError(f"limit is {self.settings.limit}: rows of one class alone are drawn, need more")
        train, cut = reader.read(part)
        dev, cut_too = reader.read(self.task.dev)
        probe = [dev[i] for i in stratified_sample(self.task.dev.labels, self.settings.probe, _SAMPLING_SEED)]
        return TaskRows(train, dev, probe), describe_rows(len(part), len(whole), cut + cut_too, reader)

    def _begin(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "settings.json"
        if not path.exists():
            write_json({"schema": _SETTINGS, **self.settings.to_dict()}, path)


def _read_task(
    task: Any, data: Any, dev: Any, text: Any, text_pair: Any, label: Any, dev_share: float | None, measure: Any
) -> Task:
    of_file = {
        "dev": dev,
        "text": text,
        "text_pair": text_pair,
        "label": label,
        "dev_share": dev_share,
        "measure": measure,
    }
    if isinstance(task, Task) or task in GLUE_NAMES:
        for name, value in of_file.items():
            if value is not None:
                raise InputError(f"{name} is for a file of your own: leave it out for a task that is known by name")
    if isinstance(task, Task):
        return _check_task(task)
    if task in GLUE_NAMES:
        if data is None:
            raise InputError(f"{task} needs the folder of its TSV files: data=, on the command line --data")
        return read_glue(str(task), data)
    if isinstance(task, str) and "." not in task and not Path(task).expanduser().exists():
        raise InputError(f"no task is named {task}: need one of {', '.join(GLUE_NAMES)}, or a file of texts and labels")
    if data is not None:
        raise InputError(f"data is for a task that is known by name: {os.fspath(task)} is a file of its own")
    if dev is not None and dev_share is not None:
        raise InputError("dev_share is for a file without dev rows of its own: give dev or dev_share")
    share = 0.1 if dev_share is None else dev_share
    return read_custom_task(task, dev, text=text, text_pair=text_pair, label=label, dev_share=share, measure=measure)


def _check_task(task: Task) -> Task:
    for word, split in (("train", task.train), ("dev", task.dev)):
        rows, labels = len(split), np.asarray(split.labels)
        if len(labels) != rows or (split.pairs is not None and len(split.pairs) != rows):
            raise InputError(f"{word} of {task.name} has {rows} texts and {len(labels)} labels: need one for each")
        numbered = labels.dtype.kind in "iu" and rows > 0
        if task.labels and not (numbered and 0 <= labels.min() <= labels.max() < len(task.labels)):
            raise InputError(
                f"{word} of {task.name} has labels that are no class numbers: need whole numbers from 0 to "
                f"{len(task.labels) - 1}"
            )
    return task


def _check_seeds(seeds: int | Iterable[int]) -> list[int]:
    words = f"seeds is {seeds!r}: need how many, or different whole numbers from 0"
    if isinstance(seeds, bool) or not isinstance(seeds, int | Iterable):
        raise InputError(words)
    if isinstance(seeds, int) and seeds > _MAX_SEEDS:
        raise InputError(
            f"seeds is {seeds}: that many runs would never end; for that one seed write [{seeds}], on the command "
            f"line {seeds}, with a comma"
        )
    found = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    wrong = [each for each in found if not isinstance(each, int | np.integer) or not 0 <= each < 2**32]
    if not found or wrong or len(set(found)) < len(found):
        raise InputError(words)
    return [int(each) for each in found]


def _regularizer_name(regularizer: Any) -> str:
    """The regulariser's name, or what a module of its own shows of itself."""
    if isinstance(regularizer, str):
        if regularizer not in REGULARIZERS:
            raise InputError(f"no regularizer is named {regularizer}: need one of {', '.join(REGULARIZERS)}")
        return regularizer
    from isoscope.losses.regularizer import Regularizer

    if not isinstance(regularizer, Regularizer):
        kind = type(regularizer).__name__
        raise InputError(
            f"regularizer is a {kind}: need one of {', '.join(REGULARIZERS)}, or a module of isoscope.losses"
        )
    return " ".join(repr(regularizer).split())


def _check_unused_options(regularizer: Any, *, weight: Any, layer: Any, select: bool, zeta: float) -> None:
    """What is asked for and would do nothing."""
    if not isinstance(regularizer, str) and (weight is not None or not select or zeta != _ZETA):
        raise InputError("weight, select and zeta are for a regularizer by its name: give them to the module itself")
    if not select and regularizer != "persistent-entropy":
        raise InputError("select=False (--all-bars) is for persistent-entropy: the regularizer is another")
    if zeta != _ZETA and regularizer != "istar":
        raise InputError(f"zeta is {zeta} and is for istar: the regularizer is another")
    if layer is not None and regularizer == "none":
        raise InputError(f"layer is {layer} and there is no regularizer to put there: name one, or leave layer out")


def _check_extra() -> None:
    lacking = [name for name in ("torch", "transformers", "accelerate") if find_spec(name) is None]
    if lacking:
        raise MissingExtra(f'fine-tuning needs {", ".join(lacking)}: pip install "isoscope[train]"')


def _read_finished_seeds(
    folder: Path, settings: Settings, seeds: list[int], *, keep_model: bool
) -> dict[int, SeedOutcome]:
    """The seeds that are finished; an `InputError` if the folder holds something else."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: name a folder for the run")
    path = folder / "settings.json"
    if not path.exists():
        if folder.is_dir() and any(each.name[0] != "." for each in folder.iterdir()):
            raise InputError(f"{folder} is not empty and holds no run: name another folder")
        return {}
    kept = _read_json(path)
    if kept.get("schema") != _SETTINGS:
        raise InputError(f"{path} is of another kind or version ({kept.get('schema')}): name another folder")
    differing = settings.differences(kept)
    if differing and not _has_progress(folder):  # it ended before it got to anything: nothing is lost
        path.unlink()
        return {}
    if differing:
        raise InputError(f"{folder} holds a run with other settings: {'; '.join(differing)}; name another folder")
    done = {}
    for seed in seeds:
        result = folder / f"seed-{seed}" / "result.json"
        if result.exists():
            done[seed] = _read_outcome(result)
            if keep_model and not (result.parent / "model").is_dir():
                raise InputError(f"{result.parent} is done and its model was not kept: name another folder to have it")
    return done


def _read_outcome(path: Path) -> SeedOutcome:
    try:
        return SeedOutcome.from_dict(_read_json(path))
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is no result of a seed ({error} is missing): remove it to train it anew") from error


def _has_progress(folder: Path) -> bool:
    """Whether any seed got to a checkpoint or to its end."""
    return any(
        True for name in ("result.json", "checkpoint-*/trainer_state.json") for _ in folder.glob(f"seed-*/{name}")
    )


def _write_page(found: FineTuning) -> None:
    """What the tracker saw of every seed, as one page."""
    from isoscope.training.history import History

    settings = found.settings
    facts = {
        "model": Path(settings.model).name or settings.model,
        "task": settings.task,
        "regularizer": settings.arm,
        "seeds": ", ".join(str(each.seed) for each in found.seeds),
        **{f"{score}, mean of the last 30%": str(found.late[score]) for score in found.scores},
        "learning rate": f"{settings.learning_rate:g}, {settings.schedule} after a warm-up of {settings.warmup:.0%}",
        "batch": settings.batch_size * settings.accumulate,
        "epochs": f"{settings.epochs:g}",
        **{f"note {number}": note for number, note in enumerate(found.notes, 1)},
    }
    histories = [History.read(found.folder / f"seed-{each.seed}") for each in found.seeds]
    with atomic_replace(found.folder / "page.html") as temporary:
        temporary.write_text(render("History", "page", histories, facts), encoding="utf-8")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}; name another folder") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} cannot be read: it holds a {type(found).__name__}; name another folder")
    return found


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("isoscope", "torch", "transformers", "numpy")}
