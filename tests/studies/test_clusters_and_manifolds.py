"""The study of clusters and manifolds on tiny models, texts and word vectors."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import isoscope
from isoscope._core.errors import InputError
from isoscope._io import files
from isoscope.studies.clusters_and_manifolds import study as clusters_and_manifolds
from isoscope.studies.clusters_and_manifolds.measure import (
    LayerTokens,
    MeasureOptions,
    between_group_share,
    local_dimensions,
    measure_layer,
)
from isoscope.studies.datasets.running_text import read_text
from isoscope.studies.datasets.source import DataSource
from isoscope.studies.study import Holds, Scatter, Setting, study

from ..finetuning.toy import WORDS, decoder, encoder, one_thread

NAME = "clusters-and-manifolds"
SMALL = {"tokens": 1_100, "window": 32, "k": 10, "lid_sample": 100, "cluster_sample": 120, "restarts": 1, "points": 50}


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_thread():
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with data, an encoder, a decoder and word vectors."""
    folder = tmp_path_factory.mktemp("study")
    rng = np.random.default_rng(0)
    text = "".join(f" {' '.join(rng.choice(WORDS, 12))} \n \n" for _ in range(100))
    for corpus, prefix in (("ptb", "ptb."), ("wikitext2", "")):
        (folder / "data" / corpus).mkdir(parents=True)
        (folder / "data" / corpus / f"{prefix}valid.txt").write_text(text, encoding="utf-8")
        (folder / "data" / corpus / f"{prefix}train.txt.gz").write_bytes(gzip.compress(text.encode()))
    encoder(folder / "enc")
    decoder(folder / "dec")
    (folder / "glove-tiny").mkdir()
    np.save(folder / "glove-tiny" / "vectors.npy", rng.standard_normal((1500, 12)).astype(np.float32))
    (folder / "glove-tiny" / "words.txt").write_text("\n".join(f"w{i}" for i in range(1500)), encoding="utf-8")
    return folder


def run(place, out, models=("enc",), **more):
    return isoscope.run_study(
        NAME, output=out, models=[place / each for each in models], data=place / "data", quick=True, **(SMALL | more)
    )


@pytest.fixture(scope="module")
def whole(place, tmp_path_factory):
    """A complete run."""
    return run(place, tmp_path_factory.mktemp("out") / "run", ("enc", "dec", "glove-tiny"))


def test_every_model_layer_and_corpus_is_an_arm(whole):
    keys = set(whole.results)
    for corpus in ("ptb", "wikitext2"):
        for model in ("enc", "dec"):
            assert {f"{corpus}/{model}/seed-0/{each}" for each in ("states", "layer-0", "layer-1")} <= keys
    assert "words/glove-tiny/seed-0" in keys
    assert len(keys) == 13


def test_states_are_removed_after_the_last_layer(whole):
    assert not list((whole.folder / "shared").iterdir())


def test_layer_result_matches_the_library_on_the_first_block(place, whole):
    texts = read_text("ptb", "valid", DataSource(place / "data"))
    store = isoscope.embed(place / "enc", texts, layers=[1], pool="tokens", window=32, max_tokens=1_100)
    X, types = np.concatenate(list(store)), store.types
    found = whole.results["ptb/enc/seed-0/layer-0"]
    assert found["rows"] == len(X) == 1_100
    assert found["inter, raw"] == pytest.approx(float(isoscope.inter_similarity(X, types, average="types")), abs=1e-5)
    assert found["intra, raw"] == pytest.approx(float(isoscope.intra_similarity(X, types)), abs=1e-5)
    expected = isoscope.lid(X, 10, metric="euclidean", convention="cai", sample=100, seed=0)
    assert found["lid, euclidean"] == pytest.approx(float(expected), rel=1e-4)


def test_model_types_and_special_tokens(whole):
    encoded, decoded = (whole.results[f"ptb/{each}/seed-0/states"] for each in ("enc", "dec"))
    assert (encoded["kind"], decoded["kind"]) == ("encoder", "decoder")
    assert (encoded["room"], decoded["room"]) == (30, 32)  # [CLS] and [SEP] take two places


def test_outcome_has_published_numbers_figures_and_a_verdict_for_each_claim(whole):
    outcome = whole.outcome
    claims = [each.key for each in study(NAME).published.claims]
    assert [each.claim.key for each in outcome.verdicts] == claims
    assert all(each.holds is not Holds.untested or "cluster" in each.ours for each in outcome.verdicts)
    lid = next(each for each in outcome.tables if each.key == "lid")
    of = {row.name: (row.of, row.published["LID, cosine"].value) for row in lid.rows if row.published}
    assert of["enc, ptb"] == ("BERT", 5.6)
    assert of["dec, ptb"] == ("GPT2", 7.0)
    row = next(each for each in lid.rows if each.name == "glove-tiny")
    assert row.ours["textbook, cosine"].mean == pytest.approx(2 * row.ours["LID, cosine"].mean)
    assert sum(isinstance(panel, Scatter) for figure in outcome.figures for panel in figure.panels) == 8
    assert (whole.folder / "figures" / "cloud-ptb-enc.svg").stat().st_size < 300_000


