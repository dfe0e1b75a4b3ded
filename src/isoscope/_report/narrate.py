"""Write the sentences that summarize a grouped audit, a recommendation, a training run and fine-tuning."""

from __future__ import annotations

import itertools
import math
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from isoscope.advising.task import PLURALS
from isoscope.auditing.finding import format_number
from isoscope.training.layer_metrics import effective_dimensions

if TYPE_CHECKING:
    from isoscope.advising.advise import Advice, Score, Trial
    from isoscope.auditing.grouped import GroupedAudit, Series
    from isoscope.finetuning.result import FineTuning
    from isoscope.training.history import Runs, StepSeries


# words


def interleave_separators(words: Sequence[str], last: str = "and") -> list[str]:
    """Return the words with list separators between them.

    >>> interleave_separators(["one", "two", "three"])
    ['one', ', ', 'two', ' and ', 'three']
    """
    separators = [", "] * (len(words) - 2) + [f" {last} "] * (len(words) > 1)
    return [part for pair in zip(words, [*separators, ""], strict=False) for part in pair][:-1]


def join_words(words: Sequence[str], last: str = "and") -> str:
    """Return the words joined as a list for use in a sentence.

    >>> join_words(["one", "two", "three"]), join_words(["one", "two"], "or")
    ('one, two and three', 'one or two')
    """
    return "".join(interleave_separators(words, last))


def spell_number(count: int) -> str:
    """Return a small number as a word.

    >>> spell_number(3), spell_number(31)
    ('three', '31')
    """
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    return words[count] if count < len(words) else str(count)


def capitalize(sentence: str) -> str:
    """Return a sentence with its first letter in upper case.

    >>> capitalize("mean cosine of A")
    'Mean cosine of A'
    """
    return sentence[:1].upper() + sentence[1:]


def format_signed(value: float) -> str:
    """Return a difference as text with its sign.

    >>> format_signed(0.0312), format_signed(-0.5), format_signed(-0.0001), format_signed(0.00001)
    ('+0.031', '−0.500', '−0.0001', '0.000')
    """
    digits = 4 if 0.00005 <= abs(value) < 0.0005 else 3  # a significant difference is not shown as 0
    text = f"{value:+.{digits}f}".replace("-", "−")
    return "0.000" if text in ("+0.000", "−0.000") else text


def format_interval(score: Score) -> str:
    """Return the confidence interval of a gain as text, such as [+0.010, +0.042]."""
    return f"[{format_signed(score.low)}, {format_signed(score.high)}]"


def format_confidence(confidence: float) -> str:
    """Return a confidence level as a percentage.

    >>> format_confidence(0.95)
    '95%'
    """
    return f"{100 * confidence:g}%"


# advice


LABEL_FREE_WARNING = (
    "This evidence is weak. Without a task, isoscope can only test whether two halves of the coordinates find the same "
    "neighbors. It cannot test whether these are the right neighbors. Provide pairs, queries or labels before you "
    "re-index anything."
)
"""The warning for advice without a task."""


_MIN_EXPECTED_GAIN = 0.0005  # a smaller gain would be shown as 0.000


def advice_paragraph(advice: Advice) -> str:
    """Return a paragraph that states the advice and the reasons for it."""
    sentences = [advice_headline(advice)]
    sentences += _describe_no_repair(advice) if advice.leaves_vectors_unchanged else _describe_choice(advice)
    sentences += _describe_stability(advice)
    sentences += _describe_conflicts(advice)
    if is_label_free(advice):
        sentences.append(LABEL_FREE_WARNING)
    return " ".join(sentences)


