"""`make bench` runs all its parts, even if one of them fails."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def performance(tmp_path, monkeypatch):
    """The module, with three parts in a folder of its own: one fails, one takes too long, one misses a target."""
    spec = importlib.util.spec_from_file_location("performance", BENCHMARKS / "performance.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "performance", module)
    spec.loader.exec_module(module)
    (tmp_path / "failing.py").write_text("import a_peer_that_is_not_installed")
    (tmp_path / "slow.py").write_text("import time; print('waiting'); time.sleep(600)")
    (tmp_path / "missed.py").write_text("import sys; print('| 1.2× | 2× ✗ |', sys.argv[1:])")
    monkeypatch.setattr(module, "HERE", tmp_path)
    monkeypatch.setattr(
        module,
        "PARTS",
        {
            "failing": module.Part("failing.py", ()),
            "slow": module.Part("slow.py", ()),
            "missed": module.Part("missed.py", ("--small",), reads_data=True),
        },
    )
    return module


def run(module, monkeypatch, capfd, *options):
    monkeypatch.setattr(sys, "argv", ["performance.py", *options])
    code = module.main()
    return code, capfd.readouterr().out


def test_a_failing_part_does_not_stop_the_others(performance, monkeypatch, capfd):
    options = ["--only", "failing", "missed", "--data", "texts", "--page", "page.md"]
    code, out = run(performance, monkeypatch, capfd, *options)
    assert code == 1
    assert "No module named 'a_peer_that_is_not_installed'" in out
    missed, times = out.split("=== Missed targets: 1\n")[1].split("=== Time of each part\n")
    assert missed.startswith("| 1.2× | 2× ✗ | ['--page', 'page.md', '--data', 'texts']\n")
    assert [line.split()[0] for line in times.splitlines()] == ["failing", "missed", "total"]
    assert "FAILED: exit code 1" in times


def test_a_slow_part_is_stopped(performance, monkeypatch, capfd):
    code, out = run(performance, monkeypatch, capfd, "--only", "slow", "--limit", "0.1")
    assert code == 1
    assert "FAILED: stopped after 0.1 s" in out


def test_missed_targets_are_not_failures(performance, monkeypatch, capfd):
    code, out = run(performance, monkeypatch, capfd, "--only", "missed", "--quick")
    assert code == 0
    assert "| 1.2× | 2× ✗ | ['--small']" in out


def test_quick_measurements_are_not_written_into_a_page(performance, monkeypatch, capfd):
    with pytest.raises(SystemExit):
        run(performance, monkeypatch, capfd, "--quick", "--page", "page.md")
    assert "omit --page" in capfd.readouterr().err


def test_make_bench_is_one_command():
    plan = subprocess.run(
        ["make", "--dry-run", "bench", "DATA=texts"], cwd=BENCHMARKS.parent, capture_output=True, text=True, check=True
    ).stdout
    assert "benchmarks/performance.py --page docs/performance.md --data texts" in plan
