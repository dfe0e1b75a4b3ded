"""The token that represents a text."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

from isoscope.finetuning.tokenizing import load_reader
from tests.finetuning import toy


def test_token_of_a_text_follows_the_architecture(tmp_path):
    assert load_reader(str(toy.encoder(tmp_path / "encoder")), 16).pool == "cls"
    assert load_reader(str(toy.decoder(tmp_path / "decoder")), 16).pool == "last"
    toy.tokenizer(classifying=True).save_pretrained(tmp_path / "decoder")  # a causal model whose tokenizer has [CLS]
    assert load_reader(str(tmp_path / "decoder"), 16).pool == "last"
