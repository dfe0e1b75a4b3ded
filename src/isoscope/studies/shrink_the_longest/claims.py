"""Verdicts on the claims of the paper "Shrink the longest", based on differences between arms, paired by seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isoscope.studies.formatting import format_range
from isoscope.studies.study import Case, Value
from isoscope.studies.verdicts import ABOVE_ZERO, BELOW_ZERO, Evidence, judge_claims

if TYPE_CHECKING:
    from isoscope.studies.study import Bounds, Published, Verdict

NONE, SELECTED, ALL = ARMS = ("no regularizer", "selected bars", "all bars")
COMPONENTS = {
    **{f"anisotropy_{k}": f"anisotropy_{k}" for k in (1, 2, 3)},
    **{f"anisotropy_{k}_centered": f"anisotropy_{k} centered" for k in (1, 2, 3)},
}
"""The keys of the anisotropy measurements, and their names in the tables."""

_FIRST_COMPONENT = (("anisotropy_1",), ("anisotropy_1_centered",))
_THREE_COMPONENTS = tuple(tuple(f"anisotropy_{k}{ending}" for k in (1, 2, 3)) for ending in ("", "_centered"))
_MARGIN = 0.01
"""Scores closer than this count as equal. In the paper, seeds vary by up to 0.004 and arms differ by up to 0.013."""
_MIN_MATTHEWS = 0.05
"""A model with a lower Matthews correlation counts as having learned nothing."""
_MIN_RANK_CORRELATION = 0.5
"""The rank correlation above which two series are considered to rise and fall together."""
_PAPER_MODELS = {"BERT": "bert-base-uncased", "RoBERTa": "roberta-base"}


@dataclass(frozen=True)
class TaskModelRuns:
    """The results for a task and a model, by arm and seed."""

    task: str
    model: str
    runs: dict[str, dict[int, dict[str, Any]]]

    @property
    def all_runs(self) -> list[dict[str, Any]]:
        """The results of all arms and seeds."""
        return [run for seeds in self.runs.values() for run in seeds.values()]

    @property
    def words(self) -> str:
        """The names of the task and the model, as text."""
        return f"{_format_task(self.task)}, {self.model}"

    @property
    def measure(self) -> str:
        """The main score of the task."""
        return str(self.all_runs[0]["measure"])

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of fine-tuning, apart from the regularizer."""
        settings: dict[str, Any] = self.all_runs[0]["settings"]
        return settings

    @property
    def family(self) -> str:
        """The model type, such as "bert"."""
        return str(self.all_runs[0]["family"])

    @property
    def paper_model(self) -> str:
        """The paper's model with which this model is compared."""
        return _PAPER_MODELS[self._like]

    @property
    def is_paper_model(self) -> bool:
        """Whether the model is one of the paper's."""
        return self.model == self.paper_model

    @property
    def row(self) -> str:
        """The row of this task and model in the paper's tables."""
        return f"{self._like}-{_format_task(self.task)}"

    @property
    def _like(self) -> str:
        return "RoBERTa" if "roberta" in self.family.lower() else "BERT"

    @property
    def has_learned(self) -> bool:
        """Whether the arm without a regularizer scores better than chance."""
        scores = [run["late"]["matthews"] for run in self.runs[NONE].values()]
        return bool(scores) and sum(scores) / len(scores) > _MIN_MATTHEWS

    def last_layer_key(self, name: str) -> str:
        """Return the key of a last-layer measurement."""
        return f"{self.all_runs[0]['layers'][-1]}/{name}"

    def before(self, name: str) -> Value:
        """Return a last-layer measurement before the first training step."""
        return Value.of([run["start"][self.last_layer_key(name)] for run in self.all_runs][:1])

    def late_by_arm(self, name: str) -> dict[str, Value]:
        """Return, for each finished arm, a result averaged over the last 30% of training, aggregated over seeds."""
        return {arm: Value.of(run["late"][name] for run in runs.values()) for arm, runs in self.runs.items() if runs}

    def between(self, arm: str, other: str, names: Sequence[str]) -> Value | None:
        """Return the difference between two arms in the sum of the named results, paired by seed."""
        both = [seed for seed in self.runs[arm] if seed in self.runs[other]]
        if not both:
            return None
        return Value.of(
            sum(self._late_value(arm, seed, n) - self._late_value(other, seed, n) for n in names) for seed in both
        )

    def growth(self, names: Sequence[str]) -> Value | None:
        """Return the increase of the summed measurements during training without a regularizer, for each seed."""
        runs = self.runs[NONE].values()
        keys = [self.last_layer_key(name) for name in names]
        return Value.of(sum(run["late"][key] - run["start"][key] for key in keys) for run in runs) if runs else None

    def together(self, one: str, other: str) -> Value | None:
        """Return the rank correlation of two measurements during training without a regularizer, for each seed."""
        from scipy.stats import spearmanr

        correlations = []
        for run in self.runs[NONE].values():
            first, second = (run["series"][self.last_layer_key(name)]["value"] for name in (one, other))
            flat = len(set(first)) < 2 or len(set(second)) < 2
            correlations.append(math.nan if flat else float(spearmanr(first, second, nan_policy="omit")[0]))
        return Value.of(correlations) if correlations else None

    def _late_value(self, arm: str, seed: int, name: str) -> float:
        late = self.runs[arm][seed]["late"]
        return float(late[self.last_layer_key(name)] if name.startswith("anisotropy") else late[name])


