"""Tables, figures and notes of the study of "Clusters and manifolds"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from isoscope._core.errors import plural
from isoscope.studies.aggregation import group_by, mean_by_seed
from isoscope.studies.clusters_and_manifolds.claims import make_verdicts
from isoscope.studies.clusters_and_manifolds.measure import (
    METRICS,
    TEXTBOOK_LID_FACTOR,
    LayerResults,
    mean_lid_by_rows,
)
from isoscope.studies.study import Figure, Outcome, Panel, Row, Scatter, Series, Table, Value

if TYPE_CHECKING:
    from isoscope.studies.study import Published, Results, Setting

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


def make_outcome(published: Published, setting: Setting, arms: Results) -> Outcome:
    """Return the tables, figures and verdicts for the finished arms."""
    results = LayerResults.of(arms)
    claims, observations = make_verdicts(published, results)
    return Outcome(_tables(published, results), _figures(results), claims, _notes(setting, results), observations)


# tables


def _tables(published: Published, results: LayerResults) -> list[Table]:
    similarities = {
        "S_inter": _value_getter("inter, raw"),
        "S_inter, mean subtracted": _value_getter("inter, one mean"),
        "S_inter, cluster means subtracted": _value_getter("inter, centered"),
        "inside clusters": _value_getter("inter, clusters"),
        "S_intra": _value_getter("intra, raw"),
        "S_intra, mean subtracted": _value_getter("intra, one mean"),
        "S_intra, cluster means subtracted": _value_getter("intra, centered"),
        "S_intra inside clusters": _value_getter("intra, clusters"),
        "clusters": _value_getter("clusters"),
        "silhouette": _value_getter("silhouette"),
    }
    directions = {
        "three components": lambda each: sum(each["explained"]),
        "position in the window": _value_getter("along, place"),
        "frequency": _value_getter("along, frequency"),
        "kind of token": _value_getter("along, kind"),
        "cluster": _value_getter("along, cluster"),
    }
    return [
        _lid_table(published, results),
        _layer_means_table(
            "similarities",
            "Similarity of tokens, raw and with means removed",
            "Values are means over the layers. The paper shows them only in a figure. In the columns "
            '"inside clusters", each cluster is measured separately and has the same weight, as in the paper. A '
            "cluster of two tokens pulls this average below zero, because subtracting their mean leaves two opposite "
            'vectors. In the columns "cluster means subtracted", all tokens are measured together. The silhouette '
            "shown is the highest value over 2 to 15 clusters. A layer whose silhouette is below 0.1 counts as one "
            "cluster.",
            similarities,
            results,
        ),
        _layer_means_table(
            "directions",
            "Variance along the first three principal components, and what explains it",
            "Values are means over the layers. The first column is the share of the total variance that these "
            "components explain. Each other column is the share of the variance along these components that one "
            "property of a token explains. The properties are the position in the window (in sixteenths), the "
            "frequency (in eight bins), the kind of token (word, continuation, number, symbol), and the cluster.",
            directions,
            results,
        ),
    ]


def _lid_table(published: Published, results: LayerResults) -> Table:
    """Return a table that compares our local dimensions with those of the paper."""
    rows = []
    for (corpus, model), layers in results.by_corpus_and_model().items():
        peer = _PEERS.get(model, "GPT2" if layers[0]["kind"] == "decoder" else "BERT")
        rows.append(_lid_row(published, f"{model}, {corpus}", layers, peer))
    for model, seeds in results.by_word_vectors().items():
        rows.append(_lid_row(published, model, seeds, _static_peer(model, int(seeds[0]["width"]))))
    return Table(
        "lid",
        "Average local intrinsic dimension",
        ["n, millions", "width", _LID, "LID, Euclidean", "textbook, cosine", "textbook, Euclidean"],
        rows,
        where="Table 3",
        note="Values are means over the layers. The first two LID columns are on the authors' scale, which is half "
        f"of the textbook scale. LID depends on the number of rows n{_format_row_ratio(rows)}; see the figure "
        f"that plots LID against n. {next((each.note for each in published.tables['lid'].values()), '')}",
        digits=2,
        row_name="model",
    )


def _format_row_ratio(rows: Sequence[Row]) -> str:
    """Return, as text, the ratio of the paper's number of rows to ours."""
    column = "n, millions"
    times = [row.published[column].value / row.ours[column].mean for row in rows if column in row.published]
    return f" (the paper uses {min(times):.1f} to {max(times):.1f} times as many rows)" if times else ""


