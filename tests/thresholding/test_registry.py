"""The registry of models: its content, and which name or folder finds an entry."""

import hashlib

import numpy as np
import pytest

from isoscope._core.errors import NotFoundError, ParameterError
from isoscope.thresholding.registry import find_model, hash_weights, load_registry

NAMES = list(load_registry())


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_is_complete_and_consistent(name):
    entry = load_registry()[name]
    assert entry.rows == 1750
    assert len(entry.revision) == 64
    assert "1,750 WordNet glosses" in entry.about
    assert entry.similarity.percentile(entry.floor) == pytest.approx(50, abs=0.5)
    assert 0 < entry.isoscore < 1
    mean = float(np.interp(np.linspace(0, 1, 2001), entry.similarity.shares, entry.similarity.pairs).mean())
    assert mean == pytest.approx(entry.mean_cosine, abs=0.005)
    rising = [entry.similarity.percentile(cosine) for cosine in np.linspace(-1, 1, 81)]
    assert rising == sorted(rising)
    nearest = entry.similarity.nearest_percentile(entry.floor)
    assert nearest is not None
    assert nearest < 50


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_with_reduced_precision_says_so_in_its_name(name):
    entry = load_registry()[name]
    short = entry.model.split("/")[-1]
    assert name == (short if entry.precision == "fp32" else f"{short} ({entry.precision})")


@pytest.mark.parametrize("model", ["all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2", "ALL-minilm-l6-V2"])
def test_a_model_is_found_by_its_name(model):
    assert find_model(model).name == "all-MiniLM-L6-v2"


@pytest.mark.parametrize("model", ["bge-small-en-v1.5", "BAAI/bge-small-en-v1.5"])
def test_the_original_of_a_reduced_copy_is_not_in_the_registry(model):
    with pytest.raises(NotFoundError, match=r'original.*fp16.*"bge-small-en-v1.5 \(fp16\)"'):
        find_model(model)
    assert find_model("bge-small-en-v1.5 (fp16)").precision == "fp16"


def test_an_unknown_model_gets_the_list_of_known_ones():
    with pytest.raises(NotFoundError, match=r"no-such-model is not in the registry.*all-mpnet-base-v2"):
        find_model("no-such-model")


def test_a_folder_with_other_weights_is_another_revision(tmp_path):
    folder = tmp_path / "all-MiniLM-L6-v2"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"other weights")
    with pytest.raises(NotFoundError, match=r"another revision of all-minilm-l6-v2.*SHA-256 [0-9a-f]{12}…"):
        find_model(str(folder))
    other = folder.rename(tmp_path / "my-model")
    with pytest.raises(NotFoundError, match="is not a model of the registry"):
        find_model(str(other))


def test_a_folder_is_found_by_its_weights(tmp_path, monkeypatch):
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    entry = load_registry()["gte-small"]
    monkeypatch.setattr("isoscope.thresholding.registry.hash_weights", lambda folder: entry.revision)
    assert find_model(str(tmp_path)) is entry


def test_the_hash_covers_all_files_of_weights_in_order(tmp_path):
    for name, content in (("b.safetensors", b"2"), ("a.safetensors", b"1"), ("other.txt", b"3")):
        (tmp_path / name).write_bytes(content)
    assert hash_weights(tmp_path) == hashlib.sha256(b"12").hexdigest()


def test_a_folder_without_weights_is_no_model(tmp_path):
    with pytest.raises(ParameterError, match=r"contains no weights.*model.safetensors"):
        find_model(str(tmp_path))
