"""Which claims about the repaired space hold, each by a rule on our numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from isoscope.studies.isotropic_word_representation.states import REPAIR, key_of
from isoscope.studies.outcome import Holds, Value, Verdict
from isoscope.studies.published import Published
from isoscope.studies.words import number

if TYPE_CHECKING:
    from isoscope.studies.isotropic_word_representation.shown import Found

Case = tuple[str, bool | None, float]
"""A model, whether the claim is true in one case of it, and the number that shows it.

None is a difference that goes as claimed and may be chance.
"""

_ANISOTROPIC = -3.0  # log10
_ISOTROPIC = 0.4
_EQUAL = 0.5  # points of Spearman
_MOST = 0.9
_FAR = 1.0  # powers of ten
_NEAR_ZERO = 0.05
RULE = (
    "A claim holds where it is true in every case, in part where in half of them or more. Accuracies differ by chance: "
    "one that goes as claimed, but by one seed or with 0 in its interval, makes a claim hold in part at most. The "
    "limits in the rules are ours, since the slides give none."
)


def verdicts(published: Published, found: Found) -> list[Verdict]:
    """A verdict for every claim."""
    makers: dict[str, Callable[[], tuple[str, Sequence[Case], str, int]]] = {
        "anisotropic": lambda: _anisotropic(published, found),
        "layers": lambda: _layers(found),
        "isotropy": lambda: _isotropic(published, found),
        "similarity": lambda: _similarity(published, found),
        "global": lambda: _against(published, found, (REPAIR, ">", ("mean", "mean-pca"))),
        "global-harms": lambda: _against(published, found, ("mean-pca", "<", ("none",))),
        "directions": lambda: _against(published, found, (REPAIR, ">", ("kmeans-mean",))),
        "clusterer": lambda: _against(published, found, (REPAIR, "~", ("gmm-mean-pca",))),
        "classification": lambda: _classification(published, found),
        "finetuning-isotropy": lambda: _tuned_isotropy(published, found),
        "finetuning-accuracy": lambda: _tuned_accuracy(published, found),
        "zero-mean": lambda: _zero_mean(found),
        "offline": lambda: _offline(found),
    }
    return [_judged(published, claim.key, *makers[claim.key]()) for claim in published.claims]


def _judged(published: Published, key: str, theirs: str, cases: Sequence[Case], rule: str, digits: int) -> Verdict:
    claim = published.claim(key)
    if not cases:
        return Verdict(claim, theirs, "not run", Holds.untested)
    true = sum(each is True for _, each, _ in cases)
    not_false = sum(each is not False for _, each, _ in cases)
    holds = Holds.yes if true == len(cases) else Holds.partly if 2 * not_false >= len(cases) else Holds.no
    parts = []
    for model in dict.fromkeys(name for name, _, _ in cases):
        own = [(each, value) for name, each, value in cases if name == model]
        values = [value for _, value in own]
        span = number(min(values), digits)
        span += "" if len(own) == 1 else f" to {number(max(values), digits)}"
        parts.append(f"{model} {sum(each is True for each, _ in own)} of {len(own)} ({span})")
    return Verdict(claim, theirs, "; ".join(parts), holds, rule)


def _goes(differences: Value, sign: int) -> bool | None:
    """Whether a difference has a sign beyond what seeds make of it; None if it has it, and may have it by chance."""
    if not sign * differences.mean > 0:
        return False
    return True if min(sign * end for end in differences.interval) > 0 else None


def _pairs_of(found: Found) -> Iterable[tuple[str, str]]:
    return ((model, name) for model in found.models for name in found.sets)


def _all_there(values: Mapping[str, Value | None] | list[Value | None]) -> list[Value] | None:
    there = [each for each in (values.values() if isinstance(values, Mapping) else values) if each is not None]
    return there if len(there) == len(values) and all(each.mean == each.mean for each in there) else None


def _span(published: Published, table: str, column: str, digits: int) -> str:
    values = [each.value for (_, name), each in published.tables[table].items() if name == column]
    return f"{number(min(values), digits)} to {number(max(values), digits)} over {len(values)} sets"


def _anisotropic(published: Published, found: Found) -> tuple[str, Sequence[Case], str, int]:
    cases = []
    for model, name in _pairs_of(found):
        there = _all_there([found.similarity(model, name, "none", "same", "log_isotropy")])
        cases += [(model, there[0].mean < _ANISOTROPIC, there[0].mean)] if there else []
    rule = f"A case is a model and a set: log₁₀ isotropy below {number(_ANISOTROPIC, 0)}."
    return _span(published, "sets", "none isotropy", 2), cases, rule, 1


def _layers(found: Found) -> tuple[str, Sequence[Case], str, int]:
    cases = []
    for model in found.models:
        for key, each in found.results.items():
            if key.startswith(f"layers/{model}/") and len(each["layers"]) > 1:
                first, *hidden = (row["cosine"] for row in each["layers"])
                share = sum(cosine > first for cosine in hidden) / len(hidden)
                cases.append((model, share >= _MOST, 100 * share))
    rule = f"A case is a model: {100 * _MOST:.0f}% of its hidden layers have a higher mean cosine than layer 0."
    return "said without numbers", cases, rule, 0


def _isotropic(published: Published, found: Found) -> tuple[str, Sequence[Case], str, int]:
    cases = []
    for model, name in _pairs_of(found):
        there = _all_there([found.similarity(model, name, REPAIR, "same", "isotropy")])
        cases += [(model, there[0].mean >= _ISOTROPIC, there[0].mean)] if there else []
    rule = f"A case is a model and a set: an isotropy of {_ISOTROPIC} at least, fitted on the sentences scored."
    return _span(published, "sets", "repaired isotropy", 2), cases, rule, 2


def _similarity(published: Published, found: Found) -> tuple[str, Sequence[Case], str, int]:
    gains = [
        published.tables["sets"][name, f"repaired {each}"].value - published.tables["sets"][name, f"none {each}"].value
        for name in published.rows("sets")
        for each in ("Pearson", "Spearman")
    ]
    cases = []
    for model, name in _pairs_of(found):
        values = [
            found.similarity(model, name, v, "same", m) for m in ("pearson", "spearman") for v in ("none", REPAIR)
        ]
        there = _all_there(values)
        if there:
            least = min(there[1].mean - there[0].mean, there[3].mean - there[2].mean)
            cases.append((model, least > 0, least))
    rule = "A case is a model and a set: both correlations rise; the smaller rise is shown, in points."
    words = f"{number(min(gains), 1)} to {number(max(gains), 1)} points higher"
    return words, cases, f"{rule} {_SAME}{_honestly(found)}", 1


_SAME = "Fitted, as the authors do, on the sentences that are scored."


def _honestly(found: Found) -> str:
    """In how many cases the repair raises both correlations if it is fitted on other sentences."""
    rises = []
    for model, name in _pairs_of(found):
        there = _all_there(
            [found.similarity(model, name, v, "train", m) for m in ("pearson", "spearman") for v in ("none", REPAIR)]
        )
        rises += [there[1].mean > there[0].mean and there[3].mean > there[2].mean] if there else []
    return f" Fitted on a train split they rise in {sum(rises)} of {len(rises)}." if rises else ""


def _against(
    published: Published, found: Found, asked: tuple[str, str, tuple[str, ...]]
) -> tuple[str, Sequence[Case], str, int]:
    """Spearman of one variant against that of others."""
    one, sign, others = asked
    columns = [each for each in published.columns("variants") if each.endswith("Spearman")]
    theirs = [
        f"{column.split()[0]} {number(published.tables['variants'][one, column].value, 1)} against "
        + " and ".join(number(published.tables["variants"][each, column].value, 1) for each in others)
        for column in columns
    ]
    cases = []
    for model, name in _pairs_of(found):
        there = _all_there([found.similarity(model, name, each, "same", "spearman") for each in (one, *others)])
        if there:
            mine, rest = there[0].mean, [each.mean for each in there[1:]]
            apart = mine - (max(rest) if sign != "<" else min(rest))
            cases.append((model, {">": apart > 0, "<": apart < 0, "~": apart >= -_EQUAL}[sign], apart))
    words = {">": "higher", "<": "lower", "~": f"no more than {_EQUAL} lower"}[sign]
    rule = f"A case is a model and a set: Spearman is {words}; the difference is shown, in points. {_SAME}"
    return "; ".join(theirs), cases, rule, 1


def _theirs(published: Published, table: str, measure: str, digits: int) -> str:
    found = []
    for row in published.rows(table):
        before, after = (published.tables[table][row, f"{word} {measure}"].value for word in ("none", "repaired"))
        found.append(f"{row} {number(before, digits)} → {number(after, digits)}")
    return "; ".join(found)


def _classification(published: Published, found: Found) -> tuple[str, Sequence[Case], str, int]:
    cases: list[Case] = []
    for model in found.models:
        there = _all_there([found.value(key_of("sst2", model, each), "accuracy") for each in ("none", REPAIR)])
        if there:
            rise = Value.of(each - there[0].mean for each in there[1].seeds)
            cases.append((model, _goes(rise, 1), rise.mean))
    rule = (
        "A case is a model: the 95% interval of the rise over the draws of clusters is above 0; the rise is shown, in "
        "points."
    )
    return _theirs(published, "classification", "accuracy", 2), cases, rule, 2


def _tunings(found: Found, *names: str) -> Iterable[tuple[str, list[Value]]]:
    """What each task and model gave as usual and repaired."""
    for task in found.tasks:
        for model in found.models:
            keys = [key_of("finetune", task, model, how) for how in ("none", "repair")]
            there = _all_there([found.value(key, *names) for key in keys])
            if there:
                yield f"{task}, {model}", there


def _tuned_isotropy(published: Published, found: Found) -> tuple[str, Sequence[Case], str, int]:
    cases = [
        (name, after.mean - before.mean > _FAR, after.mean - before.mean)
        for name, (before, after) in _tunings(found, "read", "log_isotropy")
    ]
    rule = "A case is a task and a model: ten times as isotropic at least; the difference of log₁₀ is shown."
    return _theirs(published, "finetuning", "isotropy", 2), cases, rule, 1


def _tuned_accuracy(published: Published, found: Found) -> tuple[str, Sequence[Case], str, int]:
    cases: list[Case] = []
    for task in found.tasks:
        for model in found.models:
            before, after = (
                found.by_seed(key_of("finetune", task, model, how), "accuracy") for how in ("none", "repair")
            )
            falls = [after[seed] - before[seed] for seed in before if seed in after]
            if falls:
                fall = Value.of(falls)
                cases.append((f"{task}, {model}", _goes(fall, -1), fall.mean))
    rule = (
        "A case is a task and a model: the 95% interval of the difference over the seeds is below 0; the difference is "
        "shown, in points."
    )
    return _theirs(published, "finetuning", "accuracy", 1), cases, rule, 1


def _zero_mean(found: Found) -> tuple[str, Sequence[Case], str, int]:
    cases = [(name, usual.mean < _NEAR_ZERO, usual.mean) for name, (usual, _) in _tunings(found, "mean_share")]
    rule = (
        f"A case is a task and a model, tuned as usual: the mean vector's squared length is below "
        f"{100 * _NEAR_ZERO:.0f}% of the vectors' mean squared length, which is shown."
    )
    return "said without numbers", cases, rule, 2


def _offline(found: Found) -> tuple[str, Sequence[Case], str, int]:
    cases = []
    after: dict[str, Any] = dict(_tunings(found, "offline", "log_isotropy"))
    for name, (last, _) in _tunings(found, "last", "log_isotropy"):
        if name in after:
            rise = after[name][0].mean - last.mean
            cases.append((name, rise <= 0, rise))
    rule = "A case is a task and a model, tuned as usual: log₁₀ isotropy does not rise; its rise is shown."
    return "said without numbers, beside a table where it rises", cases, rule, 1
