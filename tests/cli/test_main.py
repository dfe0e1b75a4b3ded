"""The command line: output, files, exit codes, and one line for every error."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import isoscope
from isoscope.cli.main import main


@pytest.fixture
def cone(tmp_path):
    """500 × 8 vectors with a large common mean, as a file."""
    path = tmp_path / "cone.npy"
    np.save(path, np.random.default_rng(0).standard_normal((500, 8)).astype(np.float32) + 2)
    return path


@pytest.fixture
def ball(tmp_path):
    path = tmp_path / "ball.npy"
    np.save(path, np.random.default_rng(1).standard_normal((500, 64)).astype(np.float32))
    return path


def run(*arguments, **options):
    """Run the command in a separate process."""
    return subprocess.run(
        [sys.executable, "-m", "isoscope", *map(str, arguments)], capture_output=True, text=True, timeout=600, **options
    )


def test_audit_prints_findings_worst_first_and_exits_with_0(cone, capsys):
    assert main(["audit", str(cone)]) == 0
    out = capsys.readouterr().out
    assert "cone.npy" in out
    assert "500 × 8" in out
    assert out.index("bad    Mean cosine") < out.index("ok     Duplicate rows")
    assert "Subtract the mean from both the corpus and the queries" in out
    assert "What a cosine means here" in out


def test_no_text_leaves_texts_out_of_all_output(tmp_path, capsys):
    rows = np.random.default_rng(0).standard_normal((60, 8))
    texts = [f"private sentence {i}" for i in range(60)]
    source, out = tmp_path / "texts.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.table({"vector": list(rows), "text": texts, "label": ["a", "b"] * 30}), source)
    page, saved, rows_file = tmp_path / "page.html", tmp_path / "audit.json", tmp_path / "rows.csv"
    audits = ["audit", str(source), "--html", str(page), "--json", str(saved), "--rows", str(rows_file)]
    repair = ["fix", "center", str(source), "-o", str(out), "--html", str(page)]
    for command, files in ((audits, [page, saved, rows_file]), (repair, [page])):
        said = []
        for option in ([], ["--no-text"]):
            assert main([*command, *option, *(["--restart"] if "fix" in command and option else [])]) == 0
            said.append([path.read_text(encoding="utf-8") for path in files] + [capsys.readouterr().out])
        assert "private sentence" in said[0][0]
        assert "private sentence" in said[0][len(files) - 1]
        assert not [text for text in said[1] if "private" in text]
    assert "isoscope advise texts.parquet --labels label" in page.read_text(encoding="utf-8")
    assert "private sentence 7" in pq.read_table(out)["text"].to_pylist(), "the vectors keep their columns"


def test_audit_writes_json_and_page(cone, tmp_path, capsys):
    page, saved = tmp_path / "page.html", tmp_path / "audit.json"
    assert main(["audit", str(cone), "--html", str(page), "--json", str(saved)]) == 0
    assert json.loads(saved.read_text())["schema"] == "isoscope.audit/1"
    assert page.read_text().startswith("<!doctype html>") or page.read_text().startswith("<!DOCTYPE html>")
    assert isoscope.Audit.from_json(saved)["mean_cosine"].verdict == "bad"


def test_json_output_contains_only_json(cone, capsys):
    assert main(["audit", str(cone), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "bad"


@pytest.mark.parametrize("threshold", ["bad", "look"])
def test_fail_on_exits_with_1_for_a_bad_space(cone, threshold, capsys):
    assert main(["audit", str(cone), "--fail-on", threshold]) == 1


def test_fail_on_exits_with_0_for_a_good_space(ball, capsys):
    assert main(["audit", str(ball), "--fail-on", "bad"]) == 0


def test_baseline_reports_changes(cone, tmp_path, capsys):
    before, after, saved = tmp_path / "before.json", tmp_path / "centered.npy", tmp_path / "after.json"
    main(["audit", str(cone), "--json", str(before)])
    X = np.load(cone)
    np.save(after, X - X.mean(axis=0))
    capsys.readouterr()
    assert main(["audit", str(after), "--baseline", str(before), "--json", str(saved)]) == 0
    assert re.search(r"Mean cosine: 0\.\d+ \(bad\) → −?0\.00\d \(ok\), better", capsys.readouterr().out)
    changes = {change["name"]: change["direction"] for change in json.loads(saved.read_text())["changes"]}
    assert changes["mean_cosine"] == "better"
    assert changes["duplicates"] == "same"


def test_two_sources_are_shown_with_their_agreement(cone, tmp_path, capsys):
    other, saved = tmp_path / "turned.npy", tmp_path / "both.json"
    turn = np.linalg.qr(np.random.default_rng(2).standard_normal((8, 8)))[0].astype(np.float32)
    np.save(other, np.load(cone) @ turn)
    assert main(["audit", str(cone), str(other), "--json", str(saved)]) == 0
    out = capsys.readouterr().out
    assert "cone.npy" in out
    assert "turned.npy" in out
    both = json.loads(saved.read_text())
    assert both["agreement"] > 0.99
    assert len(both["audits"]) == 2


def test_labels_from_text_file_and_npy(cone, tmp_path, capsys):
    lines, array = tmp_path / "labels.txt", tmp_path / "labels.npy"
    lines.write_text("".join(f"{'ab'[i % 2]}\n" for i in range(500)))
    np.save(array, np.arange(500) % 2)
    for path in (lines, array):
        assert main(["audit", str(cone), "--labels", str(path)]) == 0
        assert "Silhouette of the labels" in capsys.readouterr().out


def test_queries_outside_the_corpus_are_reported(cone, tmp_path, capsys):
    far = tmp_path / "far.npy"
    np.save(far, -np.load(cone)[:50])
    assert main(["audit", str(cone), "--queries", str(far)]) == 0
    assert "bad    Queries outside the corpus  100%" in capsys.readouterr().out


def test_similarity_matches_brute_force_percentile(cone, capsys):
    assert main(["similarity", str(cone), "0.8"]) == 0
    X = np.load(cone).astype(float)
    U = X / np.linalg.norm(X, axis=1, keepdims=True)
    cosines = (U @ U.T)[np.triu_indices(len(U), 1)]
    printed = float(capsys.readouterr().out.split("above ")[1].split("%")[0])
    assert printed == pytest.approx(100 * (cosines < 0.8).mean(), abs=0.05)


def test_negative_cosines_are_parsed_as_arguments(cone, capsys):
    assert main(["similarity", str(cone), "-0.5", "0.5"]) == 0
    assert "-0.5 is above" in capsys.readouterr().out


def test_audit_and_sketch_accept_a_group_column(tmp_path, capsys):
    rng, page = np.random.default_rng(0), np.repeat(np.arange(30), 4)
    X = rng.standard_normal((30, 3))[page] + 0.2 * rng.standard_normal((120, 3))
    source = tmp_path / "a.jsonl"
    source.write_text("".join(f'{{"vector": {row.tolist()}, "page": {p}}}\n' for row, p in zip(X, page, strict=True)))
    assert main(["audit", str(source), "--columns", "groups=page", "--json", "-"]) == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)["findings"]}
    expected = isoscope.sketch(X, groups=page)
    assert found["isoscore"]["details"]["unbiased"] == pytest.approx(expected.isoscore(unbiased=True))
    assert main(["sketch", str(source), "--columns", "groups=page", "-o", str(tmp_path / "a.sketch")]) == 0
    kept = isoscope.Sketch.load(tmp_path / "a.sketch")
    assert kept.isoscore_interval() == pytest.approx(expected.isoscore_interval())


def test_convert_keeps_every_number(cone, tmp_path, capsys):
    target = tmp_path / "cone.parquet"
    assert main(["convert", str(cone), str(target)]) == 0
    assert np.array_equal(np.concatenate(list(isoscope.open_store(target))), np.load(cone))


def test_convert_can_write_only_the_vectors(tmp_path, capsys):
    source, target = tmp_path / "a.jsonl", tmp_path / "b.parquet"
    source.write_text("".join(f'{{"vector": [{i}, 1, 2], "label": {i % 2}}}\n' for i in range(9)))
    assert main(["convert", str(source), str(target)]) == 0
    assert isoscope.open_store(target).labels.tolist() == [i % 2 for i in range(9)]
    assert main(["convert", str(source), str(target), "--vectors-only"]) == 0
    assert dict(isoscope.open_store(target).columns) == {}


def test_standard_input(cone):
    done = run("audit", "-", "--json", "-", stdin=cone.open("rb"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["source"]["rows"] == 500


def test_second_array_on_standard_input_is_an_error(cone, tmp_path):
    (tmp_path / "two.npy").write_bytes(2 * cone.read_bytes())
    done = run("audit", "-", stdin=(tmp_path / "two.npy").open("rb"))
    assert done.returncode == 2
    assert "standard input contains more data after its first array" in done.stderr


def test_demo_audits_the_bundled_vectors(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("isoscope.cli.demo.shutil.which", lambda name: name)
    assert main(["demo"]) == 0
    out = capsys.readouterr().out
    assert "1,750 × 384" in out
    assert "Next:" in out
    assert (tmp_path / "isoscope-demo.html").stat().st_size < 6e6
    _, _, folder, *commands = out[out.index("Next:") :].splitlines()
    assert max(map(len, commands)) <= 100
    code = "import sys, pathlib; assert all(pathlib.Path(each).is_file() for each in sys.argv[2:])"
    check = f'isoscope() {{ {shlex.quote(sys.executable)} -c {shlex.quote(code)} "$@"; }}'
    assert subprocess.run(["bash", "-ec", f"{check}\n{folder}\n{commands[0]}"]).returncode == 0


OLD_PAGE = '<!doctype html><meta name="generator" content="isoscope 0.1.0">'

WRONG = {
    "no source": ["audit"],
    "missing file": ["audit", "nosuch.npy"],
    "unknown command": ["frobnicate"],
    "unknown option": ["audit", "x.npy", "--frob"],
    "option that was removed": ["audit", "--compare", "{cone}", "{cone}"],
    "bad role": ["audit", "{cone}", "--columns", "color=red"],
    "no such column": ["audit", "{cone}", "--columns", "labels=topic"],
    "sample is no number": ["audit", "{cone}", "--sample", "many"],
    "sample too small": ["audit", "{cone}", "--sample", "5"],
    "seed below zero": ["audit", "{cone}", "--seed", "-1"],
    "folder of the page is missing": ["audit", "{cone}", "--html", "no/such/page.html"],
    "page is a folder": ["audit", "{cone}", "--html", "."],
    "one file for both": ["audit", "{cone}", "--html", "x", "--json", "x"],
    "baseline is missing": ["audit", "{cone}", "--baseline", "nosuch.json"],
    "baseline is no audit": ["audit", "{cone}", "--baseline", "{other}"],
    "labels are missing": ["audit", "{cone}", "--labels", "nosuch.txt"],
    "labels are too few": ["audit", "{cone}", "--labels", "{few}"],
    "labels are pickled": ["audit", "{cone}", "--labels", "{pickled}"],
    "labels are no text": ["audit", "{cone}", "--labels", "{binary}"],
    "source is pickled": ["audit", "{pickled}"],
    "queries of other dimensions": ["audit", "{cone}", "--queries", "{wide}"],
    "cosine out of range": ["similarity", "{cone}", "1.5"],
    "cosine is no number": ["similarity", "{cone}", "high"],
    "format that cannot be written": ["convert", "{cone}", "x.xyz"],
    "nan": ["audit", "{nan}"],
}


@pytest.mark.parametrize("arguments", WRONG.values(), ids=WRONG)
def test_bad_input_prints_one_line_and_exits_with_2(arguments, cone, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {name: tmp_path / name for name in ("other", "few", "binary")}
    files |= {name: tmp_path / f"{name}.npy" for name in ("pickled", "wide", "nan")}
    files["other"].write_text('{"schema": "something/else"}')
    files["few"].write_text("a\nb\n")
    files["binary"].write_bytes(bytes(range(128, 256)))
    np.save(files["pickled"], np.asarray([{"a": 1}], object), allow_pickle=True)
    np.save(files["wide"], np.ones((5, 9)))
    np.save(files["nan"], np.full((5, 9), np.nan))
    before = sorted(path.name for path in tmp_path.iterdir())
    assert main([argument.format(cone=cone, **files) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("isoscope: ")
    assert err.count("\n") == 1
    assert "Traceback" not in out + err
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_only_debug_prints_a_traceback(capsys):
    assert main(["audit", "nosuch.npy", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_full_disk_keeps_the_old_page(cone, tmp_path, capsys, monkeypatch):
    page = tmp_path / "page.html"
    page.write_text(OLD_PAGE)

    def full(self, *args, **options):
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_text", full)
    assert main(["audit", str(cone), "--html", str(page)]) == 2
    monkeypatch.undo()
    err = capsys.readouterr().err
    assert "No space left on device" in err
    assert page.read_text() == OLD_PAGE
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".part"] == []


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="the limit on file sizes is POSIX's")
def test_write_error_keeps_the_old_file(cone, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(OLD_PAGE)
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000));"
    code = f"{limit} import sys; from isoscope.cli.main import main; sys.exit(main(sys.argv[1:]))"
    environment = os.environ | {"NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR", "")}
    done = subprocess.run(
        [sys.executable, "-c", code, "audit", str(cone), "--html", str(page)],
        capture_output=True,
        text=True,
        timeout=600,
        env=environment,
    )
    assert done.returncode == 2, done.stderr
    assert "File too large" in done.stderr
    assert done.stderr.count("\n") == 1
    assert page.read_text() == OLD_PAGE
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".part"] == []


def start_and_stop_at_work(*arguments):
    """Start a command, and return its process when it reports progress and waits for a signal."""
    script = (
        "import sys\nfrom isoscope.cli import main\nfrom isoscope.cli.session import ProgressBar, interrupted\n"
        "def stop(self, *rest): print('at work', flush=True); interrupted.wait()\n"
        "ProgressBar.__call__ = stop\nsys.exit(main.main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", script, *map(str, arguments)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "at work\n"
    return process


def test_ctrl_c_prints_one_line_and_changes_no_file(tmp_path):
    slow, page = tmp_path / "slow.npy", tmp_path / "page.html"
    np.save(slow, np.random.default_rng(0).standard_normal((6_000, 64)).astype(np.float32))
    page.write_text(OLD_PAGE)
    process = start_and_stop_at_work("audit", slow, "--html", page)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert err.strip() == "isoscope: interrupted; existing files are unchanged"
    assert page.read_text() == OLD_PAGE


def test_help_and_version_import_nothing_heavy():
    code = "import sys; from isoscope.cli.main import main; main(['--help']); print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for heavy in ("numpy", "pyarrow", "sklearn", "numba", "torch", "matplotlib", "rich.console"):
        assert f"'{heavy}'" not in loaded
    assert run("--version").stdout.strip() == f"isoscope {isoscope.__version__}"


def test_inputs_are_never_overwritten(cone, tmp_path, capsys):
    before = cone.read_bytes()
    link = tmp_path / "link.npy"
    link.symlink_to(cone)
    for target in (cone, link, tmp_path / "x" / ".." / "cone.npy"):
        (tmp_path / "x").mkdir(exist_ok=True)
        for option in ("--html", "--json"):
            assert main(["audit", str(cone), option, str(target)]) == 2
        assert main(["audit", str(tmp_path / "link.npy"), "--queries", str(cone), "--json", str(target)]) == 2
        assert main(["convert", str(cone), str(target)]) == 2
    assert "already an input or output" in capsys.readouterr().err
    assert cone.read_bytes() == before


def test_fail_on_worse_compares_with_the_baseline(cone, ball, tmp_path, capsys):
    saved = tmp_path / "saved.json"
    assert main(["audit", str(cone), "--fail-on", "worse"]) == 2
    main(["audit", str(cone), "--json", str(saved)])
    assert main(["audit", str(cone), "--baseline", str(saved), "--fail-on", "worse"]) == 0  # bad, and no worse
    main(["audit", str(ball), "--json", str(saved)])
    assert main(["audit", str(cone), "--baseline", str(saved), "--fail-on", "worse"]) == 1


@pytest.mark.parametrize("spoil", ['"value": "abc"', '"value": true', '"value": [1]'])
def test_damaged_baseline_prints_one_line(cone, tmp_path, capsys, spoil):
    saved = tmp_path / "saved.json"
    main(["audit", str(cone), "--json", str(saved)])
    saved.write_text(re.sub(r'"value": [-0-9.e]+', spoil, saved.read_text(), count=1))
    assert main(["audit", str(cone), "--baseline", str(saved)]) == 2
    assert "saved.json" in capsys.readouterr().err


def test_a_closed_pipe_changes_neither_exit_code_nor_files(ball, tmp_path):
    saved = tmp_path / "saved.json"
    command = f"{sys.executable} -m isoscope audit {ball} --json {saved} --fail-on bad | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert json.loads(saved.read_text())["source"]["rows"] == 500


def test_main_restores_the_signal_handlers(cone, capsys):
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    for arguments in (["similarity", str(cone), "0.5"], ["audit", "nosuch.npy"]):
        main(arguments)
        assert [signal.getsignal(number) for number in numbers] == before


COMMANDS = [
    "audit",
    "similarity",
    "convert",
    "sketch",
    "fit",
    "apply",
    "fix",
    "advise",
    "threshold",
    "embed",
    "finetune",
    "demo",
]


@pytest.mark.parametrize(
    "command", [[], *([name] for name in COMMANDS), *(["study", name] for name in ("run", "show"))]
)
def test_help_fits_in_80_columns_and_truncates_nothing(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*command, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(" ".join(["Usage: isoscope", *command]))
    assert max(map(len, text.splitlines())) <= 80
    assert "..." not in text.split("\n", 1)[1]


def test_no_arguments_prints_one_line_with_a_suggestion(capsys):
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "isoscope demo" in err
    assert err.count("\n") == 1


def test_only_newlines_separate_the_lines_of_a_text_file(cone, tmp_path, capsys):
    lines = tmp_path / "text.txt"
    lines.write_text("".join(f"a\u2028b\x85 {i}\n" for i in range(500)), encoding="utf-8")
    assert main(["audit", str(cone), "--text", str(lines)]) == 0


def test_sigterm_removes_temporary_files(tmp_path):
    source, target = tmp_path / "big.npy", tmp_path / "big.parquet"
    np.save(source, np.random.default_rng(0).standard_normal((40_000, 64)).astype(np.float32))
    process = start_and_stop_at_work("convert", source, target)
    assert len(list(tmp_path.glob(".*.part"))) == 1
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=600)
    assert process.returncode == 130
    assert [path.name for path in tmp_path.iterdir()] == ["big.npy"]


def test_reader_that_closes_early_is_not_an_error(cone):
    command = f"{sys.executable} -m isoscope audit {cone} | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=600)
    assert "Traceback" not in done.stderr
    assert "Broken" not in done.stderr


def test_swallowed_interrupt_is_reraised():
    from isoscope.cli.session import InterruptibleProgressBar, interrupted

    interrupted.set()
    try:
        with InterruptibleProgressBar() as bar, pytest.raises(KeyboardInterrupt):
            bar("summing up", 5, 0.5)
    finally:
        interrupted.clear()


# groups, and several sources


@pytest.fixture
def layers(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    table = {"embedding": list(rng.standard_normal((120, 6)).astype("f4")), "layer": np.arange(120) % 2}
    pq.write_table(pa.table(table), tmp_path / "states.parquet")
    return tmp_path / "states.parquet"


def test_groups_are_audited_separately(layers, tmp_path, capsys):
    saved = tmp_path / "g.json"
    assert main(["audit", str(layers), "--by", "layer", "--json", str(saved)]) == 0
    assert "states.parquet by layer: 2 groups" in capsys.readouterr().out
    assert isoscope.GroupedAudit.from_json(saved)[1].n == 60


def test_several_sources_are_compared(cone, layers, tmp_path, capsys):
    saved = tmp_path / "c.json"
    assert main(["audit", str(cone), str(layers), str(cone), "--json", str(saved)]) == 0
    content = json.loads(saved.read_text())
    assert content["schema"] == "isoscope.comparison/1"
    assert [audit["source"]["name"] for audit in content["audits"]] == [cone.name, layers.name, cone.name]
    assert content["agreement"] == [None, 1.0]
    assert main(["audit", str(layers), str(layers), "--by", "layer", "--json", str(saved)]) == 0
    content = json.loads(saved.read_text())
    assert [audit["schema"] for audit in content["audits"]] == ["isoscope.grouped-audit/1"] * 2
    assert "IsoScore" in capsys.readouterr().out


def test_fail_on_covers_all_groups_and_sources(cone, layers, tmp_path, capsys):
    assert main(["audit", str(layers), "--fail-on", "bad"]) == 0
    assert main(["audit", str(layers), str(cone), "--fail-on", "bad"]) == 1
    np.save(tmp_path / "x.npy", np.concatenate([np.random.default_rng(0).standard_normal((100, 6))] * 2))
    (tmp_path / "f.txt").write_text("".join(f"{i + 1}\n" for i in range(200)))
    assert main(["audit", str(tmp_path / "x.npy"), "--frequency", str(tmp_path / "f.txt"), "--by", "frequency"]) == 0
    assert "1–25" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--by", "depth"], "has no column depth for by: the columns are layer"),
        (["--by", "layer", "--queries", "{layers}"], "--by cannot be combined with --baseline or --queries"),
        (["{layers}", "--baseline", "b.json"], "several sources cannot be combined with --baseline or --queries"),
        (["--columns", "mass=layer"], "vectors, labels, types, text, ids, frequency or groups"),
    ],
)
def test_options_incompatible_with_groups_and_several_sources(layers, capsys, arguments, complaint):
    assert main(["audit", str(layers), *(each.format(layers=layers) for each in arguments)]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    "failure", [MemoryError("Unable to allocate 8.00 GiB"), OSError(errno.ENOMEM, "Cannot allocate memory")]
)
def test_out_of_memory_prints_one_line_with_advice(cone, capsys, monkeypatch, failure):
    def full(*arguments, **options):
        raise failure

    monkeypatch.setattr("isoscope.auditing.audit.audit", full)
    assert main(["audit", str(cone)]) == 2
    message = capsys.readouterr().err
    assert re.fullmatch(r"isoscope: out of memory \(.*llocate.*\): .* --max-memory 2GB\n", message)


@pytest.mark.parametrize(
    "words",
    [
        ["audit", "SOURCE"],
        ["similarity", "SOURCE", "0.5"],
        ["convert", "SOURCE", "new.npy"],
        ["fit", "center", "SOURCE", "-o", "repair"],
        ["fix", "center", "SOURCE", "-o", "new.npy"],
        ["advise", "SOURCE"],
    ],
)
def test_max_memory_applies_to_one_command(words, cone, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [str(cone) if word == "SOURCE" else word for word in words]
    assert main([*words, "--max-memory", "100MB"]) == 2
    expected = r"isoscope: .*100MB.*d = 8.*\d+MB.*\n"
    assert re.fullmatch(expected, capsys.readouterr().err)
    assert main([*words, "--max-memory", "much"]) == 2
    assert "'much'" in capsys.readouterr().err
    assert main(["convert", str(cone), str(tmp_path / "new.npy")]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["threshold", "{}", "--false-matches", "0"], "--false-matches is 0.0: need a rate"),
        (["threshold", "{}", "--f1"], "--f1 needs judgments: "),
        (["threshold", "{}", "--f1"], "without them, pass --false-matches"),
        (["fit", "whiten", "{}", "--components", "99", "-o", "repair"], "--components is 99 but the vectors have only"),
        (["audit", "{}", "--seed", "-1"], "isoscope: --seed is -1: need a non-negative integer\n"),
        (["audit", "{}", "--labels", "labels.txt"], "labels.txt has 2 entries but {} has 500 rows; pass one"),
        (["advise", "{}", "--pairs", "pairs.csv"], "pass the ids (--ids, --query-ids with a column or a file)"),
        (["threshold", "{}", "--pairs", "graded.csv"], "pass the lowest grade of a match as --match-from\n"),
    ],
)
def test_errors_name_options_and_not_parameters_in_python(arguments, message, cone, monkeypatch, capsys):
    monkeypatch.chdir(cone.parent)
    Path("labels.txt").write_text("a\nb\n", encoding="utf-8")
    Path("pairs.csv").write_text("id1,id2,score\n" + "".join(f"a,b{i},{i % 2}\n" for i in range(40)), encoding="utf-8")
    Path("graded.csv").write_text("".join(f"{i},{i + 1},{i % 4}\n" for i in range(99)), encoding="utf-8")
    assert main([each.replace("{}", cone.name) for each in arguments]) == 2
    assert message.replace("{}", cone.name) in capsys.readouterr().err


def test_notes_name_options_and_not_parameters_in_python(cone, capsys):
    rows = np.load(cone)
    rows[3] = 0
    np.save(cone, rows)
    labels = cone.with_name("labels.txt")
    labels.write_text("a\nb\n" * 250, encoding="utf-8")
    main(["threshold", str(cone), "--labels", str(labels)])
    out = " ".join(capsys.readouterr().out.split())
    assert "to drop it, pass --zeros drop." in out
    assert "(CLI: " not in out


def test_a_sketch_is_named_as_one(cone, capsys):
    sketch = cone.with_suffix(".sketch")
    assert main(["sketch", str(cone), "-o", str(sketch)]) == 0
    assert main(["audit", str(sketch)]) == 2
    error = capsys.readouterr().err
    assert "is a sketch, which contains no rows: compare it with isoscope same" in error
    assert ".npz" not in error
