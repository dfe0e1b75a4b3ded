"""The repaired space, published and ours: tables and figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from isoscope.studies.finetuned import speedup_notes
from isoscope.studies.isotropic_word_representation.claims import LIMITS_NOTE, make_verdicts
from isoscope.studies.isotropic_word_representation.measure import FITS, REPAIR, VARIANTS, arm_key
from isoscope.studies.isotropic_word_representation.tuned import TUNINGS
from isoscope.studies.study import Figure, Outcome, Panel, Row, Scatter, Series, Table, Value
from isoscope.studies.words import format_number

if TYPE_CHECKING:
    from isoscope.studies.study import Number, Published, Results, Setting

_BERT = "bert-base-uncased"
_SETS = {"STS2015": "sts15", "STS-B": "stsb"}
"""The sets of the slides' comparison, by their names there."""
_MEASURES = ("Pearson", "Spearman", "isotropy")


@dataclass(frozen=True)
class ArmResults:
    """What the arms gave, by what they were asked for."""

    results: Results
    models: tuple[str, ...]
    sets: tuple[str, ...]
    tasks: tuple[str, ...]

    def value(self, key: str, *names: str) -> Value | None:
        """A number of an arm, over its seeds; None if no such arm is done."""
        seen = self.values_by_seed(key, *names)
        return Value.of(seen.values()) if seen else None

    def values_by_seed(self, key: str, *names: str) -> dict[str, float]:
        """A number of an arm for each of its seeds, by what follows the arm's key; "" if chance has no part in it."""
        seen = {}
        for name, each in self.results.items():
            if name == key or name.startswith(f"{key}/seed-"):
                inner: Any = each
                for part in names:
                    inner = inner.get(part)  # arms of earlier releases have fewer numbers
                    if inner is None:
                        break
                else:
                    seen[name.removeprefix(key)] = float(inner)
        return seen

    def similarity(self, model: str, name: str, variant: str, fit: str, measure: str) -> Value | None:
        """Of a set of pairs; nothing is fitted where nothing is done."""
        return self.value(arm_key("sts", model, name, variant, "" if variant == "none" else fit), measure)


def make_outcome(published: Published, setting: Setting, results: Results) -> Outcome:
    """Tables, figures and verdicts of the arms that are done."""
    models = tuple(each.name for each in setting.models)
    found = ArmResults(results, models, setting["sets"], setting["tasks"])
    tables = [
        *_overview_tables(found),
        *(
            each
            for model in models
            for each in (_variants_table(found, published, model), _sets_table(found, published, model))
        ),
        _unit_length_table(found),
        _classification_table(found, published),
        _finetuning_table(found, published),
        _cls_table(found),
    ]
    figures = [
        _isotropy_similarity_figure(found),
        _layers_figure(found),
        _scatter_figure(found),
        _cls_layers_figure(found),
    ]
    return Outcome(
        [each for each in tables if each is not None and each.rows],
        [each for each in figures if each.panels],
        make_verdicts(published, found),
        _notes(found, setting),
    )


def _drop_missing(values: Mapping[str, Value | None]) -> dict[str, Value]:
    return {name: value for name, value in values.items() if value is not None}


def _optional_row(
    name: str, ours: Mapping[str, Value | None], theirs: Mapping[str, Number | None], model: str
) -> list[Row]:
    """A row if we have any number for it."""
    there = _drop_missing(ours)
    numbers = {column: each for column, each in theirs.items() if each is not None}
    return [Row(name, there, numbers, "" if model == _BERT else _BERT)] if there else []


def _overview_tables(found: ArmResults) -> list[Table]:
    tables = []
    for fit, words in FITS.items():
        rows = []
        for model in found.models:
            means = {}
            for variant, label in VARIANTS.items():
                each = [found.similarity(model, name, variant, fit, "spearman") for name in found.sets]
                there = [value.mean for value in each if value is not None]
                if there and (variant == "none" or len(there) == len(found.sets)):
                    means[label] = Value.of(fmean(there))
            rows += [Row(model, means)] if len(means) > 1 else []
        title = f"Spearman, mean over {len(found.sets)} sets, repairs fitted on {words}"
        tables.append(Table(f"overview-{fit}", title, list(VARIANTS.values()), rows, digits=2, row_name="model"))
    return tables


