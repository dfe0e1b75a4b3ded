"""Verdicts of shrink-the-longest: differences between arms, seed by seed, against the range that a claim allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isoscope.studies.study import Case as Finding
from isoscope.studies.study import Value
from isoscope.studies.verdicts import ABOVE_ZERO, BELOW_ZERO, make_verdict
from isoscope.studies.words import format_number

if TYPE_CHECKING:
    from isoscope.studies.study import Bounds, Claim, Published, Verdict

NONE, SELECTED, ALL = ARMS = ("no regulariser", "selected bars", "all bars")
COMPONENTS = {
    **{f"anisotropy_{k}": f"anisotropy_{k}" for k in (1, 2, 3)},
    **{f"anisotropy_{k}_centred": f"anisotropy_{k} centred" for k in (1, 2, 3)},
}
"""What is measured of a space, and what it is called in the tables."""

_FIRST_COMPONENT = (("anisotropy_1",), ("anisotropy_1_centred",))
_THREE_COMPONENTS = tuple(tuple(f"anisotropy_{k}{ending}" for k in (1, 2, 3)) for ending in ("", "_centred"))
_MARGIN = 0.01
"""Scores nearer than this are the same: the paper's seeds spread by up to 0.004, its arms differ by up to 0.013."""
_MIN_MATTHEWS = 0.05
"""Matthews' correlation below which a model has learnt nothing, and a score says nothing of a regulariser."""
_MIN_RANK_CORRELATION = 0.5
"""A rank correlation above which two series go together."""
_GROWTH = "the mean of the last 30% of training minus the start"
_PAPER_MODELS = {"BERT": "bert-base-uncased", "RoBERTa": "roberta-base"}


@dataclass(frozen=True)
class TaskModelRuns:
    """A task and a model, with what each arm and seed gave."""

    task: str
    model: str
    runs: dict[str, dict[int, dict[str, Any]]]

    @property
    def all_runs(self) -> list[dict[str, Any]]:
        """What is done, whatever the arm and the seed."""
        return [run for seeds in self.runs.values() for run in seeds.values()]

    @property
    def words(self) -> str:
        """What it is called."""
        return f"{_format_task(self.task)}, {self.model}"

    @property
    def measure(self) -> str:
        """The score that counts."""
        return str(self.all_runs[0]["measure"])

    @property
    def settings(self) -> dict[str, Any]:
        """With what it was fine-tuned, but for the regulariser."""
        found: dict[str, Any] = self.all_runs[0]["settings"]
        return found

    @property
    def family(self) -> str:
        """What kind of model it is."""
        return str(self.all_runs[0]["family"])

    @property
    def paper_model(self) -> str:
        """The paper's model that is nearest."""
        return _PAPER_MODELS[self._like]

    @property
    def is_paper_model(self) -> bool:
        """Whether it is the paper's own model."""
        return self.model == self.paper_model

    @property
    def row(self) -> str:
        """Its row in the paper's tables."""
        return f"{self._like}-{_format_task(self.task)}"

    @property
    def _like(self) -> str:
        return "RoBERTa" if "roberta" in self.family.lower() else "BERT"

    @property
    def has_learned(self) -> bool:
        """Whether the arm without a regulariser does better than chance."""
        scores = [run["late"]["matthews"] for run in self.runs[NONE].values()]
        return bool(scores) and sum(scores) / len(scores) > _MIN_MATTHEWS

    def last_layer_key(self, name: str) -> str:
        """A measurement's name for the last layer."""
        return f"{self.all_runs[0]['layers'][-1]}/{name}"

    def before(self, name: str) -> Value:
        """A measurement of the last layer before the first step."""
        return Value.of([run["start"][self.last_layer_key(name)] for run in self.all_runs][:1])

    def late_by_arm(self, name: str) -> dict[str, Value]:
        """A number's mean over the last 30%, over the seeds, for each arm that is done."""
        return {arm: Value.of(run["late"][name] for run in runs.values()) for arm, runs in self.runs.items() if runs}

    def between(self, arm: str, other: str, names: Sequence[str]) -> Value | None:
        """How much more one arm has than another, seed by seed; of several numbers, of their sum."""
        both = [seed for seed in self.runs[arm] if seed in self.runs[other]]
        if not both:
            return None
        return Value.of(
            sum(self._late_value(arm, seed, n) - self._late_value(other, seed, n) for n in names) for seed in both
        )

    def growth(self, names: Sequence[str]) -> Value | None:
        """How much a measurement grew in training without a regulariser, seed by seed."""
        runs = self.runs[NONE].values()
        keys = [self.last_layer_key(name) for name in names]
        return Value.of(sum(run["late"][key] - run["start"][key] for key in keys) for run in runs) if runs else None

    def together(self, one: str, other: str) -> Value | None:
        """The rank correlation of two measurements through training without a regulariser, seed by seed."""
        from scipy.stats import spearmanr

        found = []
        for run in self.runs[NONE].values():
            first, second = (run["series"][self.last_layer_key(name)]["value"] for name in (one, other))
            flat = len(set(first)) < 2 or len(set(second)) < 2
            found.append(math.nan if flat else float(spearmanr(first, second, nan_policy="omit")[0]))
        return Value.of(found) if found else None

    def _late_value(self, arm: str, seed: int, name: str) -> float:
        late = self.runs[arm][seed]["late"]
        return float(late[self.last_layer_key(name)] if name.startswith("anisotropy") else late[name])


