"""Errors of models that cannot be loaded, as one line."""

import pytest

pytest.importorskip("transformers")

from isoscope.training.loading import shorten_load_error


def test_the_first_sentences_are_kept():
    error = ValueError("The file\nis damaged. It ends early. " + "More. " * 60)
    assert shorten_load_error(error).startswith("The file is damaged. It ends early")
    assert len(shorten_load_error(error)) <= 201
    assert shorten_load_error(KeyError()) == "KeyError"


def test_advice_to_unpickle_a_file_is_not_repeated():
    advice = "Weights only load failed. Re-running `torch.load` with `weights_only` set to `False` will likely succeed"
    hidden = OSError("Unable to load weights from pytorch checkpoint file")
    hidden.__context__ = RuntimeError(advice)
    for error in (RuntimeError(advice), hidden):
        message = shorten_load_error(error)
        assert "pickle with objects other than tensors" in message
        assert "model.safetensors" in message
        assert "weights_only" not in message


def test_a_lack_of_memory_is_no_damage():
    with pytest.raises(MemoryError):
        shorten_load_error(MemoryError())