def _variants_table(found: ArmResults, published: Published, model: str) -> Table | None:
    columns = [f"{name} {measure}" for name in _SETS for measure in _MEASURES]
    rows = []
    for fit, words in FITS.items():
        for variant, label in VARIANTS.items():
            if variant == "none" and fit != "same":
                continue
            ours = {
                f"{name} {measure}": found.similarity(model, key, variant, fit, measure.lower())
                for name, key in _SETS.items()
                for measure in _MEASURES
            }
            theirs = {each: published.number("variants", variant, each) for each in columns} if fit == "same" else {}
            rows += _optional_row(label if fit == "same" else f"{label}, fitted on {words}", ours, theirs, model)
    return _published_table(published, "variants", f"variants-{model}", f"Variants of the repair: {model}", rows)


def _published_table(published: Published, key: str, own: str, title: str, rows: list[Row], *more: str) -> Table:
    columns = [*published.columns(key), *more]
    some = next(iter(published.tables[key].values()))
    return Table(own, title, columns, rows, some.where, some.note, digits=2, row_name=_ROW_NAMES[key])


_ROW_NAMES = {"variants": "variant", "sets": "set", "classification": "model", "finetuning": "task and model"}


def _sets_table(found: ArmResults, published: Published, model: str) -> Table | None:
    rows, ways = [], {"none": ("none", "same"), "repaired": (REPAIR, "same"), "fitted on train": (REPAIR, "train")}
    for name in found.sets:
        ours = {
            f"{way} {measure}": found.similarity(model, name, variant, fit, measure.lower())
            for way, (variant, fit) in ways.items()
            for measure in _MEASURES
        }
        table = "notebook" if name == "stsb-dev" else "sets"
        rows += _optional_row(name, ours, {each: published.number(table, name, each) for each in ours}, model)
    more = [f"fitted on train {measure}" for measure in _MEASURES]
    return _published_table(
        published, "sets", f"sets-{model}", f"As it is and repaired, set by set: {model}", rows, *more
    )


def _unit_length_table(found: ArmResults) -> Table:
    """Return the partition isotropy at the states' own scale and at unit length, with IsoScore beside it."""
    measures = {
        "isotropy": "isotropy",
        "isotropy at unit length": "isotropy_at_unit_length",
        "IsoScore": "isoscore",
    }
    rows: list[Row] = []
    for model in found.models:
        for name in found.sets:
            ours = {
                f"{word} {shown}": found.similarity(model, name, variant, "same", measure)
                for word, variant in (("none", "none"), ("repaired", REPAIR))
                for shown, measure in measures.items()
            }
            if ours["none isotropy at unit length"] is not None:
                rows += _optional_row(f"{model}, {name}", ours, {}, model)
    note = (
        "Partition isotropy depends on the scale of the states. At unit length the states are divided by their "
        "root-mean-square length, so models can be compared; IsoScore does not depend on scale. Repairs are fitted on "
        "the sentences that they score. Arms of runs before this was measured are not listed."
    )
    title = "Isotropy that does not depend on scale"
    columns = [f"{word} {shown}" for word in ("none", "repaired") for shown in measures]
    return Table("unit-length", title, columns, rows, note=note, digits=3, row_name="model and set")


def _classification_table(found: ArmResults, published: Published) -> Table:
    columns = {"none": "none", "repaired": REPAIR}
    columns |= {label: variant for variant, label in VARIANTS.items() if variant not in columns.values()}
    rows: list[Row] = []
    for model in found.models:
        ours = {
            f"{word} {measure}": found.value(arm_key("sst2", model, variant), measure)
            for word, variant in columns.items()
            for measure in ("accuracy", "isotropy")
        }
        rows += _optional_row(
            model, ours, {each: published.number("classification", "sst2", each) for each in ours}, model
        )
    more = [f"{word} accuracy" for word in list(columns)[2:]]
    return _published_table(published, "classification", "classification", "SST-2 by a linear classifier", rows, *more)


def _finetuning_table(found: ArmResults, published: Published) -> Table:
    rows = []
    for task in found.tasks:
        for model in found.models:
            ours = {}
            for how, word in (("none", "none"), ("repair", "repaired")):
                key = arm_key("finetune", task, model, how)
                ours[f"{word} accuracy"] = found.value(key, "accuracy")
                ours[f"{word} isotropy"] = found.value(key, "read", "isotropy")
            theirs = {each: published.number("finetuning", task, each) for each in ours}
            rows += _optional_row(f"{task}, {model}", ours, theirs, model)
    return _published_table(published, "finetuning", "finetuning", "Fine-tuning with the batch's [CLS] repaired", rows)