def make_verdicts(published: Published, cases: Sequence[TaskModelRuns]) -> list[Verdict]:
    """A verdict on each claim of the paper."""
    rule = _Judge(published, cases)
    return [rule.verdict(claim) for claim in published.claims]


@dataclass(frozen=True)
class _Judge:
    published: Published
    cases: Sequence[TaskModelRuns]

    def verdict(self, claim: Claim) -> Verdict:
        spaces: dict[str, tuple[str, str, Any, Bounds]] = {
            "lowers": (SELECTED, NONE, _FIRST_COMPONENT, BELOW_ZERO),
            "all-lowers": (ALL, NONE, _FIRST_COMPONENT, BELOW_ZERO),
            "no-collapse": (SELECTED, NONE, _THREE_COMPONENTS, BELOW_ZERO),
            "selection-isotropy": (SELECTED, ALL, _FIRST_COMPONENT, BELOW_ZERO),
        }
        scores: dict[str, tuple[str, str, Bounds]] = {
            "metric-kept": (SELECTED, NONE, (-_MARGIN, math.inf)),
            "metric-rises": (SELECTED, NONE, ABOVE_ZERO),
            "all-on-par": (ALL, NONE, (-_MARGIN, _MARGIN)),
            "selection-metric": (SELECTED, ALL, ABOVE_ZERO),
        }
        if claim.key in spaces:
            return self._anisotropy_verdict(claim, *spaces[claim.key])
        if claim.key in scores:
            return self._score_verdict(claim, *scores[claim.key])
        if claim.key == "rises":
            return self._rises_verdict(claim)
        return self._class_direction_verdict(claim)

    def _rises_verdict(self, claim: Claim) -> Verdict:
        ends = []
        for name in ("anisotropy_1", "anisotropy_1 centred"):
            each = [
                found.value
                for (row, arm), found in self._table("anisotropy")
                if arm == NONE and _is_component_row(row, name)
            ]
            ends.append(f"{name} ends at {_format_range(each)}")
        findings = self._found(_FIRST_COMPONENT, lambda case, names: case.growth(names), ABOVE_ZERO)
        return self._make_verdict(claim, f"{'; '.join(ends)}; the start is only in a figure", findings, _GROWTH)

    def _class_direction_verdict(self, claim: Claim) -> Verdict:
        def through(case: TaskModelRuns, names: Sequence[str]) -> Value | None:
            return case.together(names[0], "silhouette")

        findings = self._found(_FIRST_COMPONENT[1:], through, (_MIN_RANK_CORRELATION, math.inf), self._learned_cases)
        what = (
            "Spearman's ρ of anisotropy and the classes' silhouette in training, which must exceed "
            f"{_MIN_RANK_CORRELATION:g}"
        )
        return self._make_verdict(claim, "stated, not measured", findings, what, self._unlearned_note)

    def _anisotropy_verdict(self, claim: Claim, arm: str, other: str, groups: Any, allowed: Bounds) -> Verdict:
        told = []
        for names in groups:
            differences = self._published_differences(
                "anisotropy", arm, other, [f" {COMPONENTS[name]}" for name in names]
            )
            told.append(f"{_format_components(names)} {_format_differences(differences, allowed)}")
        findings = self._found(groups, lambda case, names: case.between(arm, other, names), allowed)
        return self._make_verdict(claim, "; ".join(told), findings, f"{arm} minus {other}")

    def _score_verdict(self, claim: Claim, arm: str, other: str, allowed: Bounds) -> Verdict:
        told = _format_differences(self._published_differences("metrics", arm, other, [""]), allowed)
        findings = [
            Finding.over_seeds(f"{self._format_case(case)}, {format_score_name(case.measure)}", value, allowed)
            for case in self._learned_cases
            if (value := case.between(arm, other, [case.measure])) is not None
        ]
        margin = f"; differences below {_MARGIN:g} count as none" if -_MARGIN in allowed else ""
        return self._make_verdict(claim, told, findings, f"{arm} minus {other}{margin}", self._unlearned_note)

    def _make_verdict(self, claim: Claim, told: str, findings: Sequence[Finding], what: str, idle: str = "") -> Verdict:
        if not findings:
            return make_verdict(claim, told, (), idle or "the arms that it needs are not done", untested="–")
        return make_verdict(
            claim, told, findings, "; ".join(part for part in (f"A case is {what}", idle) if part) + "."
        )

    @property
    def _learned_cases(self) -> list[TaskModelRuns]:
        return [case for case in self.cases if case.has_learned]

    @property
    def _unlearned_note(self) -> str:
        idle = [self._format_case(case) for case in self.cases if not case.has_learned and case.runs[NONE]]
        return f"left out, because the model without a regularizer learned nothing: {'; '.join(idle)}" if idle else ""

    def _format_case(self, case: TaskModelRuns) -> str:
        """The task, and the model where there are several."""
        return case.words if len({each.model for each in self.cases}) > 1 else _format_task(case.task)

    def _found(
        self,
        groups: Any,
        value_of: Callable[[TaskModelRuns, Sequence[str]], Value | None],
        allowed: Bounds,
        cases: Sequence[TaskModelRuns] | None = None,
    ) -> list[Finding]:
        return [
            Finding.over_seeds(f"{self._format_case(case)}, {_format_components(names)}", value, allowed)
            for case in (self.cases if cases is None else cases)
            for names in groups
            if (value := value_of(case, names)) is not None and not math.isnan(value.mean)
        ]

    def _table(self, key: str) -> Iterable[tuple[tuple[str, str], Any]]:
        return self.published.tables[key].items()

    def _published_differences(self, table: str, arm: str, other: str, endings: Sequence[str]) -> list[float]:
        """Published differences for each task and model, of sums over rows; without those that lack a number."""
        found = []
        for row in self.published.rows("metrics"):
            pairs = [[self.published.number(table, row + end, each) for end in endings] for each in (arm, other)]
            if all(number is not None for side in pairs for number in side):
                one, two = (sum(number.value for number in side if number is not None) for side in pairs)
                found.append(one - two)
        return found


def format_score_name(name: str) -> str:
    """What a score is called in tables."""
    return {"f1": "F1", "matthews": "Matthews"}.get(name, name)


def _format_task(task: str) -> str:
    return {"cola": "CoLA", "mrpc": "MRPC"}.get(task, task)


def _is_component_row(row: str, name: str) -> bool:
    return row.partition(" ")[2] == name


def _format_components(names: Sequence[str]) -> str:
    words = [COMPONENTS[name] for name in names]
    return words[0] if len(words) == 1 else f"anisotropy_1 to _{len(words)}{words[0].removeprefix('anisotropy_1')}"


def _format_differences(differences: Sequence[float], allowed: Bounds) -> str:
    held = sum(allowed[0] < each < allowed[1] for each in differences)
    return f"{_format_range(differences, _format_signed)}, as claimed in {held} of {len(differences)}"


def _format_range(
    values: Sequence[float], shown: Callable[[float], str] = lambda value: format_number(value, 3)
) -> str:
    return f"{shown(min(values))} to {shown(max(values))}" if values else "not published"


def _format_signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{format_number(value, 3)}"
