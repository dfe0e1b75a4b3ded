"""Tables and figures of the study of "Isotropic word representation in BERT"."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from isoscope.studies.finetuned import speedup_notes
from isoscope.studies.formatting import format_number, format_range
from isoscope.studies.isotropic_word_representation.claims import LIMITS_NOTE, make_verdicts
from isoscope.studies.isotropic_word_representation.measure import FITS, REPAIR, VARIANTS, arm_key
from isoscope.studies.isotropic_word_representation.tuned import TUNINGS
from isoscope.studies.study import Figure, Outcome, Panel, Row, Scatter, Series, Table, Value

if TYPE_CHECKING:
    from isoscope.studies.study import Number, Published, Results, Setting

_BERT = "bert-base-uncased"
_SETS = {"STS2015": "sts15", "STS-B": "stsb"}
"""The names of the compared sets in the slides, and our names for them."""
_MEASURES = ("Pearson", "Spearman", "isotropy")


@dataclass(frozen=True)
class ArmResults:
    """The results of the arms, with the models, sets and tasks of the run."""

    results: Results
    models: tuple[str, ...]
    sets: tuple[str, ...]
    tasks: tuple[str, ...]

    def value(self, key: str, *names: str) -> Value | None:
        """Return a result of an arm, aggregated over its seeds; None if the arm is not finished."""
        seen = self.values_by_seed(key, *names)
        return Value.of(seen.values()) if seen else None

    def values_by_seed(self, key: str, *names: str) -> dict[str, float]:
        """Return a result of an arm for each seed (the suffix of the arm's key; "" for an arm without seeds)."""
        seen = {}
        for name, each in self.results.items():
            if name == key or name.startswith(f"{key}/seed-"):
                inner: Any = each
                for part in names:
                    inner = inner.get(part)  # arms of earlier versions contain fewer numbers
                    if inner is None:
                        break
                else:
                    seen[name.removeprefix(key)] = float(inner)
        return seen

    def similarity(self, model: str, name: str, variant: str, fit: str, measure: str) -> Value | None:
        """Return a result on a set of pairs, given the variant and the data on which it was fitted."""
        return self.value(arm_key("sts", model, name, variant, "" if variant == "none" else fit), measure)


def make_outcome(published: Published, setting: Setting, arms: Results) -> Outcome:
    """Return the tables, figures and verdicts for the finished arms."""
    models = tuple(each.name for each in setting.models)
    results = ArmResults(arms, models, setting["sets"], setting["tasks"])
    tables = [
        *_overview_tables(results),
        *(
            table
            for model in models
            for table in (_variants_table(results, published, model), _sets_table(results, published, model))
        ),
        _unit_length_table(results),
        _classification_table(results, published),
        _finetuning_table(results, published),
        _cls_table(results),
    ]
    figures = [
        _isotropy_similarity_figure(results),
        _layers_figure(results),
        _scatter_figure(results),
        _cls_layers_figure(results),
    ]
    return Outcome(
        [each for each in tables if each.rows],
        [each for each in figures if each.panels],
        make_verdicts(published, results),
        _notes(results, setting),
    )


def _optional_row(name: str, ours: Mapping[str, Value | None], theirs: Mapping[str, Number], model: str) -> list[Row]:
    """Return a list with the row, or an empty list if we have no number for it."""
    known = {column: value for column, value in ours.items() if value is not None}
    return [Row(name, known, theirs, "" if model == _BERT else _BERT)] if known else []


def _overview_tables(results: ArmResults) -> list[Table]:
    tables = []
    for fit, words in FITS.items():
        rows = []
        for model in results.models:
            means = {}
            for variant, label in VARIANTS.items():
                each = [results.similarity(model, name, variant, fit, "spearman") for name in results.sets]
                there = [value.mean for value in each if value is not None]
                if there and (variant == "none" or len(there) == len(results.sets)):
                    means[label] = Value.of(fmean(there))
            rows += [Row(model, means)] if len(means) > 1 else []
        title = f"Spearman, mean over {len(results.sets)} sets, repairs fitted on {words}"
        tables.append(Table(f"overview-{fit}", title, list(VARIANTS.values()), rows, digits=2, row_name="model"))
    return tables


def _variants_table(results: ArmResults, published: Published, model: str) -> Table:
    columns = [f"{name} {measure}" for name in _SETS for measure in _MEASURES]
    rows = []
    for fit, words in FITS.items():
        for variant, label in VARIANTS.items():
            if variant == "none" and fit != "same":
                continue
            ours = {
                f"{name} {measure}": results.similarity(model, key, variant, fit, measure.lower())
                for name, key in _SETS.items()
                for measure in _MEASURES
            }
            theirs = published.numbers("variants", variant, columns) if fit == "same" else {}
            rows += _optional_row(label if fit == "same" else f"{label}, fitted on {words}", ours, theirs, model)
    return _published_table(published, "variants", f"variants-{model}", f"Variants of the repair: {model}", rows)


def _published_table(published: Published, key: str, own: str, title: str, rows: list[Row], *more: str) -> Table:
    columns = [*published.columns(key), *more]
    first = published.first(key)
    return Table(own, title, columns, rows, first.where, first.note, digits=2, row_name=_ROW_NAMES[key])


_ROW_NAMES = {"variants": "variant", "sets": "set", "classification": "model", "finetuning": "task and model"}


def _sets_table(results: ArmResults, published: Published, model: str) -> Table:
    rows, ways = [], {"unrepaired": ("none", "same"), "repaired": (REPAIR, "same"), "train-fitted": (REPAIR, "train")}
    for name in results.sets:
        ours = {
            f"{way} {measure}": results.similarity(model, name, variant, fit, measure.lower())
            for way, (variant, fit) in ways.items()
            for measure in _MEASURES
        }
        table = "notebook" if name == "stsb-dev" else "sets"
        rows += _optional_row(name, ours, published.numbers(table, name, ours.keys()), model)
    more = [f"train-fitted {measure}" for measure in _MEASURES]
    return _published_table(
        published, "sets", f"sets-{model}", f"Raw and repaired states, by set: {model}", rows, *more
    )


def _unit_length_table(results: ArmResults) -> Table:
    """Return a table of IsoScore and of partition isotropy, for the original states and for states of unit length."""
    measures = {
        "isotropy": "isotropy",
        "isotropy at unit length": "isotropy_at_unit_length",
        "IsoScore": "isoscore",
    }
    rows: list[Row] = []
    for model in results.models:
        for name in results.sets:
            ours = {
                f"{word} {shown}": results.similarity(model, name, variant, "same", measure)
                for word, variant in (("unrepaired", "none"), ("repaired", REPAIR))
                for shown, measure in measures.items()
            }
            if ours["unrepaired isotropy at unit length"] is not None:
                rows += _optional_row(f"{model}, {name}", ours, {}, model)
    note = (
        'Partition isotropy depends on the scale of the states. For the columns "at unit length", the states are '
        "divided by their root-mean-square length, so that models can be compared. IsoScore does not depend on "
        "scale. Repairs are fitted on the scored sentences. Arms of earlier versions, which did not measure this, "
        "are not listed."
    )
    title = "Isotropy that does not depend on scale"
    columns = [f"{word} {shown}" for word in ("unrepaired", "repaired") for shown in measures]
    return Table("unit-length", title, columns, rows, note=note, digits=3, row_name="model and set")


def _classification_table(results: ArmResults, published: Published) -> Table:
    columns = {"unrepaired": "none", "repaired": REPAIR}
    columns |= {label: variant for variant, label in VARIANTS.items() if variant not in columns.values()}
    rows: list[Row] = []
    for model in results.models:
        ours = {
            f"{word} {measure}": results.value(arm_key("sst2", model, variant), measure)
            for word, variant in columns.items()
            for measure in ("accuracy", "isotropy")
        }
        rows += _optional_row(model, ours, published.numbers("classification", "sst2", ours.keys()), model)
    more = [f"{word} accuracy" for word in list(columns)[2:]]
    return _published_table(
        published, "classification", "classification", "SST-2 with a linear classifier", rows, *more
    )


def _finetuning_table(results: ArmResults, published: Published) -> Table:
    rows = []
    for task in results.tasks:
        for model in results.models:
            ours = {}
            for how, word in (("none", "unrepaired"), ("repair", "repaired")):
                key = arm_key("finetune", task, model, how)
                ours[f"{word} accuracy"] = results.value(key, "accuracy")
                ours[f"{word} isotropy"] = results.value(key, "read", "isotropy")
            rows += _optional_row(f"{task}, {model}", ours, published.numbers("finetuning", task, ours.keys()), model)
    return _published_table(
        published, "finetuning", "finetuning", "Fine-tuning with repaired [CLS] vectors in each batch", rows
    )


def _cls_table(results: ArmResults) -> Table:
    columns = {
        "isotropy, last layer": ("last", "isotropy"),
        "at the head's input": ("read", "isotropy"),
        "with a repair after fine-tuning": ("offline", "isotropy"),
        "share of the mean": ("mean_share",),
    }
    rows = []
    for task in results.tasks:
        for model in results.models:
            for how, words in TUNINGS.items():
                key = arm_key("finetune", task, model, how)
                ours = {column: results.value(key, *names) for column, names in columns.items()}
                rows += _optional_row(f"{task}, {model}, {words}", ours, {}, model)
    note = "The share of the mean is the squared length of the mean vector divided by the vectors' mean squared length."
    title = "[CLS] vectors of the dev set after fine-tuning"
    return Table("cls", title, list(columns), rows, "slide CLS Token Analysis", note, row_name="task, model and arm")


# figures


def _isotropy_similarity_figure(results: ArmResults) -> Figure:
    panels = []
    for model in results.models:
        series = []
        for variant, label in VARIANTS.items():
            pairs = [
                tuple(results.similarity(model, name, variant, "same", each) for each in ("log_isotropy", "spearman"))
                for name in results.sets
            ]
            dots = [(x.mean, y.mean) for x, y in pairs if x is not None and y is not None]
            series += [Series(label, [x for x, _ in dots], [y for _, y in dots], dots=True)] if dots else []
        panels += [Panel(model, series, "log₁₀ isotropy", "Spearman, %")] if series else []
    words = "Each dot is a set of pairs. Repairs are fitted on the scored sentences."
    return Figure("isotropy-similarity", "Isotropy of the tokens and similarity of sentences", words, panels)


def _iterate_arms(results: ArmResults, kind: str) -> Iterable[tuple[str, dict[str, Any]]]:
    for model in results.models:
        yield from ((model, each) for key, each in results.results.items() if key.startswith(f"{kind}/{model}/"))


def _layers_figure(results: ArmResults) -> Figure:
    arms = list(_iterate_arms(results, "layers"))
    panels = []
    for name, title, sign in (("cosine", "mean cosine", 1), ("log_isotropy", "−log₁₀ isotropy", -1)):
        lines = [
            Series(model, [row["layer"] for row in each["layers"]], [sign * row[name] for row in each["layers"]])
            for model, each in arms
        ]
        panels += [Panel(f"Tokens, {title}", lines, "layer", title, log_y=sign < 0)] if lines else []
    words = (
        "Layer 0 is the input of the first layer. −log₁₀ isotropy is the number of orders of magnitude by which "
        "isotropy is below 1. It is many thousands in decoder layers that contain a few very large values."
    )
    return Figure(
        "layers", "Tokens of a pre-trained model, layer by layer", words, panels, "slide Pre-trained BERT Isotropy"
    )


def _scatter_figure(results: ArmResults) -> Figure:
    panels = []
    for model, each in _iterate_arms(results, "layers"):
        groups = {"cluster": [f"{number:02d}" for number in each["clusters"]]}
        panels += [Scatter(f"{model}, {words}", each[words], groups) for words in ("before", "after")]
    words = (
        "The figure shows last-layer tokens projected onto their first two principal components, before and after "
        f"{VARIANTS[REPAIR]}."
    )
    title = "Tokens before and after the repair"
    return Figure("clouds", title, words, panels, "slide Pre-trained BERT Word Representations")


def _cls_layers_figure(results: ArmResults) -> Figure:
    panels = []
    for task in results.tasks:
        for model in results.models:
            series = []
            for how, words in TUNINGS.items():
                key = f"{arm_key('finetune', task, model, how)}/seed-"
                runs = [each["layers"] for name, each in results.results.items() if name.startswith(key)]
                if runs:
                    heights = [Value.of([run[i]["log_isotropy"] for run in runs]) for i in range(len(runs[0]))]
                    series.append(Series.over_seeds(words, [row["layer"] for row in runs[0]], heights))
            panels += [Panel(f"{task}, {model}", series, "layer", "log₁₀ isotropy")] if series else []
    words = (
        "Isotropy is measured on the dev set, before the repair at the head's input. The band is one standard "
        "deviation over the seeds."
    )
    title = "Isotropy of [CLS] in each layer after fine-tuning"
    return Figure("cls-layers", title, words, panels, "slide Fine-tuning analysis")


# notes


def _notes(results: ArmResults, setting: Setting) -> list[str]:
    notes = [
        LIMITS_NOTE,
        f"The slides use {_BERT}; this run uses {', '.join(results.models)}.",
        "Correlations are computed over all pairs of a set; the slides do not say whether the subsets of a year are "
        f"scored separately{_format_subset_difference(results)}.",
        "The authors' notebook fits the repair on the scored sentences. This study also fits it on a train split. "
        "For STS 2012 to 2016, this is the train split of STS 2012, because the train split of STS-B contains a "
        "fifth to a half of their sentences. For STS-B and SICK, it is the train split of STS-B, because SICK's own "
        "train split contains three quarters of SICK's sentences. Some overlap remains: a tenth of the scored "
        "sentences of STS-B, and a twentieth of those of STS 2012, also occur in these train splits. Nearly all "
        f"of them occur there in different pairs{_format_train_fit_difference(results)}.",
        *(
            [
                "SICK is read from the Hugging Face Hub, whose test split contains all 9,927 pairs; the authors' test "
                "split contains 4,927."
            ]
            if "sick" in setting["sets"] and setting.data.folder is None
            else []
        ),
        "We compute the isotropy with both signs of each eigenvector, so that it is well defined. The authors' code "
        f"uses the sign that the solver returns (`isotropy_of_one_sign` in the arms){_format_one_sign_ratio(results)}.",
        "Partition isotropy depends on the scale of the states, which differs between models: larger states have a "
        "lower isotropy, whether or not they are repaired. Compare variants only within a model; thresholds such as "
        "0.4 are suited to BERT's scale.",
        "Token states are stored in float16. A repair that is fitted on a train split uses at most 50,000 tokens to "
        "find its clusters.",
        f"Mean + PCA removes {setting['components']} principal components; the slides do not say how many.",
    ]
    limits = {
        "pairs": "pairs of each set",
        "sst2_rows": "training rows of SST-2",
        "tuning_rows": "training rows of each task",
    }
    if "sst2" in setting["parts"]:
        notes.append(
            "The slides do not describe their SST-2 classifier, which scores near chance. Ours is a logistic "
            "regression on standardized mean token states, with clusters fitted on its training rows. Isotropy is "
            "measured on the dev set."
        )
    if "finetune" in setting["parts"]:
        notes += _tuning_notes(setting)
    if setting["pairs"]:
        notes.append(
            "With fewer pairs, a cluster contains fewer sentences. A repair that is fitted on the scored sentences "
            "then removes even more of what two similar sentences share."
        )
    return notes + [
        f"This run uses at most {setting[name]:,} {words}." for name, words in limits.items() if setting[name]
    ]


def _tuning_notes(setting: Setting) -> list[str]:
    return [
        "The slides do not say how many clusters and principal components they use for a batch. This study uses "
        f"{setting['batch_clusters']} and {setting['batch_components']}, respectively, in batches of 32 (64 for "
        "scoring). Gradients pass through the repair; its clusters, means and components are treated as constants.",
        f"Fine-tuning runs for {setting['epochs']:g} epochs (the slides use two for the baseline). The learning rate "
        f"is {setting['learning_rate']:g} after 10% warm-up, with cosine decay; the slides give neither the learning "
        "rate nor the batch size. For WiC, the target word is placed before the first sentence. The head classifies "
        "[CLS].",
        *speedup_notes(setting),
    ]


def _format_subset_difference(results: ArmResults) -> str:
    """Return, as text, how much the mean over subsets differs from the correlation over all pairs."""
    differences = []
    for model in results.models:
        for name in results.sets:
            overall = results.similarity(model, name, "none", "same", "spearman")
            subsets = results.similarity(model, name, "none", "same", "spearman_of_subsets")
            if overall is not None and subsets is not None and not math.isnan(subsets.mean):
                differences.append(subsets.mean - overall.mean)
    if not differences:
        return ""
    return f". For raw states, the mean over subsets differs by {format_range(differences, 1)} points"


def _format_one_sign_ratio(results: ArmResults) -> str:
    """Return, as text, the ratio of the isotropy with one sign (as published) to the isotropy with both signs."""
    arms = [
        results.results.get(arm_key("sts", model, name, "none"), {})
        for model in results.models
        for name in results.sets
    ]
    powers = [
        math.log10(each["isotropy_of_one_sign"]) - each["log_isotropy"]
        for each in arms
        if each.get("isotropy_of_one_sign", 0) > 0
    ]
    if not powers:
        return ""
    low, high = (format_number(10**each, 1) if each < 300 else f"10^{each:.0f}" for each in (min(powers), max(powers)))
    return f". For raw states, the authors' value is {low} to {high} times as large"


def _format_train_fit_difference(results: ArmResults) -> str:
    """Return, as text, how much fitting on a train split changes Spearman's ρ."""
    changes = []
    for model in results.models:
        for name in results.sets:
            same, train = (results.similarity(model, name, REPAIR, fit, "spearman") for fit in FITS)
            if same is not None and train is not None:
                changes.append(train.mean - same.mean)
    if not changes:
        return ""
    mean = format_number(fmean(changes), 1)
    return f". Fitting on a train split changes Spearman's ρ by {mean} points on average ({format_range(changes, 1)})"
