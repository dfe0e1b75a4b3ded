"""What all studies share: saved arms, compared settings and written files."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import isoscope
from isoscope._core.errors import FileFormatError
from isoscope._io.files import lock_folder
from isoscope.studies import run as running
from isoscope.studies.formatting import figure_name, file_name
from isoscope.studies.page import render_study_page
from isoscope.studies.study import Row, Table, Value
from tests.studies.counting import Counting


@pytest.fixture(autouse=True)
def counting(monkeypatch):
    monkeypatch.setattr(running, "study_by_name", lambda name: Counting())
    Counting.ran.clear()
    return Counting


def run(out, **options):
    return isoscope.run_study("counting", output=out, **options)


def numbers(found):
    return {key: each["sum"] for key, each in found.results.items()}


def test_every_arm_is_run_once_and_then_read_back(tmp_path):
    first = run(tmp_path / "run")
    assert len(Counting.ran) == 6
    again = run(tmp_path / "run")
    assert len(Counting.ran) == 6
    assert numbers(again) == numbers(first)
    by_place = [each.results["three/seed-0"]["by_place"] for each in (first, again)]
    assert by_place[0] == by_place[1]  # down to the kind of their keys
    assert again.results["three/seed-0"]["unknown"] != again.results["three/seed-0"]["unknown"]  # NaN goes to and fro


def test_failed_arm_does_not_stop_others_and_resumes(tmp_path):
    words = r"^four/seed-1: four/seed-1 fails; finished 5 other arms: .*page.html$"
    with pytest.raises(isoscope.InputError, match=words):
        run(tmp_path / "run", fail_at="four/seed-1")
    assert len(Counting.ran) == 5
    assert len(json.loads((tmp_path / "run" / "results.json").read_text())["arms"]) == 5
    path = tmp_path / "run" / "settings.json"
    path.write_text(path.read_text().replace("four/seed-1", ""))
    found = run(tmp_path / "run")
    assert len(Counting.ran) == 6
    assert found.results["four/seed-1"]["found"]
    assert not (tmp_path / "run" / "work").exists()
    assert numbers(found) == numbers(run(tmp_path / "whole"))


def test_no_page_is_written_if_every_arm_fails(tmp_path):
    with pytest.raises(isoscope.InputError, match=r"^four/seed-1: four/seed-1 fails$"):
        run(tmp_path / "run", fail_at="four/seed-1", only="four/seed-1")
    assert not (tmp_path / "run" / "page.html").exists()


def test_files_of_unfinished_arm_are_kept_while_others_run(tmp_path):
    with pytest.raises(isoscope.InputError):
        run(tmp_path / "run", fail_at="four/seed-1", only="four/seed-1")
    run(tmp_path / "run", fail_at="four/seed-1", only="three/*")
    assert [each.read_text() for each in (tmp_path / "run" / "work").rglob("left")] == ["half"]


KILLED = """
import sys
sys.path.insert(0, sys.argv[1])
import isoscope
from isoscope.studies import run as running
from tests.studies.counting import Counting
running.study_by_name = lambda name: Counting()
Counting.parameters["end_at"] = type(Counting.parameters["end_at"])("", "", "", widens=True)
isoscope.run_study("counting", output=sys.argv[2], end_at=sys.argv[3])
"""


def test_a_killed_process_loses_only_the_current_arm(tmp_path, monkeypatch):
    root = str(Path(__file__).parents[2])
    words = [sys.executable, "-c", KILLED, root, str(tmp_path / "run"), "three/seed-1"]
    ended = subprocess.run(words, timeout=600, capture_output=True, env=os.environ, check=False)
    assert ended.returncode == -9, ended.stderr
    assert len([*(tmp_path / "run" / "arms").glob("*.json")]) == 2
    each = Counting.parameters["end_at"]
    monkeypatch.setitem(Counting.parameters, "end_at", type(each)("", "", "", widens=True))
    found = run(tmp_path / "run")
    assert len(Counting.ran) == 4
    assert numbers(found) == numbers(run(tmp_path / "whole"))


def test_other_settings_are_rejected_and_more_arms_are_added(tmp_path):
    run(tmp_path / "run", seeds=[0])
    with pytest.raises(isoscope.InputError, match=r"different settings: scale was 1.0, is 2.0; choose another folder"):
        run(tmp_path / "run", seeds=[0], scale=2)
    with pytest.raises(isoscope.InputError, match="it was not a quick run"):
        run(tmp_path / "run", quick=True, scale=1.0)
    assert len(Counting.ran) == 2
    assert set(run(tmp_path / "run", seeds="0,5").results) == {
        f"{t}/seed-{s}" for t in ("three", "four") for s in (0, 5)
    }
    assert len(Counting.ran) == 4
    assert len(run(tmp_path / "run", tasks="three", seeds="0").results) == 1


def test_only_runs_matching_arms_and_keeps_finished_ones(tmp_path):
    found = run(tmp_path / "run", only="three/*")
    assert set(found.results) == {f"three/seed-{seed}" for seed in range(3)}
    assert (found.facts["arms"], found.facts["arms_in_all"]) == (3, 6)
    assert "3 of 6 arms" in (tmp_path / "run" / "summary.md").read_text()
    more = run(tmp_path / "run", only=["four/seed-1", "three/seed-[01]"])
    assert set(more.results) == {*found.results, "four/seed-1"}
    assert len(Counting.ran) == 4
    assert numbers(run(tmp_path / "run")) == numbers(run(tmp_path / "whole"))
    with pytest.raises(isoscope.InputError, match=r"only is five/\*, which matches no arm: .* three/seed-0"):
        run(tmp_path / "other", only=["three/*", "five/*"])
    assert not (tmp_path / "other").exists()


def test_seeds_is_a_number_or_a_list(tmp_path):
    assert run(tmp_path / "run", seeds=2).setting["seeds"] == (0, 1)
    assert run(tmp_path / "run", seeds=[2]).setting["seeds"] == (2,)


def test_figures_belong_to_the_last_outcome(tmp_path):
    run(tmp_path / "run")
    figures = tmp_path / "run" / "figures"
    drawn = {each.name for each in figures.iterdir()}
    (figures / "of-a-wider-start.svg").write_text("<svg/>")
    run(tmp_path / "run")
    assert {each.name for each in figures.iterdir()} == drawn


def test_counts_have_no_decimals():
    rows = [Row("a", {"width": Value.of(768.0), "share": Value.of(1.0)}), Row("b", {"share": Value.of(0.5)})]
    table = Table("t", "T", ("width", "share"), rows)
    assert [table.choose_digits(rows[0], each) for each in table.columns] == [0, 3]
    ones = [Row("a", {"share": Value.of(1.0), "seeds": Value.of([3.0, 4.0])})]
    assert [Table("t", "T", ("share", "seeds"), ones).choose_digits(ones[0], each) for each in ("share", "seeds")] == [
        3,
        3,
    ]
    setup = [Row("epochs", {"value": Value.of(1.0)}), Row("rate", {"value": Value.of(1e-4)})]
    assert [Table("t", "T", ("value",), setup).choose_digits(each, "value") for each in setup] == [0, 3]


def test_settings_can_change_before_any_arm_is_finished(tmp_path):
    with pytest.raises(isoscope.InputError, match="fails"):
        run(tmp_path / "run", fail_at="three/seed-0", only="three/seed-0")
    found = run(tmp_path / "run", scale=2.0)
    assert not found.results["three/seed-0"]["found"]  # what the other settings left is gone


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    return tmp_path / "model"


def test_changed_model_or_file_is_detected(tmp_path, model):
    data = tmp_path / "data" / "cola"
    data.mkdir(parents=True)
    for name in ("train.tsv", "dev.tsv"):
        (data / name).write_text("x\t1\t\tA sentence.\nx\t0\t\tAnother one.\n")
    run(tmp_path / "run", models=[model], data=tmp_path / "data")
    run(tmp_path / "run", models=["someone/other"], data=tmp_path / "data")  # the first one is remembered
    (model / "config.json").write_text('{"layers": 2}')
    with pytest.raises(isoscope.InputError, match="the model model changed"):
        run(tmp_path / "run", models=[model], data=tmp_path / "data")
    (data / "dev.tsv").write_text("x\t1\t\tA sentence.\n")
    with pytest.raises(isoscope.InputError, match="the files of cola changed"):
        run(tmp_path / "run", models=["someone/other"], data=tmp_path / "data")


@pytest.mark.parametrize("inside", [".", "0_Transformer"])
def test_changed_weights_in_the_same_folder_are_detected(tmp_path, model, inside):
    weights = model / inside / "model.safetensors"
    weights.parent.mkdir(exist_ok=True)
    weights.write_bytes(bytes(10**6))
    run(tmp_path / "run", models=[model])
    path = tmp_path / "run" / "settings.json"
    told = json.loads(path.read_text())
    path.write_text(json.dumps({name: each for name, each in told.items() if name != "weights"}))
    run(tmp_path / "run", models=[model])  # a run from before weights were looked at goes on
    weights.write_bytes(bytes(10**6 - 1) + b"1")
    with pytest.raises(isoscope.InputError, match="different settings: the model model changed; choose"):
        run(tmp_path / "run", models=[model])


def test_missing_inputs_are_reported_before_any_work(tmp_path):
    with pytest.raises(isoscope.InputError, match=r"cola needs train.tsv, dev.tsv, which are not in .*--data"):
        run(tmp_path / "run", data=tmp_path)
    with pytest.raises(isoscope.InputError, match=r"is not a folder; use --data .* cola/train.tsv"):
        run(tmp_path / "run", data=tmp_path / "nowhere")
    with pytest.raises(isoscope.InputError, match=r"no folder .*config.json.* [Hh]ub"):
        run(tmp_path / "run", models=[tmp_path / "nothing"])
    with pytest.raises(isoscope.InputError, match="counting has no parameter sale: choose from tasks, seeds"):
        run(tmp_path / "run", sale=1)
    with pytest.raises(isoscope.InputError, match=r"scale is much: need a number, such as 1\.0"):
        run(tmp_path / "run", scale="much")
    with pytest.raises(isoscope.InputError, match="two models have the name a; rename"):
        run(tmp_path / "run", models=["x/a", "y/a"])
    with pytest.raises(isoscope.InputError, match="nothing to run"):
        run(tmp_path / "run", seeds=[])
    assert not (tmp_path / "run").exists()
    assert not Counting.ran


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"seeds": "0,1,0"}, "seeds contains 0 twice"),
        ({"tasks": ["three", "three"]}, "tasks contains three twice"),
        ({"seeds": 0}, "seeds is 0: need a number of seeds from 1 to 1000"),
        ({"seeds": [-1]}, "seeds contains -1: need integers from 0 to 4294967295"),
        ({"seeds": [2**32]}, "4294967296"),
        ({"scale": "nan"}, "scale is nan: need a number"),
        ({"scale": float("inf")}, "scale is inf: need a number"),
    ],
)
def test_invalid_values_are_rejected_before_any_work(tmp_path, given, words):
    with pytest.raises(isoscope.InputError, match=words):
        run(tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


def test_a_folder_without_a_model_is_rejected_before_any_work(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(isoscope.InputError, match=r"empty contains no model: need config.json"):
        run(tmp_path / "run", models=[tmp_path / "empty"])
    assert not (tmp_path / "run").exists()


def test_model_is_named_after_its_folder_for_any_path_spelling(tmp_path, model, monkeypatch):
    (model / "inside").mkdir()
    monkeypatch.chdir(model / "inside")
    assert [each.name for each in run(tmp_path / "run", models=[".."]).setting.models] == ["model"]


def test_kill_during_the_first_write_leaves_a_usable_folder(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".settings.json.0a1b.part").write_text("{")
    assert len(run(tmp_path / "run").results) == 6


def test_folder_with_other_files_is_not_changed(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary.txt").write_text("dear diary")
    with pytest.raises(isoscope.InputError, match="contains other files"):
        run(tmp_path / "mine")
    with pytest.raises(isoscope.InputError, match="is a file"):
        run(tmp_path / "mine" / "diary.txt")
    (tmp_path / "mine" / "settings.json").write_text("[]")
    with pytest.raises(isoscope.InputError, match=r"settings\.json .*isoscope did not write it"):
        run(tmp_path / "mine")
    assert (tmp_path / "mine" / "diary.txt").read_text() == "dear diary"


@pytest.mark.parametrize("change", [{"sum": "x"}, {"sum": 2.0}, {"other": 1}])
def test_a_changed_arm_is_named(tmp_path, change):
    run(tmp_path / "run", seeds=[0])
    path = tmp_path / "run" / "arms" / f"{file_name('three/seed-0')}.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"result": content["result"] | change}))
    with pytest.raises(FileFormatError, match=r"three--seed-0-\w+.json is not .*changed after .*checksum.*remove it"):
        run(tmp_path / "run", seeds=[0])


def test_an_arm_without_a_checksum_is_read_and_named_if_the_study_cannot_use_it(tmp_path):
    first = run(tmp_path / "run", seeds=[0])
    path = tmp_path / "run" / "arms" / f"{file_name('three/seed-0')}.json"
    content = json.loads(path.read_text())
    del content["checksum"]  # earlier versions wrote none
    path.write_text(json.dumps(content))
    assert numbers(run(tmp_path / "run", seeds=[0])) == numbers(first)
    path.write_text(json.dumps(content | {"result": {"x": []}}))
    with pytest.raises(FileFormatError, match=r"KeyError.*remove .*three--seed-0-\w+.json and other results") as caught:
        run(tmp_path / "run", seeds=[0])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change", [{"parameters": 3}, {"study": None}, {"models": []}, {"weights": "x"}, {"data": None}, {"quick": [[]]}]
)
def test_damaged_settings_raise_one_line_error(tmp_path, change):
    run(tmp_path / "run", seeds=[0])
    path = tmp_path / "run" / "settings.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(isoscope.InputError, match=r"settings\.json cannot be read|different settings") as caught:
        run(tmp_path / "run", seeds=[0])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"seconds": "1", "key": "three/seed-0", "result": {}}',
        '{"key": "other", "result": {}, "seconds": 1}',
        '{"key": "three/seed-0"}',
    ],
)
def test_a_damaged_arm_is_named(tmp_path, text):
    run(tmp_path / "run", seeds=[0])
    (tmp_path / "run" / "arms" / f"{file_name('three/seed-0')}.json").write_text(text)
    with pytest.raises(isoscope.InputError, match=r"three--seed-0-\w+.json is not the result of an arm .* remove it"):
        run(tmp_path / "run", seeds=[0])


def test_different_keys_have_different_file_names():
    keys = ["a/b", "a--b", "a b", "a:b", "ä/b", "A/b"]
    assert len({file_name(key).casefold() for key in keys}) == len(keys)
    assert all("/" not in file_name(key) and ":" not in file_name(key) for key in keys)


def test_file_names_fit_the_limit_of_file_systems():
    names = [file_name(f"cola/{letter * 300}/seed-{seed}") for letter in "aä模" for seed in (0, 1)]
    assert len(set(names)) == len(names)
    assert all(len(name.encode()) < 220 for name in names)
    short = "mrpc/granite-embedding-30m-english-dequantInt8/selected bars/seed-0"
    assert file_name(short).startswith("mrpc--granite-embedding-30m-english-dequantInt8--selected--bars--seed-0-")


def test_finished_arms_count_in_progress_from_the_start(tmp_path):
    """Otherwise, a progress bar would count the work of an earlier run as the speed of this one."""
    run(tmp_path / "run", tasks="four", seeds=[1, 2])
    reports = []
    run(tmp_path / "run", progress=lambda *report: reports.append(report))
    shares = [share for _, _, share, _ in reports]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (pytest.approx(2 / 6), pytest.approx(1.0))


def test_folder_is_locked_before_its_settings_are_read(tmp_path):
    run(tmp_path / "run", seeds=[0])
    with lock_folder(tmp_path / "run"), pytest.raises(isoscope.InputError, match="written by another process"):
        run(tmp_path / "run", seeds=[0], scale=2)


def test_progress_goes_from_0_to_1_and_names_the_arm(tmp_path):
    reports = []
    run(tmp_path / "run", progress=lambda *report: reports.append(report))
    shares = [share for _, _, share, _ in reports]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert reports[0] == ("arm 1/6", 0, 0.0, "three, seed 0")
    assert reports[1] == ("arm 1/6", 0, pytest.approx(0.5 / 6), "three, seed 0  half")


def test_results_contain_all_numbers_and_their_sources(tmp_path):
    run(tmp_path / "run")
    told = json.loads((tmp_path / "run" / "results.json").read_text())
    assert told["schema"] == "isoscope.study/1"
    assert told["tables"][0]["rows"][0]["published"]["sum"]["value"] == 3.5
    assert len(told["tables"][0]["rows"][0]["ours"]["sum"]["seeds"]) == 3
    assert [each["holds"] for each in told["claims"]] == ["yes", "not tested"]
    assert told["arms"]["three/seed-0"]["unknown"] is None
    assert told["facts"]["arms"] == 6


def test_page_and_summary_are_escaped(tmp_path):
    run(tmp_path / "run")
    page = (tmp_path / "run" / "page.html").read_text()
    assert "On &lt;counting&gt;" in page
    assert "3 &lt;or&gt; so" in page
    assert "<counting>" not in page
    text = (tmp_path / "run" / "summary.md").read_text()
    assert "Nothing is odd \\| even." in text
    assert "1 of 2 claims hold here, 1 was not tested." in text
    for name in ("lines", figure_name("cloud of (my) model")):
        assert f"](figures/{name}.svg)" in text
        assert f'id="figure-{name}"' in page
        drawn = ElementTree.parse(tmp_path / "run" / "figures" / f"{name}.svg").getroot()
        assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
        assert not re.search(r"[\s()]", name)


def test_page_begins_with_the_claims_and_folds_long_tables(tmp_path):
    done = run(tmp_path / "run")
    page = (tmp_path / "run" / "page.html").read_text()
    assert "<h1>1 of 2 claims hold here, 1 was not tested.</h1>" in page
    sections = re.findall(r'<section id="(\w+)"', page)
    assert [name for name in sections if name in ("claims", "figures", "numbers")] == ["claims", "figures", "numbers"]
    assert "<details" not in page
    table = done.outcome.tables[0]
    long = dataclasses.replace(done.outcome, tables=[dataclasses.replace(table, rows=[*table.rows] * 5)])
    long.verdicts[0] = dataclasses.replace(long.verdicts[0], ours="7.96e−5")
    page = render_study_page(done.study, long, done.facts)
    assert "7.96×10⁻⁵" in page
    assert re.search(r"<details[^>]*><summary>Show all \d+ rows</summary><div[^>]*><table", page)


def test_folder_of_earlier_version_resumes_or_raises(tmp_path):
    """Earlier versions wrote `settings.json` and `arms/*.json` with one space of indentation."""
    first = run(tmp_path / "run")
    path = tmp_path / "run" / "settings.json"
    recorded = json.loads(path.read_text())
    assert list(recorded) == ["schema", "study", "quick", "parameters", "models", "weights", "data"]
    assert recorded["schema"] == "isoscope.study-settings/1"
    del recorded["weights"]  # the first ones did not have them
    path.write_text(json.dumps(recorded, indent=1) + "\n")
    assert numbers(run(tmp_path / "run")) == numbers(first)
    assert len(Counting.ran) == 6
    path.write_text(json.dumps({**recorded, "schema": "isoscope.study-settings/0"}))
    with pytest.raises(isoscope.InputError, match=r"study-settings/0.*choose another folder") as caught:
        run(tmp_path / "run")
    assert "\n" not in str(caught.value)
