"""The GitHub Action and the pre-commit hooks: their shell steps and entries run on small files."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
if not (ROOT / "action.yml").exists():
    pytest.skip("action.yml is not in this distribution", allow_module_level=True)
yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))}
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"] if "run" in step}
needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    good = rng.standard_normal((200, 8)).astype(np.float32)
    np.save(tmp_path / "good.npy", good)
    np.save(tmp_path / "bad.npy", good + 4)
    return tmp_path


def run_step(name, folder, **inputs):
    """Run a step as a runner does; return its exit code, its outputs and its summary."""
    values = {key: spec.get("default", "") for key, spec in ACTION["inputs"].items()}
    values |= {key.replace("_", "-"): value for key, value in inputs.items()}
    step = STEPS[name]
    given = {
        variable: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda match: values[match[1]], text)
        for variable, text in step["env"].items()
    }
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    python = tools / "python"
    python.write_text(
        f'#!/bin/bash\nif [[ "$2" == pip ]]; then printf "%s\\n" "$@" >"{folder}/pip.txt"; exit 0; fi\n'
        f'exec {shlex.quote(sys.executable)} "$@"\n'
    )
    python.chmod(0o755)
    files = {"GITHUB_OUTPUT": folder / "outputs", "GITHUB_STEP_SUMMARY": folder / "summary.md"}
    environment = {
        **os.environ,
        **given,
        **{key: str(path) for key, path in files.items()},
        "RUNNER_TEMP": str(folder),
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path]),
    }
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    lines = files["GITHUB_OUTPUT"].read_text().splitlines() if files["GITHUB_OUTPUT"].exists() else []
    summary = files["GITHUB_STEP_SUMMARY"].read_text() if files["GITHUB_STEP_SUMMARY"].exists() else ""
    return done, dict(line.split("=", 1) for line in lines), summary


def test_scripts_take_inputs_only_from_the_environment():
    for step in STEPS.values():
        assert "${{" not in step["run"]
        assert step["shell"] == "bash"
    used = set(re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text(encoding="utf-8")))
    assert used == set(ACTION["inputs"])
    assert all(spec["description"] for spec in [*ACTION["inputs"].values(), *ACTION["outputs"].values()])


@needs_bash
def test_an_audit_writes_its_page_its_json_and_a_summary(folder):
    done, outputs, summary = run_step("Check the vectors", folder, source="good.npy", fail_on="bad")
    assert done.returncode == 0, done.stderr
    assert outputs["exit-code"] == "0"
    assert json.loads(Path(outputs["json"]).read_text())["schema"] == "isoscope.audit/1"
    assert Path(outputs["page"]).read_text().lower().startswith("<!doctype html>")
    assert summary.startswith("## isoscope audit: passed\n")
    assert "good.npy" in summary


@needs_bash
def test_a_worse_audit_than_the_baseline_fails_the_job(folder):
    _, outputs, _ = run_step("Check the vectors", folder, source="good.npy")
    shutil.copy(outputs["json"], folder / "baseline.json")
    for written in ("outputs", "summary.md"):
        (folder / written).unlink()
    done, outputs, summary = run_step(
        "Check the vectors", folder, source="bad.npy", baseline="baseline.json", fail_on="worse"
    )
    assert (done.returncode, outputs["exit-code"]) == (1, "1")
    assert any(change["direction"] == "worse" for change in json.loads(Path(outputs["json"]).read_text())["changes"])
    assert "audit: failed" in summary


@needs_bash
@pytest.mark.parametrize(("source", "code"), [("good.npy", 0), ("bad.npy", 1)])
def test_same_gates_on_earlier_vectors(folder, source, code):
    done, outputs, _ = run_step("Check the vectors", folder, command="same", source=source, baseline="good.npy")
    assert done.returncode == code, done.stderr
    assert (json.loads(Path(outputs["json"]).read_text())["answer"] == "same") == (code == 0)


@needs_bash
@pytest.mark.parametrize(
    "inputs",
    [
        {"source": "x.npy; touch hacked"},
        {"source": "$(touch hacked)"},
        {"source": '"; touch hacked; "'},
        {"source": "good.npy", "fail_on": "bad; touch hacked"},
        {"source": "good.npy", "baseline": "`touch hacked`"},
        {"source": "--help"},
        {"source": "good.npy", "command": "convert"},
        {"source": "good.npy", "command": "audit; touch hacked"},
        {"source": "good.npy", "command": "same"},
    ],
)
def test_a_hostile_or_wrong_input_is_an_error(folder, inputs):
    done, _, _ = run_step("Check the vectors", folder, **inputs)
    assert done.returncode == 2
    assert not (folder / "hacked").exists()


@needs_bash
@pytest.mark.parametrize(
    ("version", "code"), [("", 0), ("0.2.0", 0), ("0.2.0 --index-url=x", 2), ("$(touch hacked)", 2)]
)
def test_the_requested_version_is_installed(folder, version, code):
    done, _, _ = run_step("Install isoscope", folder, version=version)
    assert done.returncode == code
    assert not (folder / "hacked").exists()
    if code == 0:
        wanted = f"isoscope=={version}" if version else "isoscope"
        assert (folder / "pip.txt").read_text().splitlines() == ["-m", "pip", "install", wanted]


@pytest.mark.parametrize(
    ("hook", "words", "code"),
    [
        ("isoscope-audit", ["--fail-on=bad", "good.npy"], 0),
        ("isoscope-audit", ["--fail-on=bad", "bad.npy"], 1),
        ("isoscope-same", ["good.npy", "bad.npy"], 1),
    ],
)
def test_a_hook_passes_or_fails(folder, hook, words, code):
    program, *arguments = HOOKS[hook]["entry"].split()
    assert program == "isoscope"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-m", "isoscope", *arguments, *words], cwd=folder, env=environment, capture_output=True
    )
    assert done.returncode == code
    assert not HOOKS[hook]["pass_filenames"]  # --baseline takes one source
    assert re.search(HOOKS[hook]["files"], "data/good.npy")