def make_verdicts(published: Published, cases: Sequence[TaskModelRuns]) -> list[Verdict]:
    """Return the verdict on each claim of the paper."""
    judge = _Judge(published, cases)
    return judge_claims(
        published.claims,
        {
            "rises": judge.rises,
            "class-direction": judge.class_direction,
            "lowers": lambda: judge.anisotropy(SELECTED, NONE, _FIRST_COMPONENT),
            "all-lowers": lambda: judge.anisotropy(ALL, NONE, _FIRST_COMPONENT),
            "no-collapse": lambda: judge.anisotropy(SELECTED, NONE, _THREE_COMPONENTS),
            "selection-isotropy": lambda: judge.anisotropy(SELECTED, ALL, _FIRST_COMPONENT),
            "metric-kept": lambda: judge.score(SELECTED, NONE, (-_MARGIN, math.inf)),
            "metric-rises": lambda: judge.score(SELECTED, NONE, ABOVE_ZERO),
            "all-on-par": lambda: judge.score(ALL, NONE, (-_MARGIN, _MARGIN)),
            "selection-metric": lambda: judge.score(SELECTED, ALL, ABOVE_ZERO),
        },
    )


@dataclass(frozen=True)
class _Judge:
    """Collect the evidence on each claim."""

    published: Published
    runs: Sequence[TaskModelRuns]

    def rises(self) -> Evidence:
        ends = []
        for name in ("anisotropy_1", "anisotropy_1 centered"):
            values = [
                number.value
                for (row, arm), number in self.published.tables["anisotropy"].items()
                if arm == NONE and row.partition(" ")[2] == name
            ]
            ends.append(f"{name} ends at {format_range(values, 3)}")
        cases = self._cases(self.runs, _FIRST_COMPONENT, lambda runs, names: runs.growth(names), ABOVE_ZERO)
        theirs = f"{'; '.join(ends)}; the starting value is shown only in a figure"
        return self._evidence(theirs, cases, "the mean over the last 30% of training minus the value at the start")

    def class_direction(self) -> Evidence:
        def through(runs: TaskModelRuns, names: Sequence[str]) -> Value | None:
            return runs.together(names[0], "silhouette")

        cases = self._cases(self._learned, _FIRST_COMPONENT[1:], through, (_MIN_RANK_CORRELATION, math.inf))
        what = (
            "Spearman's ρ between anisotropy and the silhouette of the classes during training, which must exceed "
            f"{_MIN_RANK_CORRELATION:g}"
        )
        return self._evidence("stated, not measured", cases, what, self._unlearned_note)

    def anisotropy(self, arm: str, other: str, groups: Sequence[Sequence[str]]) -> Evidence:
        theirs = []
        for names in groups:
            rows = [f" {COMPONENTS[name]}" for name in names]
            theirs.append(f"{_format_components(names)}: {self._format_published('anisotropy', arm, other, rows)}")
        cases = self._cases(self.runs, groups, lambda runs, names: runs.between(arm, other, names), BELOW_ZERO)
        return self._evidence("; ".join(theirs), cases, f"the value with {arm} minus the value {_format_arm(other)}")

    def score(self, arm: str, other: str, claimed: Bounds) -> Evidence:
        theirs = self._format_published("metrics", arm, other, [""], claimed)
        cases = [
            Case.over_seeds(f"{self._format_runs(runs)}, {format_score_name(runs.measure)}", value, claimed)
            for runs in self._learned
            if (value := runs.between(arm, other, [runs.measure])) is not None
        ]
        margin = f"; differences below {_MARGIN:g} are treated as zero" if -_MARGIN in claimed else ""
        return self._evidence(
            theirs, cases, f"the value with {arm} minus the value {_format_arm(other)}{margin}", self._unlearned_note
        )

    def _evidence(self, theirs: str, cases: Sequence[Case], what: str, left_out: str = "") -> Evidence:
        if not cases:
            return Evidence(theirs, why=left_out or "the required arms were not run", untested="–")
        return Evidence(theirs, cases, "; ".join(part for part in (f"A case is {what}", left_out) if part) + ".")

    @property
    def _learned(self) -> list[TaskModelRuns]:
        return [runs for runs in self.runs if runs.has_learned]

    @property
    def _unlearned_note(self) -> str:
        idle = [self._format_runs(runs) for runs in self.runs if not runs.has_learned and runs.runs[NONE]]
        return f"left out, because the model without a regularizer learned nothing: {'; '.join(idle)}" if idle else ""

    def _format_runs(self, runs: TaskModelRuns) -> str:
        """Return the name of the task, and of the model if there are several models."""
        return runs.words if len({each.model for each in self.runs}) > 1 else _format_task(runs.task)

    def _cases(
        self,
        all_runs: Sequence[TaskModelRuns],
        groups: Sequence[Sequence[str]],
        value_of: Callable[[TaskModelRuns, Sequence[str]], Value | None],
        claimed: Bounds,
    ) -> list[Case]:
        return [
            Case.over_seeds(f"{self._format_runs(runs)}, {_format_components(names)}", value, claimed)
            for runs in all_runs
            for names in groups
            if (value := value_of(runs, names)) is not None and not math.isnan(value.mean)
        ]

    def _format_published(
        self, table: str, arm: str, other: str, endings: Sequence[str], claimed: Bounds = BELOW_ZERO
    ) -> str:
        """Describe the range of the published differences between two arms, and how many agree with the claim."""
        differences = []
        for row in self.published.rows("metrics"):
            sides = [[self.published.number(table, row + end, each) for end in endings] for each in (arm, other)]
            if all(number is not None for side in sides for number in side):
                first, second = (sum(number.value for number in side if number is not None) for side in sides)
                differences.append(first - second)
        agree = sum(claimed[0] < each < claimed[1] for each in differences)
        return f"{format_range(differences, 3, signed=True)} ({agree} of {len(differences)} as claimed)"


def format_score_name(name: str) -> str:
    """Return the name of a score for tables."""
    return {"f1": "F1", "matthews": "Matthews"}.get(name, name)


def _format_arm(arm: str) -> str:
    return "without a regularizer" if arm == NONE else f"with {arm}"


def _format_task(task: str) -> str:
    return {"cola": "CoLA", "mrpc": "MRPC"}.get(task, task)


def _format_components(names: Sequence[str]) -> str:
    words = [COMPONENTS[name] for name in names]
    return words[0] if len(words) == 1 else f"anisotropy_1 to _{len(words)}{words[0].removeprefix('anisotropy_1')}"