@pytest.mark.parametrize(
    ("raw", "one", "many", "expected"),
    [(0.5, 0.4, 0.1, Holds.yes), (0.5, 0.1, 0.01, Holds.yes), (0.5, 0.1, 0.2, Holds.no)],
)
def test_clusters_mislead_only_where_one_mean_is_not_enough(raw, one, many, expected):
    found = made_layers(clusters=3)
    for each in found.values():
        each |= {"inter, raw": raw, "inter, one mean": one, "inter, centered": many}
    verdicts = {each.claim.key: each for each in outcome_of(found).verdicts}
    assert verdicts["clusters-mislead"].holds is expected
    offset = {each.claim.key: each for each in outcome_of(found).observations}["offset"]
    assert offset.holds is (Holds.yes if one < raw / 2 else Holds.no)


def test_statements_absent_from_the_paper_are_not_claims():
    """The paper gives no value for S_intra inside clusters, and does not mention a token's position in the window."""
    outcome = outcome_of(made_layers())
    assert [each.claim.key for each in outcome.observations] == ["intra-centered", "offset", "place"]
    claims = study(NAME).published.claims
    assert not {each.key for each in claims} & {"intra-centered", "offset", "place"}
    assert not any("window" in each.words for each in claims)
    assert not any("in words" in each.published for each in outcome.verdicts)


@pytest.mark.parametrize(
    ("values", "expected"), [((0.30, 0.31, 0.32), Holds.yes), ((0.1, 0.3), Holds.undecided), ((0.1, 0.11), Holds.no)]
)
def test_several_seeds_give_a_layer_an_interval(values, expected):
    layer = made_layers()["ptb/m/seed-0/layer-0"]
    found = {f"ptb/m/seed-{i}/layer-0": layer | {"seed": i, "inter, raw": value} for i, value in enumerate(values)}
    assert {each.claim.key: each.holds for each in outcome_of(found).verdicts}["inter-high"] is expected


def outcome_of(results):
    values = {name: each.quick for name, each in study(NAME).parameters.items()}
    return study(NAME).outcome(Setting((), DataSource(), values, True), results)


def made_layers(**more):
    layer = {"what": "layer", "corpus": "ptb", "model": "m", "kind": "encoder", "seed": 0, "width": 384, "rows": 4000}
    layer |= {
        f"{kind}, {how}": 0.3 for kind in ("inter", "intra") for how in ("raw", "one mean", "clusters", "centered")
    }
    layer |= {f"along, {each}": 0.05 for each in ("place", "kind", "cluster")} | {"along, frequency": 0.4}
    layer |= {"clusters": 1, "silhouette": 0.05, "explained": [0.2, 0.1, 0.1], "distance by frequency": [[1.0, 1.0]]}
    layer |= {"lid, cosine": 7.0, "lid, euclidean": 9.0, "lid, cosine, by rows": {"1000": 8.0, "4000": 7.0}}
    return {f"ptb/m/seed-0/layer-{i}": layer | {"layer": i} | more for i in range(2)}


def test_wording_of_verdicts_and_notes_follows_the_numbers():
    results = made_layers()
    outcome = outcome_of(results)
    verdicts = {each.claim.key: each for each in outcome.verdicts}
    assert verdicts["inter-high"].ours == "2 of 2 layers; 0.30 on average (0.30 to 0.30)"
    assert verdicts["frequency-and-kind"].holds is Holds.no
    assert verdicts["frequency-and-kind"].ours.startswith("0 of 2 layers; 0.05 on average")
    note = next(each for each in outcome.tables if each.key == "lid").note
    assert "297.5 to 297.5 times as many" in note
    assert any("We chose the thresholds" in each for each in outcome.notes)
    words = {"what": "words", "model": "glove-6B-100d", "seed": 0, "width": 100, "rows": 5000}
    words |= {name: each for name, each in results["ptb/m/seed-0/layer-0"].items() if name.startswith("lid")}
    notes = outcome_of(results | {"words/g/seed-0": words}).notes
    assert any(
        each.startswith("glove-6B-100d (5,000 word vectors) is compared with the paper's GloVe, which")
        for each in notes
    )


