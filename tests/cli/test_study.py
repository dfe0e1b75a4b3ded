"""isoscope study list, show and run."""

import io
import json
from dataclasses import replace

import pytest

from isoscope.cli.main import main
from isoscope.cli.session import InterruptibleProgressBar
from isoscope.studies import run
from isoscope.studies import study as protocols
from isoscope.studies.study import STUDIES, format_value, study
from tests.studies.counting import Counting


@pytest.fixture
def counting(monkeypatch):
    monkeypatch.setattr(run, "study_by_name", lambda name: Counting())
    monkeypatch.setattr(protocols, "study", lambda name: Counting())
    Counting.ran.clear()


def test_list_names_all_studies(capsys):
    assert main(["study", "list"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in STUDIES)


@pytest.mark.parametrize("name", STUDIES)
def test_show_prints_parameters_claims_and_published_numbers(name, capsys):
    assert main(["study", "show", name]) == 0
    printed = capsys.readouterr().out
    assert "seeds" in printed
    assert "Claims" in printed
    assert "Published:" in printed


@pytest.mark.parametrize("name", STUDIES)
def test_show_truncates_nothing_on_a_narrow_terminal(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["study", "show", name]) == 0
    printed = capsys.readouterr().out
    assert "…" not in printed
    assert max(map(len, printed.splitlines())) <= 80
    found = study(name)
    words = set(printed.split())
    for table in found.published.tables.values():
        assert {f"{number.value:,.10g}" for number in table.values()} <= words
    typed = printed.replace("\n", " ")
    for each in found.parameters.values():
        assert all(
            format_value(value) in typed for value in (each.full if isinstance(each.full, tuple) else (each.full,))
        )


def test_run_shows_verdicts_and_writes_its_folder(counting, tmp_path, capsys):
    out = tmp_path / "run"
    assert (
        main(["study", "run", "counting", "-o", str(out), "--seeds", "2", "--set", "scale=2", "--set", "tasks=three"])
        == 0
    )
    printed = capsys.readouterr().out
    assert "1 of 2 claims hold here" in printed
    assert "3.500" in printed
    assert set(json.loads((out / "results.json").read_text())["arms"]) == {"three/seed-0", "three/seed-1"}
    assert (out / "page.html").exists()


def test_only_selects_arms(counting, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["study", "run", "counting", "-o", str(out), "--only", "four/seed-0", "--only", "*/seed-2"]) == 0
    assert "3 of 6 arms" in capsys.readouterr().out
    assert set(json.loads((out / "results.json").read_text())["arms"]) == {"four/seed-0", "three/seed-2", "four/seed-2"}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["no-such"], "no-such"),
        ([STUDIES[0], "--set", "scale"], "--set scale: need NAME=VALUE"),
        ([STUDIES[0], "--set", "color=red"], "no parameter color"),
        ([STUDIES[0], "--seeds", "many"], "--seeds many"),
        ([STUDIES[0], "--seeds", "0"], "seeds is 0"),
        ([STUDIES[0], "--seeds", "20261116"], "20261116,"),
        ([STUDIES[0], "--seeds", "1", "--set", "seeds=2"], "seeds is set twice, to 2 and to 1: set it once"),
        ([STUDIES[0], "--set", "epochs=1", "--set", "epochs = 2"], "epochs is set twice, to 1 and to 2"),
        ([STUDIES[0], "--data", "nowhere"], "nowhere"),
        ([STUDIES[0], "--data", ".", "--model", "./nothing"], "nothing"),
    ],
)
def test_bad_input_prints_one_line(words, line, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["study", "run", *words, "-o", "run"]) == 2
    printed = capsys.readouterr().err
    assert line in printed
    assert printed.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_ctrl_c_says_what_is_kept_and_how_to_resume(counting, tmp_path, capsys, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "run_study", stop)
    assert main(["study", "run", "counting", "-o", str(tmp_path / "run")]) == 130
    printed = capsys.readouterr().err
    assert "0 finished arms" in printed
    assert "isoscope study run counting" in printed


@pytest.mark.parametrize(
    "words", ["I/O error: No space left on device (os error 28)", "PytorchStreamWriter failed writing file data/3"]
)
def test_full_disk_is_reported_for_any_library(words, counting, tmp_path, capsys, monkeypatch):
    def fail(*arguments, **options):
        raise RuntimeError(words)

    monkeypatch.setattr(run, "run_study", fail)
    assert main(["study", "run", "counting", "-o", str(tmp_path / "run")]) == 2
    assert "No space left on device; existing files are unchanged" in capsys.readouterr().err


def test_remaining_time_fits_in_80_columns_next_to_a_long_note(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    note = f"arm 1/2  {'a long name of a model ' * 5}"
    with InterruptibleProgressBar("arms") as bar:
        bar("running", 0, 0.0, note)
        bar.began -= 7200 + 60
        bar.stage_began -= 7200 + 60
        bar("running", 1, 0.5, note)
    assert "2 h 1 min left  arm 1/2" in screen.getvalue()


def test_names_with_brackets_are_printed_unchanged(counting, tmp_path, capsys, monkeypatch):
    given = Counting.outcome

    def named(self, setting, results):
        found = given(self, setting, results)
        table = found.tables[0]
        rows = [replace(each, name=f"{each.name}, my[v2]") for each in table.rows]
        return replace(found, tables=[replace(table, rows=rows)])

    monkeypatch.setattr(Counting, "outcome", named)
    assert main(["study", "run", "counting", "-o", str(tmp_path / "run")]) == 0
    assert "three, my[v2]" in capsys.readouterr().out