def _cls_table(found: ArmResults) -> Table:
    columns = {
        "isotropy, last layer": ("last", "isotropy"),
        "as the head reads it": ("read", "isotropy"),
        "repaired afterwards": ("offline", "isotropy"),
        "share of the mean": ("mean_share",),
    }
    rows = []
    for task in found.tasks:
        for model in found.models:
            for how, words in TUNINGS.items():
                key = arm_key("finetune", task, model, how)
                ours = {column: found.value(key, *names) for column, names in columns.items()}
                rows += _optional_row(f"{task}, {model}, {words}", ours, {}, model)
    note = "The share of the mean is the squared length of the mean vector over the vectors' mean squared length."
    title = "The dev set's [CLS] vectors after fine-tuning"
    return Table("cls", title, list(columns), rows, "slide CLS Token Analysis", note, row_name="task, model and arm")


# figures


def _isotropy_similarity_figure(found: ArmResults) -> Figure:
    panels = []
    for model in found.models:
        series = []
        for variant, label in VARIANTS.items():
            pairs = [
                tuple(found.similarity(model, name, variant, "same", each) for each in ("log_isotropy", "spearman"))
                for name in found.sets
            ]
            dots = [(x.mean, y.mean) for x, y in pairs if x is not None and y is not None]
            series += [Series(label, [x for x, _ in dots], [y for _, y in dots], dots=True)] if dots else []
        panels += [Panel(model, series, "log₁₀ isotropy", "Spearman, %")] if series else []
    words = "A dot for each set of pairs; each variant is fitted on the sentences that it scores."
    return Figure("isotropy-similarity", "Isotropy of the tokens and similarity of sentences", words, panels)


def _iterate_arms(found: ArmResults, kind: str) -> Iterable[tuple[str, dict[str, Any]]]:
    for model in found.models:
        yield from ((model, each) for key, each in found.results.items() if key.startswith(f"{kind}/{model}/"))


def _layers_figure(found: ArmResults) -> Figure:
    arms = list(_iterate_arms(found, "layers"))
    panels = []
    for name, title, sign in (("cosine", "mean cosine", 1), ("log_isotropy", "−log₁₀ isotropy", -1)):
        lines = [
            Series(model, [row["layer"] for row in each["layers"]], [sign * row[name] for row in each["layers"]])
            for model, each in arms
        ]
        panels += [Panel(f"Tokens, {title}", lines, "layer", title, log_y=sign < 0)] if lines else []
    words = (
        "Layer 0 is what goes into the first layer. −log₁₀ is how many powers of ten the isotropy is below 1: some "
        "layers of decoders have a few values that are huge, and then it is many thousands."
    )
    return Figure(
        "layers", "Tokens of a pre-trained model, layer by layer", words, panels, "slide Pre-trained BERT Isotropy"
    )


def _scatter_figure(found: ArmResults) -> Figure:
    panels = []
    for model, each in _iterate_arms(found, "layers"):
        groups = {"cluster": [f"{number:02d}" for number in each["clusters"]]}
        panels += [Scatter(f"{model}, {words}", each[words], groups) for words in ("before", "after")]
    words = f"The two first principal directions of last-layer tokens, before and after {VARIANTS[REPAIR]}."
    title = "Where tokens lie"
    return Figure("clouds", title, words, panels, "slide Pre-trained BERT Word Representations")


def _cls_layers_figure(found: ArmResults) -> Figure:
    panels = []
    for task in found.tasks:
        for model in found.models:
            series = []
            for how, words in TUNINGS.items():
                key = f"{arm_key('finetune', task, model, how)}/seed-"
                runs = [each["layers"] for name, each in found.results.items() if name.startswith(key)]
                if runs:
                    heights = [Value.of([run[i]["log_isotropy"] for run in runs]) for i in range(len(runs[0]))]
                    series.append(_band_series(words, [row["layer"] for row in runs[0]], heights))
            panels += [Panel(f"{task}, {model}", series, "layer", "log₁₀ isotropy")] if series else []
    words = "Of the dev set, before the repair that the head reads; the band is a standard deviation over the seeds."
    title = "Isotropy of [CLS] in each layer after fine-tuning"
    return Figure("cls-layers", title, words, panels, "slide Fine-tuning analysis")


def _band_series(name: str, x: Sequence[float], heights: Sequence[Value]) -> Series:
    low, high = ([each.mean + side * each.std for each in heights] for side in (-1, 1))
    banded = all(each.std == each.std for each in heights)
    return Series(name, x, [each.mean for each in heights], low if banded else None, high if banded else None)


# what differs


