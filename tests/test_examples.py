"""The example scripts run unchanged on a tiny model."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def load_example(name: str):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    pytest.importorskip("transformers", reason="transformers is not installed")
    from tests.finetuning import toy

    return str(toy.encoder(tmp_path_factory.mktemp("model")))


def test_plain_loop(model, capsys):
    load_example("train_plain_loop").main(model, steps=2)
    printed = capsys.readouterr().out
    assert "step  2  loss" in printed
    assert re.search(r"isoscore_unbiased +\d\.\d+ → \d\.\d+", printed)


@pytest.mark.parametrize(
    ("name", "needs"),
    [("train_hugging_face", "accelerate"), ("train_lightning", "lightning")],
)
def test_trainers(name, needs, model, capsys):
    pytest.importorskip(needs, reason=f"{needs} is not installed")
    load_example(name).main(model, rows=64)
    page = Path(re.search(r"open (.*\.html)", capsys.readouterr().out)[1])
    assert "anisotropy" in page.read_text(encoding="utf-8")


def test_sentence_transformers(model, capsys):
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    pytest.importorskip("datasets", reason="datasets is not installed")
    load_example("train_sentence_transformers").main(model, rows=64)
    assert re.search(r"held-out definitions: \d\.\d+ → \d\.\d+", capsys.readouterr().out)