def _lid_row(published: Published, name: str, rows: list[dict[str, Any]], peer: str | None) -> Row:
    ours = {"n, millions": Value.of(rows[0]["rows"] / 1e6), "width": Value.of(float(rows[0]["width"]))}
    for metric, words in zip(METRICS, ("cosine", "Euclidean"), strict=True):
        ours[f"LID, {words}"] = _value_over_seeds(rows, _value_getter(f"lid, {metric}"))
        ours[f"textbook, {words}"] = _value_over_seeds(rows, _value_getter(f"lid, {metric}", TEXTBOOK_LID_FACTOR))
    theirs = {} if peer is None else published.numbers("lid", peer, published.columns("lid"))
    return Row(name, ours, theirs, peer or "")


def _static_peer(model: str, width: int) -> str | None:
    if "news" in model.lower():
        return "GNEWS"
    return {100: "GloVe", 300: "GloVe-2M"}.get(width) if "glove" in model.lower() else None


def _layer_means_table(
    key: str, title: str, note: str, columns: Mapping[str, Callable[[dict[str, Any]], float]], results: LayerResults
) -> Table:
    rows = [
        Row(f"{model}, {corpus}", {name: _value_over_seeds(layers, value) for name, value in columns.items()})
        for (corpus, model), layers in results.by_corpus_and_model().items()
    ]
    return Table(key, title, list(columns), rows, note=note, row_name="model")


def _value_getter(key: str, times: float = 1.0) -> Callable[[dict[str, Any]], float]:
    return lambda each: times * each[key]


def _value_over_seeds(rows: Sequence[dict[str, Any]], value: Callable[[dict[str, Any]], float]) -> Value:
    """Average each seed over its layers, and return the averages as a `Value`."""
    return mean_by_seed(rows, value, lambda each: each["seed"])


# figures


def _figures(results: LayerResults) -> list[Figure]:
    if not results.layers:
        return []
    corpora = list(group_by(results.layers, lambda each: each["corpus"]))
    return [
        *(_similarity_figure(results, corpus) for corpus in corpora),
        _layer_figure(
            "clusters",
            "Clusters by layer",
            "The number of clusters is chosen by the highest silhouette; it is 1 if no silhouette reaches 0.1.",
            "clusters",
            "clusters",
            results,
        ),
        *(
            _layer_figure(
                f"lid-{metric}",
                f"Local intrinsic dimension by layer, {metric.capitalize()}",
                "LID is on the authors' scale, which is half of the textbook scale.",
                f"lid, {metric}",
                "LID",
                results,
                where="Figure 9" if metric == "euclidean" else "",
            )
            for metric in METRICS
        ),
        _lid_by_rows_figure(results),
        _frequency_figure(results),
        *_scatter_figures(results),
    ]


def _similarity_figure(results: LayerResults, corpus: str) -> Figure:
    panels = []
    for (own, model), layers in results.by_corpus_and_model().items():
        if own == corpus:
            series = [_layer_series(name, layers, _value_getter(at)) for name, at in _SIMILARITIES.items()]
            panels.append(Panel(model, series, "layer", "mean cosine", zero=True))
    caption = (
        "The figure shows the raw similarities and the similarities inside clusters after subtracting each cluster's "
        "mean. Layer 0 is the first block."
    )
    return Figure(f"similarities-{corpus}", f"S_inter and S_intra by layer, {corpus}", caption, panels)


def _layer_figure(
    key: str, title: str, caption: str, at: str, y_name: str, results: LayerResults, where: str = ""
) -> Figure:
    panels = []
    for model, layers in results.by_model().items():
        own = group_by(layers, lambda each: each["corpus"])
        series = [_layer_series(corpus, some, _value_getter(at)) for corpus, some in own.items()]
        panels.append(Panel(model, series, "layer", y_name, zero=True))
    return Figure(key, title, caption, panels, where)


def _layer_series(name: str, layers: Sequence[dict[str, Any]], value: Callable[[dict[str, Any]], float]) -> Series:
    """Return a series with the mean over seeds for each layer, and a band from the lowest to the highest seed."""
    by_layer = group_by(layers, lambda each: int(each["layer"]))
    means = [fmean(map(value, own)) for own in by_layer.values()]
    ends = [[min(map(value, own)) for own in by_layer.values()], [max(map(value, own)) for own in by_layer.values()]]
    several = any(len(own) > 1 for own in by_layer.values())
    return Series(name, [float(each) for each in by_layer], means, *(ends if several else ()))