def advice_headline(advice: Advice) -> str:
    """Return the advice in one sentence, with the deciding measure and the expected gain."""
    if advice.leaves_vectors_unchanged and advice.best:
        best = advice.trials[advice.best].name
        return (
            f"Leave the vectors as they are: the gain from {best} in {advice.measures[advice.measure]} is not reliable."
        )
    if advice.leaves_vectors_unchanged:
        names = [advice.measure] if advice.alone else list(advice.measures)
        excluded = any(trial[name].verdict == "gain" for trial in advice.trials[1:] for name in names)
        rest = " without making another measure worse" if excluded else ""
        return f"Leave the vectors as they are: no repair improves {_list_measures(advice)} significantly{rest}."
    measure, gain = advice.measures[advice.measure], advice.promised_gain
    verb = f"{advice.choice.name} may help" if is_label_free(advice) else f"Use {advice.choice.name}"
    if gain < _MIN_EXPECTED_GAIN:
        return f"{verb}: {measure} improves significantly, but cross-validation shows no gain."
    return f"{verb}: expect {measure} to rise by about {gain:.3f}."


def describe_rule(advice: Advice) -> str:
    """Return the rule that leads to the advice in one sentence."""
    limit = "" if advice.alone or len(advice.measures) == 1 else ", and that makes no other measure significantly worse"
    return (
        f"the advisor recommends the simplest repair whose gain in {_list_measures(advice)} is significant and within "
        f"10% of the largest{limit}; otherwise, it leaves the vectors unchanged."
    )


def is_label_free(advice: Advice) -> bool:
    """Return whether the advice was given without a task."""
    return is_label_free_measure(advice.measure)


def is_label_free_measure(measure: str) -> bool:
    """Return whether a measure needs no task: the agreement of two halves of the coordinates."""
    return measure == "stability"


def _list_measures(advice: Advice) -> str:
    """Return the names of the possible deciding measures, joined with "or"."""
    words = [advice.measures[advice.measure]] if advice.alone else list(advice.measures.values())
    return join_words(words, "or")


def _describe_choice(advice: Advice) -> list[str]:
    score, before = advice.choice[advice.measure], advice.trials[0][advice.measure]
    sentences = []
    if advice.promised_gain >= _MIN_EXPECTED_GAIN:
        sentences.append(f"This is the mean gain on {PLURALS[advice.example]} that were not used to select the repair.")
    sentences.append(
        f"On all {_format_examples(advice)}, it rises from {before.value:.3f} to {score.value:.3f}: a gain of "
        f"{_format_gain(advice, score, corrected=True)}."
    )
    best = advice.trials[advice.best]
    if advice.best != advice.chosen:
        sentences.append(
            f"{best.name} has the largest gain ({format_signed(best[advice.measure].gain)}). {advice.choice.name} is "
            "simpler, and its gain is within 10% of that."
        )
    return sentences


def _describe_no_repair(advice: Advice) -> list[str]:
    measure, before = advice.measure, advice.trials[0][advice.measure]
    others = advice.trials[1:]
    where = f"On {_format_examples(advice)}, {advice.measures[measure]} is {before.value:.3f}"
    if not others:
        return [f"{where}. No repair was tested."]
    if advice.best:
        best = advice.trials[advice.best]
        sentences = [
            f"{where}. {best.name} raises it by {_format_gain(advice, best[measure])}, but the selection chooses no "
            f"repair on most subsets of the {PLURALS[advice.example]}."
        ]
    elif any(trial[measure].verdict == "gain" for trial in others):
        sentences = [f"{where}. Every repair that improves it significantly makes another measure significantly worse."]
    else:
        best = max(others, key=lambda trial: trial[measure].value)
        many = len(others) > 1
        which = f"best of {len(others)} repairs" if many else "only repair tested"
        gain = _format_gain(advice, best[measure], corrected=many)
        if abs(best[measure].gain) < _MIN_EXPECTED_GAIN:
            sentences = [f"{where}. The {which}, {best.name}, does not change it: the gain is {gain}."]
        else:
            sentences = [f"{where}. The {which}, {best.name}, changes it by {gain}."]
        worse = {name: advice.measures[name] for name, score in best.scores.items() if score.verdict == "loss"}
        if worse and measure not in worse:
            sentences.append(f"It makes {join_words(list(worse.values()))} significantly worse.")
    losing = [trial for trial in others if trial[measure].verdict == "loss"]
    if losing:
        worst = min(losing, key=lambda trial: trial[measure].gain)
        loss = f"{worst.name} ({format_signed(worst[measure].gain)} {format_interval(worst[measure])})"
        if len(others) == 1:
            sentences.append("This loss is significant.")
        elif len(losing) == 1:
            sentences.append(f"One repair lowers it significantly: {loss}.")
        else:
            sentences.append(f"{len(losing)} repairs lower it significantly; the worst is {loss}.")
    return sentences


