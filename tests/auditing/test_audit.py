"""The audit: its numbers equal those of the public functions for every kind of source; JSON round trips."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import isoscope
from isoscope import InputError
from isoscope._core.errors import NotFoundError
from isoscope.auditing.audit_result import SCHEMA, Audit
from isoscope.auditing.measure import count_lid_neighbors
from tests.conftest import rotation, tolerance

TOL = tolerance("float32")
LABELS = np.arange(260) % 4


@pytest.fixture(autouse=True)
def one_thread():
    """Use one thread: k-means of a small dataset spends most of its time waiting for threads."""
    with threadpool_limits(1):
        yield


def cloud(n=260, d=12, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((n, d)) / np.sqrt(np.arange(1, d + 1)) + 0.4 + np.eye(d)[np.arange(n) % 4]).astype("f4")


def values(audit):
    return {finding.name: finding.value for finding in audit.findings}


@pytest.fixture(scope="module")
def found():
    with threadpool_limits(1):
        return isoscope.audit(cloud(), labels=LABELS, types=LABELS, queries=cloud(50, seed=1))


# each number equals that of the public function


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("shape", [(260, 12), (30, 40)])
def test_values_equal_the_public_functions(shape, metric):
    X = cloud(*shape).astype(np.float64)
    labels = LABELS[: len(X)]
    k = count_lid_neighbors(len(X))
    units = X / np.linalg.norm(X, axis=1, keepdims=True)
    hubs = isoscope.hubness(X, 10, metric=metric)
    with_interval = isoscope.isoscore_interval(X)
    expected = {
        "mean_cosine": isoscope.mean_cosine(X),
        "isoscore": with_interval.value,
        "anisotropy": isoscope.anisotropy(X, 1)[0],
        "effective_rank": isoscope.effective_rank(X),
        "partition_isotropy": isoscope.partition_isotropy(X / np.sqrt((X**2).sum() / len(X))),
        "intrinsic_dimension": isoscope.lid(X, k, metric=metric),
        "two_nn": isoscope.two_nn(units if metric == "cosine" else X),
        "hubness": hubs.antihubs,
        "labels": isoscope.silhouette(X, labels, metric=metric),
        "inter_type": isoscope.inter_similarity(X, labels),
        "intra_type": isoscope.intra_similarity(X, labels),
        "duplicates": 0,
        "near_duplicates": 0,
        "broken_rows": 0,
    }
    found = isoscope.audit(X, labels=labels, types=labels, metric=metric)
    for name, value in expected.items():
        assert found[name].value == pytest.approx(float(value), rel=tolerance("float64"), abs=1e-12), name
    details = {name: found[name].details for name in expected}
    assert details["isoscore"]["as_published"] == pytest.approx(isoscope.isoscore(X))
    assert details["anisotropy"]["raw"] == pytest.approx(isoscope.anisotropy(X, 3).tolist())
    assert details["anisotropy"]["centered"] == pytest.approx(isoscope.anisotropy(X, 3, center=True).tolist())
    published = float(isoscope.partition_isotropy(X, log=True)) / np.log(10)
    assert details["partition_isotropy"]["log10_as_published"] == pytest.approx(published)
    as_cai = float(isoscope.lid(X, k, metric=metric, convention="cai"))
    assert details["intrinsic_dimension"]["cai_scale"] == pytest.approx(as_cai)
    assert details["hubness"]["skewness"] == pytest.approx(hubs.skewness)
    assert details["hubness"]["largest"] == hubs.largest
    assert found["clusters"].value == max(found["clusters"].details["silhouettes"].values())


def test_rogue_dimensions_list_shares_and_contributions_to_the_mean_cosine():
    X = cloud().astype(np.float64)
    found = isoscope.audit(X)["rogue_dimensions"]
    shares = (X**2 / (X**2).sum(axis=1, keepdims=True)).mean(axis=0)
    assert found.value == pytest.approx(np.sort(shares)[-3:].sum())
    top = found.details["dimensions"]
    np.testing.assert_allclose(found.details["shares"], shares[top])
    np.testing.assert_allclose(found.details["cosine_contribution"], isoscope.cosine_contribution(X)[top])


# invariances


@pytest.mark.parametrize("kind", ["npy", "parquet", "torch", "list", "float64", "big-endian", "Fortran"])
def test_every_format_of_the_same_rows_gives_the_same_audit(found, kind, tmp_path):
    X = cloud()
    if kind == "npy":
        np.save(tmp_path / "x.npy", X)
        source = tmp_path / "x.npy"
    elif kind == "parquet":
        isoscope.write_store(X, tmp_path / "x.parquet")
        source = tmp_path / "x.parquet"
    elif kind == "torch":
        source = pytest.importorskip("torch").tensor(X)
    else:
        source = {"list": X.tolist(), "float64": X.astype(float), "big-endian": X.astype(">f4")}.get(
            kind, np.asfortranarray(X)
        )
    again = isoscope.audit(source, labels=LABELS, types=LABELS, queries=cloud(50, seed=1))
    assert {f.name: f.verdict for f in again.findings} == {f.name: f.verdict for f in found.findings}
    for name, value in values(found).items():
        assert again[name].value == pytest.approx(value, rel=TOL, abs=TOL), name


def test_rotation_changes_only_coordinate_dependent_findings(rng):
    X = cloud().astype(np.float64)
    plain, turned = (isoscope.audit(Y, labels=LABELS, types=LABELS) for Y in (X, X @ rotation(12, rng)))
    for name, value in values(plain).items():
        if name == "rogue_dimensions":
            assert turned[name].value != pytest.approx(value, rel=0.01)
        elif name != "clusters":  # K-means starts from the same rows; its sums round otherwise
            assert turned[name].value == pytest.approx(value, rel=tolerance("float64"), abs=1e-9), name


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_scale_does_not_matter(scale):
    X = cloud().astype(np.float64)
    plain, scaled = (isoscope.audit(Y, labels=LABELS, types=LABELS) for Y in (X, scale * X))
    for name, value in values(plain).items():
        assert scaled[name].value == pytest.approx(value, rel=tolerance("float64"), abs=1e-9), name
        assert scaled[name].verdict == plain[name].verdict, name


def test_the_same_seed_gives_the_same_audit():
    X = cloud(300)
    first, again = (isoscope.audit(X, sample=120, seed=4).to_dict() for _ in range(2))
    assert first == again


# more rows than the sample


EXACT = ("mean_cosine", "isoscore", "anisotropy", "effective_rank", "rogue_dimensions", "partition_isotropy")


def test_sums_are_exact_and_pairs_approximate_beyond_the_sample():
    X, labels = cloud(3000), np.arange(3000) % 4
    whole = isoscope.audit(X, labels=labels, types=labels, sample=3000)
    part = isoscope.audit(X, labels=labels, types=labels, sample=500)
    for name in (*EXACT, "inter_type", "intra_type", "duplicates", "broken_rows"):
        assert part[name].value == pytest.approx(whole[name].value, rel=TOL, abs=1e-9), name
        assert not part[name].sampled
        assert part[name].rows == 3000
    found = part["intrinsic_dimension"]
    assert found.details["among_all_rows"] == pytest.approx(whole["intrinsic_dimension"].value, rel=0.1)
    assert (found.sampled, found.rows) == (True, 500)
    for name, near in [("labels", 0.2), ("two_nn", 0.15), ("near_duplicates", 0.1)]:
        assert part[name].sampled
        assert part[name].rows == 500
        assert part[name].value == pytest.approx(whole[name].value, rel=near), name
        assert not whole[name].sampled
    for name in ("hubness", "clusters"):
        assert part[name].sampled
        assert part[name].rows <= 500


# the audit as an object


def test_findings_are_found_by_name_and_sorted_worst_first(found):
    verdicts = [f.verdict for f in found.findings]
    assert verdicts == sorted(verdicts, key=["bad", "look", "ok"].index)
    assert found.verdict == verdicts[0]
    assert found["labels"].name == "labels"
    assert "labels" in found
    assert "nope" not in found
    counts = ", ".join(f"{verdicts.count(each)} {each}" for each in ("bad", "look", "ok") if each in verdicts)
    assert repr(found) == f"Audit(array: 260 × 12; {counts})"
    with pytest.raises(KeyError, match=r"nope: not found; choose from .*mean_cosine"):
        found["nope"]
    named = isoscope.audit(cloud(), labels=[f"row {i}" for i in range(260)])
    with pytest.raises(KeyError, match="need labels that several rows share"):
        named["labels"]


def test_progress_reports_the_stages():
    calls = []
    isoscope.audit(cloud(), progress=lambda *call: calls.append(call))
    assert {stage for stage, _, _ in calls} >= {"summing up", "partition and neighbors", "clusters and barcode"}


# JSON


def test_json_round_trip(found, tmp_path):
    found.to_json(tmp_path / "a.json")
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    held = json.loads(text, parse_constant=lambda name: pytest.fail(f"JSON knows no {name}"))
    assert held["schema"] == SCHEMA
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
    again = Audit.from_json(tmp_path / "a.json")
    assert again.to_dict() == found.to_dict() == held
    assert str(again) == str(found)
    assert (again.measured, again.pictures) == (None, None)
    with pytest.raises(NotFoundError, match="plots"):
        again._require_pictures()


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda text: text[: len(text) // 2], "is not JSON"),
        (lambda text: "", "is not JSON"),
        (lambda text: "[1, 2]", "has schema None: need 'isoscope.audit/1'"),
        (lambda text: text.replace(SCHEMA, "isoscope.audit/9"), "has schema 'isoscope.audit/9'"),
        (lambda text: json.dumps({"schema": SCHEMA}), "complete audit: KeyError 'source'"),
        (lambda text: text.replace('"rows":', '"lines":'), "complete audit"),
        (lambda text: text.replace('"cosine"', '"dot"', 1), "complete audit"),
        (lambda text: json.dumps({**json.loads(text), "findings": 3}), "complete audit"),
        (lambda text: json.dumps({**json.loads(text), "similarity": []}), "complete audit"),
        (lambda text: json.dumps({**json.loads(text), "isoscope": 3}), "isoscope is 3: need str"),
        (
            lambda text: json.dumps({**json.loads(text), "columns": {"labels": [1]}}),
            r"columns.labels is \[1\]: need str",
        ),
        (lambda text: json.dumps({**json.loads(text), "skipped": 0.5}), "skipped is 0.5: need dict"),
        (lambda text: re.sub('"meaning": "[^"]*"', '"meaning": null', text), "meaning is None: need str"),
        (lambda text: re.sub('"details": {', '"details": 7, "x": {', text), "details is 7: need dict"),
        (lambda text: re.sub(r'"value": [-0-9.e]+', '"value": NaN', text), "NaN is not a JSON number"),
        (lambda text: re.sub(r'"value": [-0-9.e]+', '"value": true', text), "True: need int or float or null"),
        (lambda text: re.sub(r'"pairs": \[', '"pairs": ["x", ', text), "similarity.pairs is 'x'"),
        (lambda text: re.sub(r'"pairs": \[', '"pairs": [null, ', text), "similarity.pairs is None"),
        (
            lambda text: re.sub(r'"pairs": \[', '"pairs": [0.5, ', text),
            "similarity.pairs has [0-9]+ values: need [0-9]+",
        ),
        (lambda text: re.sub(r'"nearest_below": \[', '"nearest_below": [1, ', text), "nearest_below has [0-9]+ values"),
        (lambda text: re.sub(r'"shares": \[', '"shares": [[1], ', text), "similarity.shares is"),
    ],
)
def test_damaged_json_raises_an_error(found, tmp_path, spoil, complaint):
    found.to_json(tmp_path / "a.json")
    (tmp_path / "a.json").write_text(spoil((tmp_path / "a.json").read_text("utf-8")), "utf-8")
    with pytest.raises(InputError, match=complaint) as caught:
        Audit.from_json(tmp_path / "a.json")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_missing_file_raises_an_error(tmp_path):
    with pytest.raises(InputError, match="cannot be read: No such file"):
        Audit.from_json(tmp_path / "none.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="is not JSON"):
        Audit.from_json(tmp_path / "bytes.json")


def test_an_interruption_keeps_the_old_file(found, tmp_path, monkeypatch):
    found.to_json(tmp_path / "a.json")
    before = (tmp_path / "a.json").read_bytes()

    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("isoscope._io.json.json.dumps", interrupted)
    with pytest.raises(KeyboardInterrupt):
        found.to_json(tmp_path / "a.json")
    assert (tmp_path / "a.json").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_every_number_is_finite_and_within_its_interval(found):
    for finding in found.findings:
        assert math.isfinite(finding.value)
        assert (finding.low is None) == (finding.high is None)
        if finding.low is not None:
            assert finding.low <= finding.value <= finding.high


# guessed columns


@pytest.mark.parametrize("labels", [["a", None], ["a", 1], [["a"], ["b", "c"]]], ids=["missing", "mixed", "lists"])
def test_an_unusable_guessed_column_is_ignored(rng, labels):
    pandas = pytest.importorskip("pandas")
    X = rng.standard_normal((60, 8))
    frame = pandas.DataFrame({"embedding": list(X), "label": labels * 30, "text": ["t"] * 60})
    found = isoscope.audit(frame)
    assert "labels" not in found
    assert found.columns.get("text") == "text"
    plain = isoscope.audit(X)
    assert {f.name: f.value for f in found.findings} == pytest.approx({f.name: f.value for f in plain.findings})
    if "labels" in found.skipped:
        assert "label" in found.skipped["labels"]
    with pytest.raises(InputError, match="label"):
        isoscope.audit(frame, labels="label")


# seeds


def test_seeds_that_numpy_accepts():
    X = cloud(300)
    sequence = np.random.SeedSequence([1, 2])
    first, again = (isoscope.audit(X, sample=120, seed=seed) for seed in ([1, 2], sequence))
    assert first.to_dict() == again.to_dict()
    assert first.settings.seed > 2**32
    assert isoscope.audit(X, sample=120, seed=None).settings.seed >= 0
    with pytest.raises(InputError, match="seed is 'x'"):
        isoscope.audit(X, seed="x")