def _lid_by_rows_figure(results: LayerResults) -> Figure:
    """Return a figure of LID against the number of rows, averaged over layers; each panel shows static word vectors."""
    static = [_lid_by_rows_series(model, seeds, dashed=True) for model, seeds in results.by_word_vectors().items()]
    panels = []
    for model, layers in results.by_model().items():
        own = group_by(layers, lambda each: each["corpus"])
        series = [_lid_by_rows_series(corpus, some) for corpus, some in own.items()]
        panels.append(Panel(model, [*series, *static], "rows", "LID", log_x=True, zero=True))
    caption = (
        "LID is computed with the cosine distance for random samples of a layer, on the authors' scale, and averaged "
        "over the layers. It depends on the number of rows, so compare only values at equal numbers of rows. Dashed "
        "lines show static word vectors."
    )
    return Figure("lid-by-rows", "Local intrinsic dimension against the number of rows", caption, panels)


def _lid_by_rows_series(name: str, rows: Sequence[dict[str, Any]], *, dashed: bool = False) -> Series:
    sizes = mean_lid_by_rows(rows)
    return Series(name, [float(n) for n in sizes], list(sizes.values()), dashed=dashed)


def _frequency_figure(results: LayerResults) -> Figure:
    panels = []
    for (corpus, model), layers in results.by_corpus_and_model().items():
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
        "The figure shows the mean distance from the layer's mean for eight bins of frequency, relative to the "
        "mean distance of all tokens. The values would all be 1 if frequency did not matter."
    )
    return Figure("frequency", "Distance from the center by frequency", caption, panels)


def _first_middle_last(layers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [layers[0], layers[len(layers) // 2], layers[-1]]


def _select_first_seed(layers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    first = layers[0]["seed"]
    return [each for each in layers if each["seed"] == first]


def _scatter_figures(results: LayerResults) -> list[Figure]:
    figures = []
    for (corpus, model), layers in results.by_corpus_and_model().items():
        panels = [
            Scatter(
                f"layer {each['layer']}: {100 * sum(each['explained']):.0f}% of the variance in three components",
                each["cloud"]["points"],
                {
                    "cluster": each["cloud"]["cluster"],
                    "frequency, power of ten": each["cloud"]["frequency"],
                    "kind of token": each["cloud"]["kind"],
                    "position in the window": each["cloud"]["place"],
                },
            )
            for each in _select_first_seed(layers)
            if "cloud" in each
        ]
        if panels:
            caption = (
                "The figure shows tokens projected onto the first two principal components, and a 3-D view of the "
                "first three."
            )
            title = f"Principal components of {model}, {corpus}"
            figures.append(Figure(f"cloud-{corpus}-{model}", title, caption, panels))
    return figures


# notes


def _notes(setting: Setting, results: LayerResults) -> list[str]:
    notes = [
        f"The {setting['part']} split of each corpus is read in chunks of 100,000 characters, which are split into "
        f"windows of {setting['window']} tokens (fewer if the model's limit is lower) without overlap. "
        f"{setting['tokens']:,} tokens in randomly chosen windows are measured; frequencies are counted in the "
        "entire split.",
        "The model reads special tokens ([CLS], [SEP], <s>), but they are not measured. The corpora's own <unk> stays "
        "in the text: some tokenizers map it to their unknown token, others split it into pieces.",
        "Layer 0 is the output of the first block; the last layer is taken after the model's final normalization.",
        "S_inter is averaged over all pairs of types; the paper estimates it from one random instance of each type. "
        "S_intra is averaged over all pairs of instances; the paper draws at most 1,000 instances of a type.",
        f"K-means uses at most {setting['cluster_sample']:,} rows, with "
        f"{plural(setting['restarts'], 'initialization')}; the other rows are assigned to the nearest "
        "mean. The number of clusters is 2 to 15, or 1 if no silhouette reaches 0.1.",
        f"LID is computed for at most {setting['lid_sample']:,} rows, from their {setting['k']} nearest neighbors "
        "among all rows. It depends on the number of rows, because with few rows the nearest neighbors are not "
        "local.",
        "ELMo is not run, because transformers does not include it. The paper gives no numbers for its figures, and "
        'no thresholds for terms such as "high" or "near zero". We chose the thresholds in the rules. We also chose '
        "the test for the Swiss roll: whether three principal components explain most of the variance.",
        "If a layer was measured with a single seed, its value is treated as exact.",
    ]
    for model, seeds in results.by_word_vectors().items():
        peer = _static_peer(model, int(seeds[0]["width"]))
        compared = (
            "is not in the paper"
            if peer is None
            else f"is compared with the paper's {peer}, which may be a different file: the paper gives only the number "
            "and width of its vectors"
        )
        notes.append(f"{model} ({int(seeds[0]['rows']):,} word vectors) {compared}.")
    own = sorted({each["model"] for each in results.layers if each["model"] not in _PEERS})
    if own:
        notes.append(
            f"These models are not in the paper: {', '.join(own)}. Encoders are compared with BERT, and "
            "decoders with GPT2."
        )
    return notes