def _describe_stability(advice: Advice) -> list[str]:
    """Describe how often selection on a subset of the examples leads to the same advice."""
    total = sum(advice.selections.values())
    if not total or len(advice.trials) < 2:
        return []
    same = advice.selections.get(advice.choice.name, 0)
    repeated = f"Repeating the selection on {total} subsets of the {PLURALS[advice.example]} gave the same"
    others = sorted(((count, name) for name, count in advice.selections.items() if name != advice.choice.name))[::-1]
    listed = ", ".join(f"{name} {_format_times(count)}" for count, name in others[:3])
    alternatives = f" (other results: {listed})" if others else ""
    if advice.is_stable:
        times = f"all {total} times" if same == total else f"{same} of {total} times"
        return [f"{repeated} advice {times}{alternatives}."]
    often = f"only {_format_times(same)}{alternatives}"
    if not advice.leaves_vectors_unchanged and advice.trials[0].name not in advice.selections:
        return [f"The choice of repair is unstable. {repeated} repair {often}. A repair was selected on every subset."]
    return [
        f"This advice is unstable. {repeated} advice {often}. "
        f"Use more {PLURALS[advice.example]} for a more reliable result."
    ]


def _format_times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _describe_conflicts(advice: Advice) -> list[str]:
    """Describe how other measures, or isotropy itself, contradict the advice."""
    sentences = _describe_excluded(advice)
    for name, words in advice.measures.items():
        if name == advice.measure:
            continue
        mine = advice.choice[name]
        if mine.verdict != "noise":
            change = f"However, {words} falls" if mine.verdict == "loss" else f"{capitalize(words)} rises too"
            sentences.append(f"{change}: {format_signed(mine.gain)} {format_interval(mine)}.")
            continue
        best = max(advice.trials, key=lambda trial: trial[name].value)
        if best[name].verdict == "gain":
            sentences.append(
                f"{best.name} improves {words} by {best[name].gain:.3f} {format_interval(best[name])}. If {words} "
                f"matters most to you, set the measure to {name}."
            )
    even = _find_most_isotropic(advice)
    if even is not None and advice.leaves_vectors_unchanged and even[advice.measure].verdict == "loss":
        score = even[advice.measure]
        sentences.append(
            f"{even.name} makes the space most isotropic (unbiased IsoScore {even.shape['isoscore']:.2f}, up from "
            f"{advice.trials[0].shape['isoscore']:.2f}), but lowers {advice.measures[advice.measure]} by "
            f"{-score.gain:.3f}."
        )
    return sentences


def _describe_excluded(advice: Advice) -> list[str]:
    """Describe the repair that beats the choice on the deciding measure but worsens another measure."""
    measure = advice.measure
    better = [
        trial
        for trial in advice.trials
        if trial[measure].verdict == "gain" and any(score.verdict == "loss" for score in trial.scores.values())
    ]
    best = max(better, key=lambda trial: trial[measure].value, default=None)
    if best is None or best[measure].value <= advice.choice[measure].value:
        return []
    name, score = min(best.scores.items(), key=lambda item: item[1].gain)
    return [
        f"{best.name} raises {advice.measures[measure]} by {best[measure].gain:.3f} {format_interval(best[measure])} "
        f"but lowers {advice.measures[name]} by {-score.gain:.3f}. If that loss does not matter, set the measure to "
        f"{measure}."
    ]


