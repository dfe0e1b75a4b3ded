"""The scripts that a user would copy run as they are, on a tiny model."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name: str):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    pytest.importorskip("transformers", reason="transformers is not installed")
    from tests.finetuning import toy

    return str(toy.encoder(tmp_path_factory.mktemp("model")))


def test_a_loop_of_ones_own(model, capsys):
    example("train_plain_loop").judged_traces(model, steps=2)
    said = capsys.readouterr().out
    assert "step  2  loss" in said
    assert re.search(r"isoscore_unbiased +\d\.\d+ → \d\.\d+", said)


@pytest.mark.parametrize(
    ("name", "needs"),
    [("train_hugging_face", "accelerate"), ("train_lightning", "lightning")],
)
def test_trainers(name, needs, model, capsys):
    pytest.importorskip(needs, reason=f"{needs} is not installed")
    example(name).judged_traces(model, rows=64)
    page = Path(re.search(r"open (.*\.html)", capsys.readouterr().out)[1])
    assert "anisotropy" in page.read_text(encoding="utf-8")


def test_sentence_transformers(model, capsys):
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    pytest.importorskip("datasets", reason="datasets is not installed")
    example("train_sentence_transformers").judged_traces(model, rows=64)
    assert re.search(r"not seen: \d\.\d+ → \d\.\d+", capsys.readouterr().out)
