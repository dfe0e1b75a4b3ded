"""fit, apply and fix: files and messages, and one line for every error."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import isoscope
from isoscope.cli.main import main
from isoscope.cli.repair import compare_held_out
from isoscope.stores.open import open_store

N, D = 400, 8


@pytest.fixture
def cone(tmp_path):
    path = tmp_path / "cone.npy"
    np.save(path, np.random.default_rng(0).standard_normal((N, D)).astype(np.float32) * np.arange(1, D + 1) + 2)
    return path


METHODS = {
    "center": ([], isoscope.Center()),
    "standardize": ([], isoscope.Standardize()),
    "all-but-the-top": (["--components", "2"], isoscope.AllButTheTop(2)),
    "all_but_the_top": (["--components", "auto"], isoscope.AllButTheTop("auto")),
    "whiten": (
        ["--method", "pca", "--components", "3", "--shrinkage", "0.25"],
        isoscope.Whiten("pca", 3, shrinkage=0.25),
    ),
    "Whiten": (["--shrinkage", "none"], isoscope.Whiten(shrinkage=None)),
    "cluster-center": (
        ["--clusters", "auto", "--sample", "300", "--seed", "7"],
        isoscope.ClusterCenter("auto", sample=300, random_state=7),
    ),
    "cluster-null": (
        ["--clusters", "3", "--components", "2", "--clusterer", "gmm"],
        isoscope.ClusterNull(3, 2, clusterer="gmm", random_state=0),
    ),
}


@pytest.mark.parametrize("method", METHODS)
def test_fit_and_apply_equal_the_classes(method, cone, tmp_path, capsys):
    options, repair = METHODS[method]
    folder, out = tmp_path / "repair", tmp_path / "out.npy"
    assert main(["fit", method, str(cone), "-o", str(folder), *options]) == 0
    rows = 300 if "--sample" in options else 400
    assert f"fitted to {rows} vectors of 8 dimensions" in capsys.readouterr().out
    assert repr(isoscope.load_transform(folder)) == repr(repair)
    assert main(["apply", str(folder), str(cone), "-o", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: 400 vectors\n"
    expected = repair.fit(cone).transform(np.load(cone))
    np.testing.assert_allclose(np.load(out), expected, atol=1e-4 * np.abs(expected).max())


def test_apply_keeps_the_columns_of_a_table_unless_vectors_only(cone, tmp_path, capsys):
    source, folder, out = tmp_path / "a.parquet", tmp_path / "repair", tmp_path / "out.parquet"
    table = pa.table({"doc_id": [f"d{i}" for i in range(N)], "state": list(np.load(cone)), "n": np.arange(N)})
    pq.write_table(table, source)
    main(["fit", "whiten", str(source), "-o", str(folder)])
    assert main(["apply", str(folder), str(source), "-o", str(out), "--columns", "ids=doc_id"]) == 0
    found = pq.read_table(out)
    assert found.schema.names == ["doc_id", "state", "n"]
    assert found.drop(["state"]).equals(table.drop(["state"]))
    assert main(["apply", str(folder), str(source), "-o", str(out), "--vectors-only"]) == 0
    assert pq.read_table(out).schema.names == ["embedding"]


@pytest.mark.parametrize("ending", ["npy", "safetensors", "parquet"])
def test_fix_writes_saves_and_compares(ending, cone, tmp_path, capsys):
    out, page, folder = tmp_path / f"out.{ending}", tmp_path / "page.html", tmp_path / "repair"
    assert main(["fix", "center", str(cone), "-o", str(out), "--save", str(folder), "--html", str(page)]) == 0
    printed, messages = capsys.readouterr()
    assert re.search(r"Mean cosine +[✗!] 0\.\d+.*✓ −?0\.0", printed)
    assert "cone.npy" in printed
    assert f"out.{ending}" in printed
    assert "of a row's nearest neighbors" in printed
    first = " ".join(printed.split("This is not proof")[0].split())
    assert re.fullmatch(r"Center: \d worth a look → \d worth a look; \d+\.\d of 10 neighbors kept\.", first)
    assert first in page.read_text(encoding="utf-8")
    assert f"written: {page}" in messages
    text = page.read_text()
    assert text.lower().startswith("<!doctype html>")
    assert "cone.npy" in text
    assert f"out.{ending}" in text
    repair = isoscope.load_transform(folder)
    np.testing.assert_array_equal(open_store(out).take(range(N)), repair.transform(np.load(cone)))


def test_fix_on_shards_with_different_dimensions(cone, tmp_path, capsys):
    (tmp_path / "shards").mkdir()
    for i, part in enumerate(np.split(np.load(cone), 4)):
        np.save(tmp_path / "shards" / f"{i}.npy", part)
    out = tmp_path / "out.npy"
    assert (
        main(["fix", "whiten", str(tmp_path / "shards"), "-o", str(out), "--method", "pca", "--components", "3"]) == 0
    )
    assert np.load(out).shape == (N, 3)
    assert "200 × 3" in capsys.readouterr().out  # half of the rows are held out


# before and after


@pytest.fixture
def labeled(tmp_path):
    """Few rows for their dimensions, with three labels along the longest of them."""
    rng = np.random.default_rng(3)
    labels = np.arange(300) % 3
    X = rng.standard_normal((300, 60)) * np.arange(1, 61) ** -0.5 + 1.5 * np.eye(60)[labels]
    path = tmp_path / "labeled.parquet"
    pq.write_table(pa.table({"embedding": list(X.astype(np.float32)), "label": labels.astype(str)}), path)
    return path


def test_the_comparison_uses_held_out_rows(labeled):
    store = open_store(labeled, labels="label")
    seen = isoscope.Whiten().fit(store).transform(store.take(range(300)))
    assert isoscope.isoscore(seen, unbiased=True) > 1.1  # fitted to its own noise, and more even than is possible
    (before, after), held_out = compare_held_out(isoscope.Whiten(), store, "after", written=300)
    assert (held_out.fitted, held_out.measured, held_out.n_final_fit_rows) == (150, 150, 300)
    assert (before.n, after.n, after.source) == (150, 150, "after")
    # what a repair of 150 rows gives on rows from the same source: measured on many other rows
    half = isoscope.Whiten().fit(store.take(np.sort(np.random.default_rng(0).permutation(300)[:150])))
    rng, labels = np.random.default_rng(4), np.arange(6000) % 3
    fresh = rng.standard_normal((6000, 60)) * np.arange(1, 61) ** -0.5 + 1.5 * np.eye(60)[labels]
    truth = isoscope.isoscore(half.transform(fresh), unbiased=True)
    found = after["isoscore"]
    assert truth < 1
    assert abs(found.value - truth) < 2 * (found.high - found.low) / 2


def test_fix_names_the_repair_and_marks_losses(labeled, tmp_path, capsys):
    page = tmp_path / "page.html"
    command = ["fix", "whiten", str(labeled), "-o", str(tmp_path / "out.npy"), "--html", str(page)]
    assert main([*command, "--columns", "labels=label"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    note = "Both audits measure the same 150 rows, before and after Whiten() fitted on 150 other rows."
    assert note in printed
    assert "fitted on all 300 rows" in printed
    assert re.search(r"Silhouette of the ✓ .* ▼ .* worse", printed)
    text = page.read_text()
    assert note in text
    assert "before and after Whiten()" in text
    assert re.search(r'<tr id="finding-labels">(?:(?!</tr>).)*▼ worse', text, re.S)
    after = re.search(r'<tr id="finding-labels">(?:(?!</tr>).)*data-space="B"(.*?)</td>', text, re.S).group(1)
    assert "✓" not in after


WRONG = {
    "unknown method": (["fit", "centre", "{cone}", "-o", "x"], "'centre' is not a known method (did you mean center?)"),
    "quite another method": (
        ["fit", "xyz", "{cone}", "-o", "x"],
        "choose from center, standardize, all-but-the-top",
    ),
    "option of another method": (
        ["fit", "center", "{cone}", "-o", "x", "--seed", "3"],
        "center does not take --seed",
    ),
    "and of yet another": (
        ["fix", "whiten", "{cone}", "-o", "x.npy", "--clusters", "3"],
        "whiten does not take --clusters: it takes --method, --components, --shrinkage",
    ),
    "components are no number": (
        ["fit", "whiten", "{cone}", "-o", "x", "--components", "many"],
        "need auto or an integer",
    ),
    "components below zero": (["fit", "whiten", "{cone}", "-o", "x", "--components", "-1"], "--components is -1"),
    "shrinkage is no share": (["fit", "whiten", "{cone}", "-o", "x", "--shrinkage", "2"], "shrinkage is 2.0"),
    "shrinkage is a word": (
        ["fit", "whiten", "{cone}", "-o", "x", "--shrinkage", "some"],
        "need auto, none or a number",
    ),
    "method of whitening": (["fit", "whiten", "{cone}", "-o", "x", "--method", "ica"], "method is 'ica'"),
    "clusterer": (["fit", "cluster-null", "{cone}", "-o", "x", "--clusterer", "dbscan"], "clusterer is 'dbscan'"),
    "sample of none": (["fit", "cluster-null", "{cone}", "-o", "x", "--sample", "0"], "sample is 0"),
    "sample of one row": (
        ["fit", "cluster-center", "{cone}", "-o", "x", "--clusters", "2", "--sample", "1"],
        "sample is 1: need at least 4 rows",
    ),
    "more components than dimensions": (
        ["fit", "all-but-the-top", "{cone}", "-o", "x", "--components", "9"],
        "--components is 9",
    ),
    "fewer rows than components": (["fit", "all-but-the-top", "{few}", "-o", "x", "--components", "4"], "3 vectors"),
    "fewer rows than clusters": (["fit", "cluster-center", "{few}", "-o", "x", "--clusters", "4"], "--clusters is 4"),
    "no source": (["fit", "center", "nosuch.npy", "-o", "x"], "nosuch.npy"),
    "nan in the corpus": (["fit", "center", "{nan}", "-o", "x"], "NaN"),
    "folder of something else": (["fit", "center", "{cone}", "-o", "{full}"], "not a saved repair"),
    "no repair": (["apply", "nosuch", "{cone}", "-o", "x.npy"], "nosuch"),
    "another folder": (["apply", "{full}", "{cone}", "-o", "x.npy"], "full"),
    "tampered": (["apply", "{tampered}", "{cone}", "-o", "x.npy"], "changed"),
    "other dimensions": (["apply", "{repair}", "{wide}", "-o", "x.npy"], "9 dimensions"),
    "nan in the source": (["apply", "{repair}", "{nan}", "-o", "x.npy"], "row 2 of nan.npy"),
    "folder is missing": (["apply", "{repair}", "{cone}", "-o", "no/x.npy"], "no is not a folder"),
    "out is a folder": (["apply", "{repair}", "{cone}", "-o", "{dir}"], "is a folder"),
    "unknown ending": (["apply", "{repair}", "{cone}", "-o", "x.xyz"], "x.xyz"),
    "out is the source": (["apply", "{repair}", "{cone}", "-o", "{cone}"], "is already an input or output"),
    "out is in the repair": (["apply", "{repair}", "{cone}", "-o", "{repair}/x.npy"], "which this command uses"),
    "out is among the shards": (
        ["apply", "{repair}", "{shards}", "-o", "{shards}/x.npy"],
        "would be read as part of the input",
    ),
    "no such column": (["apply", "{repair}", "{cone}", "-o", "x.npy", "--columns", "ids=x"], "column x"),
    "page is the output": (["fix", "center", "{cone}", "-o", "x.npy", "--html", "x.npy"], "already an input or output"),
    "saved over something": (["fix", "center", "{cone}", "-o", "x.npy", "--save", "{full}"], "not a saved repair"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input_raises_one_line_error_and_writes_nothing(name, cone, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments, words = WRONG[name]
    X = np.load(cone)
    places = {key: tmp_path / key for key in ("full", "repair", "tampered", "shards")}
    places |= {key: tmp_path / f"{key}.npy" for key in ("few", "nan", "wide", "dir")}
    places["full"].mkdir()
    (places["full"] / "notes.txt").write_text("mine")
    places["dir"].mkdir()
    places["shards"].mkdir()
    np.save(places["shards"] / "0.npy", X)
    np.save(places["few"], X[:3])
    np.save(places["wide"], np.ones((5, 9), np.float32))
    np.save(places["nan"], np.where(np.arange(5)[:, None] == 2, np.nan, X[:5]))
    isoscope.Center().fit(X).save(places["repair"])
    shutil.copytree(places["repair"], places["tampered"])
    config = places["tampered"] / "config.json"
    config.write_text(config.read_text().replace('"dimensions": 8', '"dimensions": 9'))
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    assert main([argument.format(cone=cone, **places) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert words in err
    assert err.count("\n") == 1
    assert "Traceback" not in out + err
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_constant_vectors_are_repaired_but_cannot_be_compared(tmp_path, capsys):
    source, out = tmp_path / "same.npy", tmp_path / "out.npy"
    np.save(source, np.ones((50, 4), np.float32))
    for method in ("center", "standardize", "all-but-the-top", "whiten", "cluster-center", "cluster-null"):
        assert main(["fit", method, str(source), "-o", str(tmp_path / "repair")]) == 0
        assert main(["apply", str(tmp_path / "repair"), str(source), "-o", str(out)]) == 0
        assert not np.load(out).any()
    capsys.readouterr()
    assert main(["fix", "center", str(source), "-o", str(out)]) == 2
    assert re.search(r"out\.npy was written, but the comparison failed: .*are zero", capsys.readouterr().err)


def test_interruption_after_the_file_was_replaced_names_it(cone, tmp_path, capsys, monkeypatch):
    target = tmp_path / "fixed.npy"
    target.touch()

    def stop(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("isoscope.cli.repair.compare_held_out", stop)
    assert main(["fix", "center", str(cone), "-o", str(target)]) == 130
    replaced, message = capsys.readouterr().err.splitlines()
    assert replaced.startswith(f"replaced: {target} (")
    assert message == f"isoscope: interrupted; {target} is complete; other existing files are unchanged"
    monkeypatch.setattr("isoscope.cli.repair._fit_repair", stop)
    assert main(["fix", "center", str(cone), "-o", str(target)]) == 130
    assert capsys.readouterr().err == "isoscope: interrupted; existing files are unchanged\n"


def test_interrupted_apply_to_one_file_leaves_no_files(cone, tmp_path, capsys, monkeypatch):
    from isoscope.cli import repair

    monkeypatch.setattr("isoscope.stores.store._BATCH_BYTES", 20 * 4 * D)
    main(["fit", "center", str(cone), "-o", str(tmp_path / "repair")])
    command = ["apply", str(tmp_path / "repair"), str(cone), "-o", str(tmp_path / "out.npy")]

    class Ending(repair.InterruptibleProgressBar):
        def __call__(self, stage, done, share, note=""):
            if done >= 200:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(repair, "InterruptibleProgressBar", Ending)
        assert main(command) == 130
    assert "out.npy is unchanged" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["cone.npy", "repair"]
    assert main([*command, "--restart"]) == 0
    assert capsys.readouterr().err == ""
    assert sorted(os.listdir(tmp_path)) == ["cone.npy", "out.npy", "repair"]


def test_ids_are_optional(cone, tmp_path, capsys):
    source = tmp_path / "a.jsonl"
    source.write_text("".join(f'{{"vector": {row}, "key": "k{i}"}}\n' for i, row in enumerate(np.load(cone).tolist())))
    saved = tmp_path / "saved.json"
    for options in ([], ["--columns", "ids=key"]):
        assert main(["audit", str(source), "--json", str(saved), *options]) == 0
        assert isoscope.Audit.from_json(saved).columns == {}
    assert main(["audit", str(source), "--columns", "ids=nosuch"]) == 2
    assert main(["convert", str(source), str(tmp_path / "a.parquet")]) == 0
    assert open_store(tmp_path / "a.parquet").ids.tolist() == [f"k{i}" for i in range(N)]


def test_documented_commands_work(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).standard_normal((N, D)).astype(np.float32) + 1
    pq.write_table(pa.table({"id": np.arange(N), "embedding": list(X)}), "corpus.parquet")
    np.save("queries.npy", X[:50])
    page = Path(__file__).parents[2].joinpath("docs", "repairs.md").read_text(encoding="utf-8")
    lines = re.search(r"```console\n(.*?)```", page, re.DOTALL)[1].splitlines()
    commands = [shlex.split(line, comments=True) for line in lines]
    assert [command[:2] for command in commands] == [["isoscope", verb] for verb in ("fit", "apply", "apply", "fix")]
    for command in commands:
        assert main(command[1:]) == 0, capsys.readouterr().err
    assert len(np.load("queries-white.npy")) == 50
    assert pq.read_table("fixed.parquet").schema.names == ["id", "embedding"]
    assert Path("before-after.html").exists()


@pytest.mark.parametrize("method", ["center", "cluster-center"])
def test_fit_reports_rows_of_zeros(method, cone, tmp_path, capsys):
    X = np.load(cone)
    X[[3, 9]] = 0
    np.save(cone, X)
    assert main(["fit", method, str(cone), "-o", str(tmp_path / "a")]) == 0
    assert "the fit includes 2 rows of zeros: pass --zeros drop" in capsys.readouterr().err
    assert main(["fit", method, str(cone), "-o", str(tmp_path / "b"), "--zeros", "drop"]) == 0
    printed = capsys.readouterr()
    assert "take part" not in printed.err
    assert f"fitted to {N - 2} vectors" in printed.out


def test_apply_reports_replaced_and_unchanged_vectors(cone, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    isoscope.Center().fit(np.load(cone)).save("center")
    isoscope.Chain().fit(np.load(cone)).save("as-it-is")
    for repair, expected in [
        ("center", "out.npy: 900 vectors\n"),
        ("center", "out.npy: 900 vectors, replaced\n"),
        ("as-it-is", "out.npy: 900 vectors, unchanged, because the repair is “as it is”, replaced\n"),
    ]:
        assert main(["apply", repair, str(cone), "-o", "out.npy"]) == 0
        assert capsys.readouterr().out == expected.replace("900", f"{len(np.load(cone)):,}")
    np.save("narrow.npy", np.ones((4, 2), np.float32))
    assert main(["apply", "as-it-is", "narrow.npy", "-o", "new.npy"]) == 2
    assert "but the repair was fitted to vectors with" in capsys.readouterr().err
    np.save("nan.npy", np.full((4, 2), np.nan, np.float32))
    assert main(["convert", "nan.npy", "new.npy"]) == 2
    assert "with --missing drop\n" in capsys.readouterr().err


def test_one_vector_is_counted_in_the_singular(tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.eye(4, dtype=np.float32))
    np.save(tmp_path / "y.npy", np.ones((1, 4), np.float32))
    isoscope.Center().fit(np.eye(4)).save(tmp_path / "repair")
    assert main(["apply", str(tmp_path / "repair"), str(tmp_path / "y.npy"), "-o", str(tmp_path / "z.npy")]) == 0
    assert capsys.readouterr().out.endswith("z.npy: 1 vector\n")