def _find_most_isotropic(advice: Advice) -> Trial | None:
    """Return the candidate with the highest IsoScore; None if the IsoScore of the original vectors is unknown."""
    measured = [trial for trial in advice.trials if math.isfinite(trial.shape.get("isoscore", math.nan))]
    if advice.trials[0] not in measured:
        return None
    return max(measured, key=lambda trial: trial.shape["isoscore"])


def _format_gain(advice: Advice, score: Score, *, corrected: bool = False) -> str:
    """Return a gain and its interval as text, with the number of repairs for which the interval is corrected."""
    tried = len(advice.trials) - 1
    words = f"{format_confidence(advice.settings.confidence)} interval {format_interval(score)}"
    if corrected:
        words += ", one repair tested" if tried == 1 else f", corrected for testing {tried} repairs"
    return f"{format_signed(score.gain)} ({words})"


def _format_examples(advice: Advice) -> str:
    return f"{advice.examples:,} {PLURALS[advice.example]}"


# grouped audits

HEADLINE_PHRASES = {
    "mean_cosine": "Mean cosine",
    "isoscore": "IsoScore",
    "intra_type": "S_intra",
    "intrinsic_dimension": "The local dimension (LID)",
    "anisotropy": "Anisotropy (the leading direction's share)",
    "effective_rank": "The effective rank",
    "labels": "The silhouette of the labels",
    "clusters": "The silhouette of the best clusters",
}
"""The findings that the top of a page may describe, most important first."""

_MAX_NAME_LENGTH = 60  # in characters
_MAX_LISTED = 3  # if there are more names, they are counted instead of listed


def describe_groups(audit: GroupedAudit, count: int) -> list[str]:
    """Return at most `count` sentences on how measurements change across the groups."""
    sentences = []
    for name, subject in HEADLINE_PHRASES.items():
        series = audit.series(name)
        if np.isfinite(series.estimates).any():
            form = next(group[name].form for group in audit.groups.values() if name in group)
            sentences.append(describe_series(subject, series, audit, form))
    return sentences[:count]


def describe_series(subject: str, series: Series, audit: GroupedAudit, form: str = "number") -> str:
    """Return a sentence on one measurement: its trend if the groups are ordered, else its highest and lowest group.

    Differences between groups with overlapping intervals, or with values that agree to three digits, are not mentioned.
    """
    known = np.flatnonzero(np.isfinite(series.estimates)).tolist()
    if not known:
        return f"{subject} could not be measured."
    values = [float(series.estimates[i]) for i in known]
    texts = [format_number(value, form) for value in values]
    names = [format_group_name(audit, series.names[i]) for i in known]
    partly = "" if len(known) == len(series.names) else f" (measured in {len(known)} of {len(series.names)})"
    low, high = int(np.argmin(values)), int(np.argmax(values))
    turns = _extreme_segments(values, texts)
    if len(known) == 1:
        predicate = f"is {texts[0]} in {names[0]}"
    elif len(set(texts)) == 1:
        predicate = f"is {texts[0]} in {_describe_all(len(known), audit)}"
    elif not are_disjoint(series, known[low], known[high]):
        everywhere = _describe_all(len(known), audit)
        predicate = (
            f"shows no clear difference: {texts[low]} to {texts[high]} in {everywhere}, with overlapping intervals"
        )
    elif not audit.ordered:
        predicate = _describe_extremes(values, texts, names, audit)
    elif all(are_disjoint(series, known[a], known[b]) for a, b in turns) and _is_monotone(values, texts, turns):
        predicate = _describe_trend(values, texts, names, turns)
    else:
        predicate = _describe_extremes(values, texts, names, audit, ends=True)
    return f"{subject} {predicate}{partly}."