def _notes(found: ArmResults, setting: Setting) -> list[str]:
    notes = [
        LIMITS_NOTE,
        f"The slides measure {_BERT}; here: {', '.join(found.models)}.",
        "Correlations are of all pairs of a set together; the slides do not say whether a year's parts are scored one "
        f"by one{_format_subset_difference(found)}.",
        "Fitted on the sentences that it scores is what the authors' notebook does; fitted on a train split is on STS "
        "2012's train part for the years (a fifth to a half of their sentences are in STS-B's), and on STS-B's for "
        "STS-B and SICK (three quarters of whose sentences are in SICK's own). A tenth of STS-B's sentences that are "
        "scored, and a twentieth of STS 2012's, are in these train splits too, nearly all of them in other "
        f"pairs{_format_train_fit_difference(found)}.",
        *(
            ["SICK is read from the hub, whose test split is all of it, 9,927 pairs; its authors' has 4,927."]
            if "sick" in setting["sets"] and setting.data.folder is None
            else []
        ),
        "The isotropy takes each eigenvector with both signs, which is defined; the authors' code takes the one that "
        f"the solver gives, and the arms' isotropy_of_one_sign is that{_format_one_sign_ratio(found)}.",
        "Partition isotropy depends on the scale of the states, which differs between models: the larger the states, "
        "the lower it is, repaired or not. It compares variants within a model; limits such as 0.4 fit BERT's scale.",
        "Token states are stored in float16; a repair that is fitted on a train split learns its clusters from 50,000 "
        "tokens at most.",
        f"Mean + PCA takes out {setting['components']} directions; the slides do not say how many they took.",
    ]
    limits = {
        "pairs": "pairs of each set",
        "sst2_rows": "rows of SST-2 to learn from",
        "tuning_rows": "rows of each task to fine-tune with",
    }
    if "sst2" in setting["parts"]:
        notes.append(
            "The slides do not describe their classifier of SST-2, whose accuracy is near chance; ours is a logistic "
            "regression on standardised mean token states, with clusters fitted on its train rows, and isotropy of "
            "dev. Which sentences dev happens to hold is in no interval."
        )
    if "finetune" in setting["parts"]:
        notes += _tuning_notes(setting)
    if setting["pairs"]:
        notes.append(
            "The fewer pairs, the fewer sentences a cluster holds; fitted on the sentences that are scored, it takes "
            "out what two alike sentences have in common, the more so."
        )
    return notes + [f"At most {setting[name]:,} {words}." for name, words in limits.items() if setting[name]]


def _tuning_notes(setting: Setting) -> list[str]:
    return [
        f"The slides do not tell a batch's clusters and directions: {setting['batch_clusters']} and "
        f"{setting['batch_components']} here, in batches of 32, and of 64 when scored; gradients pass the repair with "
        "clusters, means and directions held fixed.",
        f"Fine-tuning has {setting['epochs']:g} epochs (the slides tell two, for the baseline) and a learning rate of "
        f"{setting['learning_rate']:g} after 10% of warm-up, falling by a cosine; the slides tell neither rate nor "
        "batch. WiC's word stands before its first sentence, and [CLS] is classified.",
        *speedup_notes(setting),
    ]


def _format_subset_difference(found: ArmResults) -> str:
    apart = []
    for model in found.models:
        for name in found.sets:
            whole = found.similarity(model, name, "none", "same", "spearman")
            parts = found.similarity(model, name, "none", "same", "spearman_of_subsets")
            if whole is not None and parts is not None and parts.mean == parts.mean:
                apart.append(parts.mean - whole.mean)
    if not apart:
        return ""
    low, high = format_number(min(apart), 1), format_number(max(apart), 1)
    return f"; the mean over parts is {low} to {high} points from it for states as they are"


def _format_one_sign_ratio(found: ArmResults) -> str:
    """How far the isotropy as published is from that of both signs."""
    arms = [found.results.get(arm_key("sts", model, name, "none"), {}) for model in found.models for name in found.sets]
    powers = [
        math.log10(each["isotropy_of_one_sign"]) - each["log_isotropy"]
        for each in arms
        if each.get("isotropy_of_one_sign", 0) > 0
    ]
    if not powers:
        return ""
    low, high = (format_number(10**each, 1) if each < 300 else f"10^{each:.0f}" for each in (min(powers), max(powers)))
    return f": {low} to {high} times as large for states as they are"


def _format_train_fit_difference(found: ArmResults) -> str:
    apart = []
    for model in found.models:
        for name in found.sets:
            same, train = (found.similarity(model, name, REPAIR, fit, "spearman") for fit in FITS)
            if same is not None and train is not None:
                apart.append(train.mean - same.mean)
    if not apart:
        return ""
    return (
        f"; its Spearman is {format_number(fmean(apart), 1)} points from the other's on average, "
        f"{format_number(min(apart), 1)} to {format_number(max(apart), 1)}"
    )
