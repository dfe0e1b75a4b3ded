"""What the layers' measurements come to: tables beside the published numbers, figures, notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from isoscope._core.errors import plural
from isoscope.studies.clusters_and_manifolds.claims import make_verdicts
from isoscope.studies.clusters_and_manifolds.measure import (
    METRICS,
    TEXTBOOK_LID_FACTOR,
    LayerResults,
    group_by,
    mean_lid_by_rows,
)
from isoscope.studies.study import Figure, Outcome, Panel, Row, Scatter, Series, Table, Value

if TYPE_CHECKING:
    from isoscope.studies.study import Number, Published, Results, Setting

_LID = "LID, cosine"
_PEERS = {
    "bert-base-uncased": "BERT",
    "bert-base-cased": "BERT",
    "distilbert-base-uncased": "D-BERT",
    "distilbert-base-cased": "D-BERT",
    "openai-gpt": "GPT",
    "gpt2": "GPT2",
}
_SIMILARITIES = {
    "S_inter": "inter, raw",
    "S_intra": "intra, raw",
    "S_inter in clusters": "inter, clusters",
    "S_intra in clusters": "intra, clusters",
}


def make_outcome(published: Published, setting: Setting, results: Results) -> Outcome:
    """All that is shown of the arms that are done."""
    found = LayerResults.of(results)
    claims, observations = make_verdicts(published, found)
    return Outcome(_tables(published, found), _figures(found), claims, _notes(setting, found), observations)


# tables


def _tables(published: Published, found: LayerResults) -> list[Table]:
    similarities = {
        "S_inter": _value_getter("inter, raw"),
        "one mean out": _value_getter("inter, one mean"),
        "clusters' means out": _value_getter("inter, centred"),
        "inside clusters": _value_getter("inter, clusters"),
        "S_intra": _value_getter("intra, raw"),
        "S_intra, one mean out": _value_getter("intra, one mean"),
        "S_intra, clusters' means out": _value_getter("intra, centred"),
        "S_intra inside clusters": _value_getter("intra, clusters"),
        "clusters": _value_getter("clusters"),
        "silhouette": _value_getter("silhouette"),
    }
    directions = {
        "three directions hold": lambda each: sum(each["explained"]),
        "place in the window": _value_getter("along, place"),
        "frequency": _value_getter("along, frequency"),
        "kind of token": _value_getter("along, kind"),
        "cluster": _value_getter("along, cluster"),
    }
    return [
        _lid_table(published, found),
        _layer_means_table(
            "similarities",
            "How alike tokens are, as they are and with means taken out",
            "Means over the layers. The paper gives these in a figure alone. Inside clusters, as the paper has it, "
            "each cluster is measured by itself and counts as one, however small: two tokens less their mean are "
            "opposite, which drags the average below zero. With the clusters' means out all is measured as one cloud. "
            "The silhouette is the highest of those for 2 to 15 clusters; below 0.1 all is one cluster.",
            similarities,
            found,
        ),
        _layer_means_table(
            "directions",
            "What the first three principal directions hold and follow",
            "Means over the layers. First the share of all variance that they hold; then the share of the variance "
            "along them that lies between sixteenths of the window, eight ranges of frequency, kinds of token "
            "(word, continuation, number, symbol), and clusters.",
            directions,
            found,
        ),
    ]


def _lid_table(published: Published, found: LayerResults) -> Table:
    """Our local dimensions beside the table of the paper."""
    rows = []
    for (corpus, model), layers in found.clouds().items():
        peer = _PEERS.get(model, "GPT2" if layers[0]["kind"] == "decoder" else "BERT")
        rows.append(_lid_row(published, f"{model}, {corpus}", layers, peer))
    for model, seeds in found.seeds_by_word_vectors().items():
        rows.append(_lid_row(published, model, seeds, _static_peer(model, int(seeds[0]["width"]))))
    return Table(
        "lid",
        "Average local intrinsic dimension",
        ["n, millions", "width", _LID, "LID, Euclidean", "textbook, cosine", "textbook, Euclidean"],
        rows,
        where="Table 3",
        note="Means over the layers. The first two LIDs are on the authors' scale, half of the textbook's. LID depends "
        f"on the number of rows n{_format_row_ratio(rows)}: see the figure of LID against n. "
        f"{next((each.note for each in published.tables['lid'].values()), '')}",
        digits=2,
        row_name="model",
    )


def _format_row_ratio(rows: Sequence[Row]) -> str:
    """How many times as many rows the paper has, in words."""
    column = "n, millions"
    times = [row.published[column].value / row.ours[column].mean for row in rows if column in row.published]
    return f", of which the paper has {min(times):.1f} to {max(times):.1f} times as many" if times else ""


def _lid_row(published: Published, name: str, rows: list[dict[str, Any]], peer: str | None) -> Row:
    ours = {"n, millions": Value.of(rows[0]["rows"] / 1e6), "width": Value.of(float(rows[0]["width"]))}
    for metric, words in zip(METRICS, ("cosine", "Euclidean"), strict=True):
        ours[f"LID, {words}"] = _value_over_seeds(rows, _value_getter(f"lid, {metric}"))
        ours[f"textbook, {words}"] = _value_over_seeds(rows, _value_getter(f"lid, {metric}", TEXTBOOK_LID_FACTOR))
    theirs: dict[str, Number] = {}
    if peer is not None:
        there = {column: published.number("lid", peer, column) for column in published.columns("lid")}
        theirs = {column: each for column, each in there.items() if each is not None}
    return Row(name, ours, theirs, "" if peer is None else peer)


def _static_peer(model: str, width: int) -> str | None:
    if "news" in model.lower():
        return "GNEWS"
    return {100: "GloVe", 300: "GloVe-2M"}.get(width) if "glove" in model.lower() else None


def _layer_means_table(
    key: str, title: str, note: str, columns: Mapping[str, Callable[[dict[str, Any]], float]], found: LayerResults
) -> Table:
    rows = [
        Row(f"{model}, {corpus}", {name: _value_over_seeds(layers, value) for name, value in columns.items()})
        for (corpus, model), layers in found.clouds().items()
    ]
    return Table(key, title, list(columns), rows, note=note, row_name="model")


def _value_getter(key: str, times: float = 1.0) -> Callable[[dict[str, Any]], float]:
    return lambda each: times * each[key]


def _value_over_seeds(rows: Sequence[dict[str, Any]], value: Callable[[dict[str, Any]], float]) -> Value:
    """The mean over layers, for each seed."""
    return Value.of([fmean(map(value, own)) for own in group_by(rows, lambda each: each["seed"]).values()])


# figures


def _figures(found: LayerResults) -> list[Figure]:
    if not found.layers:
        return []
    corpora = list(group_by(found.layers, lambda each: each["corpus"]))
    return [
        *(_similarity_figure(found, corpus) for corpus in corpora),
        _layer_figure(
            "clusters", "Clusters by layer", "K by silhouette; 1 where none reaches 0.1.", "clusters", "clusters", found
        ),
        *(
            _layer_figure(
                f"lid-{metric}",
                f"Local intrinsic dimension by layer, {metric.capitalize()}",
                "On the authors' scale, half of the textbook's.",
                f"lid, {metric}",
                "LID",
                found,
                where="Figure 9" if metric == "euclidean" else "",
            )
            for metric in METRICS
        ),
        _lid_by_rows_figure(found),
        _frequency_figure(found),
        *_scatter_figures(found),
    ]


def _similarity_figure(found: LayerResults, corpus: str) -> Figure:
    panels = []
    for (own, model), layers in found.clouds().items():
        if own == corpus:
            series = [_layer_series(name, layers, _value_getter(at)) for name, at in _SIMILARITIES.items()]
            panels.append(Panel(model, series, "layer", "mean cosine", zero=True))
    caption = "As they are, and inside clusters with each cluster's mean taken out. Layer 0 is the first block."
    return Figure(f"similarities-{corpus}", f"S_inter and S_intra by layer, {corpus}", caption, panels)


def _layer_figure(
    key: str, title: str, caption: str, at: str, y_name: str, found: LayerResults, where: str = ""
) -> Figure:
    panels = []
    for model, layers in found.models().items():
        own = group_by(layers, lambda each: each["corpus"])
        series = [_layer_series(corpus, some, _value_getter(at)) for corpus, some in own.items()]
        panels.append(Panel(model, series, "layer", y_name, zero=True))
    return Figure(key, title, caption, panels, where)


def _layer_series(name: str, layers: Sequence[dict[str, Any]], value: Callable[[dict[str, Any]], float]) -> Series:
    """A value by layer, over the seeds."""
    by_layer = group_by(layers, lambda each: int(each["layer"]))
    means = [fmean(map(value, own)) for own in by_layer.values()]
    ends = [[min(map(value, own)) for own in by_layer.values()], [max(map(value, own)) for own in by_layer.values()]]
    several = any(len(own) > 1 for own in by_layer.values())
    return Series(name, [float(each) for each in by_layer], means, *(ends if several else ()))


def _lid_by_rows_figure(found: LayerResults) -> Figure:
    """LID of the model's mean layer against the number of rows, with static vectors in each panel."""
    static = [_lid_by_rows_series(model, seeds, dashed=True) for model, seeds in found.seeds_by_word_vectors().items()]
    panels = []
    for model, layers in found.models().items():
        own = group_by(layers, lambda each: each["corpus"])
        series = [_lid_by_rows_series(corpus, some) for corpus, some in own.items()]
        panels.append(Panel(model, [*series, *static], "rows", "LID", log_x=True, zero=True))
    caption = (
        "LID by cosine on the authors' scale, mean over the layers, for so many random rows of a layer. It depends on "
        "the number of rows: only clouds of equal numbers can be compared. Dashed: static word vectors."
    )
    return Figure("lid-by-rows", "Local intrinsic dimension against the number of rows", caption, panels)