def format_group_name(audit: GroupedAudit, name: str) -> str:
    """Return a group's name with its kind (layer 3, label “sport”), unless the name already contains it."""
    noun = group_noun(audit.by)
    name = name if len(name) <= _MAX_NAME_LENGTH else name[: _MAX_NAME_LENGTH - 1] + "…"
    if any(unicodedata.bidirectional(mark) in ("R", "AL") for mark in name):
        name = f"\u2068{name}\u2069"  # isolate a right-to-left name, so that it does not reorder the text around it
    if name.lower().startswith(noun.lower()):
        return name
    return f"{noun} {name}" if audit.ordered else f"{noun} “{name}”"


def has_numeric_groups(audit: GroupedAudit) -> bool:
    """Return whether every group is a single number, not a name or a range of numbers."""
    return audit.ordered and all(_matches_value(name, audit.values[name]) for name in audit.groups)


def _matches_value(name: str, value: int | float | str) -> bool:
    try:
        return math.isclose(float(name.replace("−", "-")), float(value), rel_tol=1e-3)  # names keep four digits
    except ValueError:
        return False


def group_noun(by: str) -> str:
    """Return the noun for one group: the name of the column, in the singular if the singular is known.

    >>> group_noun("layer"), group_noun("labels"), group_noun("groups"), group_noun("class")
    ('layer', 'label', 'group', 'class')
    """
    return by[:-1] if by in ("groups", "labels", "types", "layers", "clusters", "documents") else by


def plural_group_noun(audit: GroupedAudit) -> str:
    """Return the noun for several groups, such as "layers" or "ranges of frequency"."""
    noun = group_noun(audit.by)
    if not set(noun.lower()) & set("aeiouy"):  # an abbreviation such as grp has no plural
        return f"groups of {noun}"
    if audit.ordered and not has_numeric_groups(audit):
        return f"ranges of {noun}"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch")) else "s")


def are_disjoint(series: Series, i: int, j: int) -> bool:
    """Return whether the intervals of two groups are disjoint; if there are no intervals, whether the values differ."""
    ends = [float(each[k]) for each in (series.low, series.high) for k in (i, j)]
    if not all(map(math.isfinite, ends)):
        return bool(series.estimates[i] != series.estimates[j])
    return bool(series.high[i] < series.low[j] or series.high[j] < series.low[i])


def _describe_all(count: int, audit: GroupedAudit) -> str:
    return f"both {plural_group_noun(audit)}" if count == 2 else f"all {count} {plural_group_noun(audit)}"


def _extreme_segments(values: Sequence[float], texts: Sequence[str]) -> list[tuple[int, int]]:
    """Return the segments between the first, lowest, highest and last groups, in group order."""
    last = len(values) - 1
    turns = sorted({0, int(np.argmin(values)), int(np.argmax(values)), last})
    turns = [i for i in turns if i in (0, last) or (texts[i] != texts[0] and texts[i] != texts[last])]
    return list(itertools.pairwise(turns))


def _is_monotone(values: Sequence[float], texts: Sequence[str], segments: Sequence[tuple[int, int]]) -> bool:
    """Return whether each segment rises or falls without a reversal, by a visible amount."""
    return all(
        texts[a] != texts[b] and bool(np.all(np.diff(values[a : b + 1]) * (values[b] - values[a]) >= 0))
        for a, b in segments
    )


def _describe_trend(
    values: Sequence[float], texts: Sequence[str], names: Sequence[str], segments: Sequence[tuple[int, int]]
) -> str:
    parts = []
    for i, (a, b) in enumerate(segments):
        start = "" if i else f" from {texts[a]} in {names[a]}"
        parts.append(f"{'rises' if values[b] > values[a] else 'falls'}{start} to {texts[b]} in {names[b]}")
    return join_words(parts)


