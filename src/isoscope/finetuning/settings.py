"""The settings of a fine-tuning run, with the published defaults for each task."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING, Any

from isoscope._core.errors import ParameterError
from isoscope._io.runs import differences

if TYPE_CHECKING:
    from isoscope.finetuning.task_data import Task


@dataclass(frozen=True)
class Recipe:
    """The default hyperparameters for a task."""

    learning_rate: float
    weight_decay: float
    batch_size: int
    epochs: float
    source: str


_LONGEST = "Kudrjashov et al., Shrink the longest, Table 1; batch size in its section 4"
_ISTAR = "Rudman and Eickhoff, Stable anisotropic regularization: learning rate and batch size; epochs chosen by us"

RECIPES = {
    "cola": Recipe(5e-5, 5e-6, 64, 10, _LONGEST),
    "mrpc": Recipe(8e-5, 8e-6, 64, 10, _LONGEST),
    **{name: Recipe(1e-5, 0.0, 32, 3, _ISTAR) for name in ("rte", "qnli", "sst2", "sst5", "stsb", "snli", "wic")},
}
"""The values from the papers, by task. All arms of a task use them, including the arm without a regularizer."""

DEFAULT_RECIPE = Recipe(2e-5, 0.01, 32, 3, "common for encoders of BERT's size")
"""The default for other tasks."""

DEFAULT_ZETA = 0.2
OPTIONS: dict[str, tuple[str, ...]] = {
    "none": (),
    "persistent-entropy": ("weight", "layer", "select", "per_class"),
    "istar": ("weight", "layer", "zeta"),
    "unbiased": ("weight", "layer"),
    "cosreg": ("weight", "layer"),
}
"""The options of each regularizer."""
REGULARIZERS = tuple(OPTIONS)
DEFAULT_WEIGHTS = {"persistent-entropy": 1.0, "istar": 1.0, "unbiased": 0.01, "cosreg": 0.1}
"""The default weight of each regularizer: that of its class, chosen from the table in docs/training.md."""
_EARLIER_WEIGHT = 1.0
"""The default weight of all regularizers in settings that earlier versions recorded without a weight."""
SCHEDULES = {"cosine": "cosine", "linear": "linear", "constant": "constant_with_warmup"}
"""The learning rate schedules after the warm-up, with their names in transformers."""


@dataclass(frozen=True)
class Settings:
    """All settings that determine the result of a run, except its seeds."""

    model: str
    task: str
    measure: str
    classes: int
    data: str
    """A fingerprint of the rows."""
    train_rows: int
    dev_rows: int
    limit: int | None
    regularizer: str
    weight: float | None
    layer: Any
    pool: str | None
    select: bool
    zeta: float
    epochs: float
    batch_size: int
    accumulate: int
    learning_rate: float
    weight_decay: float
    warmup: float
    schedule: str
    max_length: int
    probe: int
    every: int
    bf16: bool
    stop_on_collapse: bool
    repair: str | None = None
    """The repair of the vectors that the head reads."""
    group_lengths: bool = False
    group_classes: bool = False
    per_class: bool = True

    @property
    def steps_per_epoch(self) -> int:
        """The number of optimizer steps in an epoch."""
        return math.ceil(math.ceil(self.train_rows / self.batch_size) / self.accumulate)

    @property
    def steps(self) -> int:
        """The number of optimizer steps in a run."""
        return math.ceil(self.epochs * self.steps_per_epoch)

    @property
    def arm(self) -> str:
        """A short description of the regularizer and its weight."""
        if self.regularizer == "none":
            return "none"
        options = [", all bars"] * (not self.select) + [", whole batch"] * (not self.per_class)
        return self.regularizer + ("" if self.weight is None else f" {self.weight:+g}") + "".join(options)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as a dict for JSON."""
        return asdict(self)


def compare_settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Describe the differences between the settings of two runs; see `isoscope._io.runs.differences`."""
    if old.get("weight") is None and old.get("regularizer") in DEFAULT_WEIGHTS:
        old = {**old, "weight": _EARLIER_WEIGHT}
    if old.get("data") == new["data"]:
        return differences(old, new)
    phrases = dict.fromkeys(("data", "train_rows", "dev_rows"), "the rows of the task differ")
    return differences(old, new, phrases)


def make_settings(model: str, task: Task, **given: Any) -> Settings:
    """Return the checked settings of a run; values that are None come from the task's recipe."""
    recipe = RECIPES.get(task.name, DEFAULT_RECIPE)
    for name in ("learning_rate", "weight_decay", "batch_size", "epochs"):
        if given[name] is None:
            given[name] = getattr(recipe, name)
    if given["weight"] is None:
        given["weight"] = DEFAULT_WEIGHTS.get(given["regularizer"])
    limit = given["limit"]
    _check_settings(given)
    if given["group_classes"] and task.is_graded:
        raise ParameterError(f"group_classes is set, but {task.name} has grades instead of classes: omit group_classes")
    rows = len(task.train) if limit is None else min(limit, len(task.train))
    every = given.pop("every")
    settings = Settings(
        model=model,
        task=task.name,
        measure=task.measure,
        classes=len(task.labels),
        data=task.fingerprint(),
        train_rows=rows,
        dev_rows=len(task.dev),
        every=1,
        **{**given, "probe": min(given["probe"], len(task.dev))},
    )
    return _set_default_every(settings, every)


def _set_default_every(settings: Settings, every: int | None) -> Settings:
    """Set the number of steps between measurements; by default, a run has 20 measurements, six in its last 30%."""
    return Settings(**{**settings.to_dict(), "every": every or max(1, settings.steps // 20)})


def _check_settings(given: dict[str, Any]) -> None:
    leasts = {"batch_size": 1, "accumulate": 1, "max_length": 4, "probe": 2, "limit": 2, "every": 1}
    for name, least in leasts.items():
        if given[name] is not None or name not in ("limit", "every"):
            wanted = "a positive integer" if least == 1 else f"an integer of at least {least}"
            _check_number(name, given[name], wanted, whole=True, least=least)
    _check_number("learning_rate", given["learning_rate"], "a positive, finite number", above=0)
    _check_number("epochs", given["epochs"], "a positive, finite number", above=0)
    _check_number("weight_decay", given["weight_decay"], "a non-negative, finite number", least=0)
    _check_number("warmup", given["warmup"], "a number in [0, 1)", least=0, below=1)
    _check_number("zeta", given["zeta"], "a number in [0, 1]", least=0, most=1)
    if given["schedule"] not in SCHEDULES:
        raise ParameterError(f"schedule is {given['schedule']!r}: need one of {', '.join(SCHEDULES)}")
    if given["group_lengths"] and given["group_classes"]:
        raise ParameterError("group_lengths and group_classes are both set: pass only one of them")
    if given["weight"] is not None:
        _check_number("weight", given["weight"], "a finite number")


def _check_number(
    name: str,
    value: Any,
    wanted: str,
    *,
    whole: bool = False,
    least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    most: float | None = None,
) -> None:
    bounds: list[tuple[float | None, Callable[[Any, Any], bool]]] = [(least, ge), (above, gt), (most, le), (below, lt)]
    right = isinstance(value, int if whole else int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not right or not all(holds(value, bound) for bound, holds in bounds if bound is not None):
        raise ParameterError(f"{name} is {value!r}: need {wanted}")