def _lid_by_rows_series(name: str, rows: Sequence[dict[str, Any]], *, dashed: bool = False) -> Series:
    sizes = mean_lid_by_rows(rows)
    return Series(name, [float(n) for n in sizes], list(sizes.values()), dashed=dashed)


def _frequency_figure(found: LayerResults) -> Figure:
    panels = []
    for (corpus, model), layers in found.clouds().items():
        series = [
            Series(
                f"{words} layer",
                [each[0] for each in layer["distance by frequency"]],
                [each[1] for each in layer["distance by frequency"]],
            )
            for words, layer in zip(
                ("first", "middle", "last"), _first_middle_last(_select_first_seed(layers)), strict=False
            )
        ]
        panels.append(Panel(f"{model}, {corpus}", series, "frequency in the corpus, power of ten", "distance"))
    caption = (
        "How far tokens of eight ranges of frequency lie from the mean of the layer on average, in mean distances: "
        "1 everywhere if frequency does not matter."
    )
    return Figure("frequency", "Distance from the centre by frequency", caption, panels)


def _first_middle_last(layers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [layers[0], layers[len(layers) // 2], layers[-1]]


def _select_first_seed(layers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    first = layers[0]["seed"]
    return [each for each in layers if each["seed"] == first]


def _scatter_figures(found: LayerResults) -> list[Figure]:
    figures = []
    for (corpus, model), layers in found.clouds().items():
        panels = [
            Scatter(
                f"layer {each['layer']}: three directions hold {100 * sum(each['explained']):.0f}% of the variance",
                each["cloud"]["points"],
                {
                    "cluster": each["cloud"]["cluster"],
                    "frequency, power of ten": each["cloud"]["frequency"],
                    "kind of token": each["cloud"]["kind"],
                    "place in the window": each["cloud"]["place"],
                },
            )
            for each in _select_first_seed(layers)
            if "cloud" in each
        ]
        if panels:
            caption = "Tokens along the first two principal directions, and along three of them seen from aside."
            title = f"Principal directions of {model}, {corpus}"
            figures.append(Figure(f"cloud-{corpus}-{model}", title, caption, panels))
    return figures


# notes


def _notes(setting: Setting, found: LayerResults) -> list[str]:
    notes = [
        f"The {setting['part']} part of each corpus is read line after line in stretches of 100,000 characters, cut "
        f"into windows of {setting['window']} tokens (fewer where a model reads fewer) that do not overlap; "
        f"{setting['tokens']:,} tokens in randomly chosen windows are measured. Frequencies are counted in all of it.",
        "Special tokens ([CLS], [SEP], <s>) are read by the model and are not measured. The corpora's own <unk> is "
        "left in the text: the unknown token where a tokenizer spells it so, pieces elsewhere.",
        "Layer 0 is what comes out of the first block; the last one is after the model's final norm.",
        "S_inter is averaged over all pairs of types, which is what the paper's draw of one instance for each type "
        "estimates; S_intra over all pairs of instances, where the paper draws at most 1,000 of a type.",
        f"K-means sees {setting['cluster_sample']:,} rows at most, with {plural(setting['restarts'], 'start')}; other "
        "rows go to the nearest mean. The numbers of clusters are 2 to 15, one if no silhouette reaches 0.1.",
        f"LID takes the {setting['k']} nearest neighbours of {setting['lid_sample']:,} rows at most, among all rows. "
        "It depends on how many these are: with few rows the nearest neighbours reach far beyond what is local.",
        "ELMo is not run: transformers does not have it. The paper's text has no numbers for its figures and no "
        "limits for high, near zero, few or follows: those in the rules are ours. So is the test of the Swiss roll, "
        "whether three directions hold most of the variance.",
        "A layer that was measured with one seed counts without an interval.",
    ]
    for model, seeds in found.seeds_by_word_vectors().items():
        peer = _static_peer(model, int(seeds[0]["width"]))
        beside = "beside none of the paper's" if peer is None else f"beside the paper's {peer}, which may be others"
        notes.append(
            f"{model}: {int(seeds[0]['rows']):,} word vectors, {beside}; the paper tells number and width alone."
        )
    own = sorted({each["model"] for each in found.layers if each["model"] not in _PEERS})
    if own:
        notes.append(f"Not the paper's models: {', '.join(own)}. Encoders stand beside BERT, decoders beside GPT2.")
    return notes