def _describe_extremes(
    values: Sequence[float], texts: Sequence[str], names: Sequence[str], audit: GroupedAudit, *, ends: bool = False
) -> str:
    """Describe the highest and lowest groups in group order; if `ends` is set, also the first and the last."""
    parts: dict[int, str] = {}
    extremes = {"highest": texts[int(np.argmax(values))], "lowest": texts[int(np.argmin(values))]}
    for word, text in extremes.items():
        where = [i for i, each in enumerate(texts) if each == text]
        parts[where[0]] = f"{word} in {_list_groups([names[i] for i in where], audit)} ({text})"
    for i in (0, len(values) - 1) if ends else ():
        if texts[i] not in extremes.values():
            parts[i] = f"{texts[i]} in {names[i]}"
    return "is " + join_words([parts[i] for i in sorted(parts)])


def _list_groups(names: Sequence[str], audit: GroupedAudit) -> str:
    return f"{len(names)} {plural_group_noun(audit)}" if len(names) > _MAX_LISTED else join_words(names)


# training

MEASUREMENT_LABELS = {
    **{f"anisotropy_{k}": f"anisotropy_{k}" for k in (1, 2, 3)},
    **{f"anisotropy_{k}_centered": f"anisotropy_{k}, centered" for k in (1, 2, 3)},
    "isoscore_unbiased": "IsoScore, unbiased",
    "isoscore": "IsoScore, plug-in",
    "mean_cosine": "mean cosine",
    "two_nn": "TwoNN dimension",
    "silhouette": "silhouette of the classes",
}
"""The measurements and their names, in the order of the page."""

_MIN_RELATIVE_CHANGE = 0.03  # relative to the larger value: a smaller change counts as none
_MIN_CHANGE = 0.005  # a smaller change counts as none for values of any size


class LineChange(NamedTuple):
    """The first and the last known value of a line."""

    before: float
    after: float

    @property
    def verb(self) -> str:
        """The verb that describes the change: "rose", "fell" or "stayed"."""
        if not self.is_known or abs(self.after - self.before) <= max(
            _MIN_RELATIVE_CHANGE * max(abs(self.after), abs(self.before)), _MIN_CHANGE
        ):
            return "stayed"
        return "rose" if self.after > self.before else "fell"

    @property
    def is_known(self) -> bool:
        """Whether both values are known."""
        return math.isfinite(self.before) and math.isfinite(self.after)

    def __str__(self) -> str:
        if self.verb == "stayed":
            return f"stayed at {format_number(self.after)}"
        return f"{self.verb} from {format_number(self.before)} to {format_number(self.after)}"


def measure_change(line: StepSeries) -> LineChange:
    """Return the first and the last known value of a line."""
    known = line.values[np.isfinite(line.values)]
    return LineChange(float(known[0]), float(known[-1])) if len(known) else LineChange(math.nan, math.nan)


def training_headline(runs: Runs) -> str:
    """Return one sentence on how the last layer changed during training."""
    layer = format_last_layer(runs.layers[-1])
    if len(runs.arms) == 1:
        line = runs.mean(next(iter(runs.arms)), runs.layers[-1], "anisotropy_1")
        change = measure_change(line)
        if not len(line.steps):
            return "The runs have no measured step in common."
        if not change.is_known:
            return f"anisotropy_1 of {layer} could not be measured: its states are all zero, or there are too few."
        shape = {"rose": "became less isotropic", "fell": "became more isotropic", "stayed": "kept its shape"}
        return f"{capitalize(layer)} {shape[change.verb]}: the share of its leading direction (anisotropy_1) {change}."
    ends = _late_means(runs, "anisotropy_1")
    if len(ends) < 2:
        return f"anisotropy_1 of {layer} could not be measured in most arms."
    low, high = min(ends, key=ends.__getitem__), max(ends, key=ends.__getitem__)
    return (
        f"{capitalize(layer)} ends most isotropic with “{low}” (anisotropy_1 {format_number(ends[low])}) and least "
        f"isotropic with “{high}” ({format_number(ends[high])})."
    )