def test_a_killed_run_resumes_with_the_same_numbers(place, whole, tmp_path, monkeypatch):
    measured, calls = clusters_and_manifolds.measure_layer, []

    def failing(*given):
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return measured(*given)

    monkeypatch.setattr(clusters_and_manifolds, "measure_layer", failing)
    with pytest.raises(KeyboardInterrupt):
        run(place, tmp_path / "run", corpora="ptb")
    shutil.rmtree(tmp_path / "run" / "shared")  # even without its states
    again = run(place, tmp_path / "run", corpora="ptb")
    assert len(calls) == 3
    assert again.results == {key: whole.results[key] for key in again.results}


def test_states_partly_removed_by_a_kill_are_recomputed(place, whole, tmp_path, monkeypatch):
    remove = shutil.rmtree

    def killed(folder, **more):
        for layer in Path(folder).glob("layer-02-*"):
            layer.unlink()
            raise KeyboardInterrupt
        remove(folder, **more)

    monkeypatch.setattr(files.shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        run(place, tmp_path / "run", corpora="ptb")
    monkeypatch.undo()
    again = run(place, tmp_path / "run", corpora="ptb")
    assert again.results == {key: whole.results[key] for key in again.results}


def test_outcome_from_some_arms(place, whole):
    setting = Setting(whole.setting.models, whole.setting.data, whole.setting.values, quick=True)
    for keys in ([], ["words/glove-tiny/seed-0"], ["ptb/enc/seed-0/states", "ptb/enc/seed-0/layer-1"]):
        outcome = study(NAME).outcome(setting, {key: whole.results[key] for key in keys})
        assert len(outcome.verdicts) == len(study(NAME).published.claims)


def test_clusters_are_found_and_centering_removes_their_means():
    rng = np.random.default_rng(0)
    codes = np.arange(600) % 3
    X = rng.standard_normal((600, 16)) + 12 * np.eye(16)[codes] + 6
    tokens = LayerTokens(
        X.astype(np.float32), rng.integers(0, 40, 600), rng.integers(1, 99, 600) * 1.0, rng.random(600)
    )
    found = measure_layer(tokens, MeasureOptions(10, 100, 200, 1, 20, 0), lambda share, words: None)
    assert found["clusters"] == 3
    assert sorted(found["sizes"]) == [200, 200, 200]
    assert found["inter, raw"] > 0.7
    assert abs(found["inter, centered"]) < 0.05
    assert found["along, cluster"] > 0.8
    assert found["along, place"] < 0.1
    assert len(found["cloud"]["points"]) == 20


def test_local_dimension_by_row_count_ends_with_all_rows():
    X = np.random.default_rng(0).standard_normal((1200, 5)).astype(np.float32)
    found = local_dimensions(X, MeasureOptions(10, 1200, 100, 1, 0, 0))
    assert list(found["lid, cosine, by rows"]) == ["1000", "1200"]
    assert found["lid, cosine"] == pytest.approx(float(isoscope.lid(X, 10, metric="cosine", convention="cai")))


def test_uninformative_groups_have_zero_between_group_share():
    points = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    assert between_group_share(points, np.array([0, 0, 1, 1])) == 0
    assert between_group_share(points, np.array(["a", "b", "a", "b"])) == pytest.approx(1)


def test_text_from_the_hub_equals_the_files(place, tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    import pyarrow as pa
    import pyarrow.parquet as pq

    lines = (place / "data" / "wikitext2" / "valid.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    hub = tmp_path / "Salesforce" / "wikitext" / "wikitext-2-v1"
    hub.mkdir(parents=True)
    pq.write_table(pa.table({"text": lines}), hub / "validation-00000.parquet")
    card = {"config_name": "wikitext-2-v1", "data_files": [{"split": "validation", "path": "wikitext-2-v1/*.parquet"}]}
    (hub.parent / "README.md").write_text(f"---\nconfigs: {json.dumps([card])}\n---\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert read_text("wikitext2", "valid", DataSource()) == read_text("wikitext2", "valid", DataSource(place / "data"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"corpora": "brown"}, "corpora has brown: choose from ptb, wikitext2"),
        ({"part": "test"}, "part is test: choose from train, valid"),
        ({"tokens": 8}, "tokens is 8 and k is 10"),
        ({"k": 1}, "k is 1"),
        ({"restarts": 0}, "restarts is 0: need at least 1"),
    ],
)
def test_invalid_parameters_raise(place, tmp_path, given, words):
    with pytest.raises(InputError, match=words):
        run(place, tmp_path / "run", **given)


def test_missing_data_and_models_are_named(place, tmp_path):
    with pytest.raises(InputError, match=r"ptb\.train\.txt"):
        isoscope.run_study(NAME, output=tmp_path / "a", models=[place / "enc"], data=place / "enc", quick=True)
    with pytest.raises(InputError, match="nowhere"):
        run(place, tmp_path / "b", models=("nowhere",))