def training_paragraph(runs: Runs) -> str:
    """Return a paragraph on the last layer: how one arm changed, or the final values of each arm."""
    d = next(int(row["dimensions"]) for row in runs.all[0] if row["layer"] == runs.layers[-1])
    measured = (
        ("anisotropy_1_centered", "with the mean subtracted, that share", ""),
        ("isoscore_unbiased", "the number of effective dimensions", f" of {d:,}"),
        ("mean_cosine", "the mean cosine", ""),
        ("silhouette", "the silhouette of the classes", ""),
    )
    sentences = []
    for name, subject, unit in measured:
        if len(runs.arms) == 1:
            change = measure_change(runs.mean(next(iter(runs.arms)), runs.layers[-1], name))
            if name == "isoscore_unbiased":
                change = LineChange(*(effective_dimensions(max(score, 0.0), d) for score in change))
            if change.is_known:
                sentences.append(f"{capitalize(subject)} {change}{unit}.")
        elif name != "mean_cosine":
            ends = _late_means(runs, name)
            if name == "isoscore_unbiased":
                ends = {arm: effective_dimensions(max(score, 0.0), d) for arm, score in ends.items()}
            if ends:
                values = join_words([f"{format_number(value)} ({arm})" for arm, value in ends.items()])
                sentences.append(f"{capitalize(subject)} ends at {values}{unit}.")
    return " ".join(sentences)


def _late_means(runs: Runs, measurement: str) -> dict[str, float]:
    """Return each arm's mean over the last part of training; arms with an unknown mean are omitted."""
    ends = {arm: float(np.mean(runs.late(arm, runs.layers[-1], measurement))) for arm in runs.arms}
    return {arm: value for arm, value in ends.items() if math.isfinite(value)}


def format_layer_name(layer: str) -> str:
    """Return the name of a layer as shown on pages.

    >>> format_layer_name("layer_3"), format_layer_name("encoder.layer.3")
    ('layer 3', 'encoder.layer.3')
    """
    head, _, number = layer.partition("_")
    return f"layer {number}" if head == "layer" and number.isdecimal() else layer


def format_last_layer(layer: str) -> str:
    """Return a phrase for the last layer, with its name.

    >>> format_last_layer("layer_6")
    'the last layer (layer 6)'
    """
    return f"the last layer ({format_layer_name(layer)})"


# fine-tuning

SCORE_LABELS = {
    "accuracy": "accuracy",
    "f1": "F1",
    "matthews": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
}
"""The scores of fine-tuning and their names."""


def finetuning_headline(result: FineTuning) -> str:
    """Return one sentence with the main score of a run and its baseline, and whether the model learned the task."""
    measure, task, learned = result.settings.measure, result.settings.task, result.learned
    score = f"{capitalize(SCORE_LABELS[measure])} {result.final[measure]} on the dev set of {task}"
    constant = "the most common class" if measure == "accuracy" else "a constant prediction"
    baseline = f"{result.baseline[measure]:.3f} for {constant}"
    if not any(learned):
        return f"{score} is not above chance ({baseline}): the model has not learned the task."
    who = "the model" if all(learned) else f"{sum(learned)} of {len(learned)} seeds"
    return f"{score}, compared with {baseline}: {who} learned the task."


def describe_term(result: FineTuning) -> list[str]:
    """Return sentences on the effect of the regularizer in a run; an empty list without a regularizer."""
    share = result.gradient_share.mean
    if math.isnan(share):
        return []
    counts = [seed.term_counts for seed in result.seeds]
    seen, small = (sum(each[name] for each in counts) for name in ("clouds", "too_small"))
    skipped = f"; {small / seen:.0%} of the batches (or of the classes in them) were too small to use" if small else ""
    sentences = [f"{share:.0%} of the rows got a gradient from the regularizer{skipped}"]
    ratio = result.gradient_ratio.mean
    if not math.isnan(ratio):
        outweighed = ": it outweighs the task, so try a smaller weight" if ratio > 1 else ""
        sentences.append(f"the gradient of the regularizer is {ratio:.2g} times that of the task{outweighed}")
    return sentences
