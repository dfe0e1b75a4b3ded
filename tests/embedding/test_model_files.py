"""Model folders whose settings name code, which runs only if the user allows it."""

import json
import logging
import shutil
import sys

import pytest

pytest.importorskip("sentence_transformers")

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Router, Transformer

from isoscope import embed
from isoscope._core.errors import FileFormatError, ParameterError
from isoscope.embedding.model_files import find_foreign_code, is_sentence_model
from tests.finetuning import toy


@pytest.fixture(autouse=True)
def one_thread():
    with toy.one_thread():
        yield


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two saved models: one with a dense layer, one with a router."""
    folder = tmp_path_factory.mktemp("models")
    inner = Transformer(str(toy.encoder(folder / "bert")), max_seq_length=16)
    modules = [inner, Pooling(32), Dense(32, 8), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "dense"))
    router = Router({"query": [inner, Pooling(32)], "document": [inner, Pooling(32)]}, default_route="document")
    SentenceTransformer(modules=[router], device="cpu").save(str(folder / "router"))
    return folder


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """An importable module that records that it ran; the function returns whether it did."""
    (tmp_path / "evil_module.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\nclass Evil:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda: (tmp_path / "ran").exists()
    sys.modules.pop("evil_module", None)


def changed(folder, to, file, change):
    """A copy of a model with one changed settings file."""
    shutil.copytree(folder, to)
    path = to / file
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(change(content)))
    return to


def router_file(folder):
    return next(path.name for path in folder.glob("*.json") if "types" in json.loads(path.read_text()))


def test_models_of_the_package_itself_are_embedded(models):
    for name in ("dense", "router"):
        assert find_foreign_code(models / name) is None
        own = SentenceTransformer(str(models / name), device="cpu").encode(["the good film"])
        found = embed(models / name, ["the good film"], pool="sentence-transformers").take([0])
        assert abs(found - own).max() < 2e-6


def test_router_that_names_an_importable_class_does_not_import_it(models, tmp_path, evil):
    file = router_file(models / "router")

    def change(content):
        content["types"][next(iter(content["types"]))] = "evil_module.Evil"
        return content

    folder = changed(models / "router", tmp_path / "m", file, change)
    with pytest.raises(ParameterError, match=rf"{file} names 'evil_module.Evil'.*--trust-remote-code") as error:
        embed(folder, ["a b"], pool="sentence-transformers")
    assert "\n" not in str(error.value)
    assert not evil()


@pytest.mark.parametrize("name", ["evil_module.Evil", "torch.utils.collect_env.main", "torch.nn.modules.module.Module"])
def test_activation_function_that_is_not_one_does_not_run(models, tmp_path, evil, capsys, name):
    folder = changed(
        models / "dense", tmp_path / "m", "2_Dense/config.json", lambda content: content | {"activation_function": name}
    )
    with pytest.raises(ParameterError, match=r"2_Dense.config\.json names .*--trust-remote-code"):
        embed(folder, ["a b"], pool="sentence-transformers")
    assert not evil()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("modules.json", [{"idx": 0, "name": "0", "path": "", "type": "evil_module.Evil"}]),
        ("modules.json", [{"path": "", "type": "sentence_transformers.util.misc.import_from_string"}]),
        ("modules.json", [{"path": "../other", "type": "sentence_transformers.models.Transformer"}]),
        ("0_WordEmbeddings/wordembedding_config.json", {"tokenizer_class": "evil_module.Evil"}),
        ("sentence_bert_config.json", {"model_args": {"trust_remote_code": True}}),
        ("deep/router_config.json", {"types": {"../x": "sentence_transformers.models.Dense"}}),
    ],
)
def test_every_setting_that_names_code_is_checked(tmp_path, file, content):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(json.dumps(content))
    assert find_foreign_code(tmp_path).startswith(file)


def test_linked_folders_and_damaged_settings_are_checked(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "config.json").write_text('{"activation_function": "evil_module.Evil"}')
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "broken.json").write_text("{")
    (folder / "loop").symlink_to(folder)
    assert find_foreign_code(folder) is None
    (folder / "1_Dense").symlink_to(tmp_path / "real")
    assert find_foreign_code(folder) == "1_Dense/config.json names 'evil_module.Evil'"
    (folder / "1_Dense").unlink()
    (folder / "deep.json").write_text("[" * 100_000)
    with pytest.raises(FileFormatError, match=r"deep\.json .* nested too deeply"):
        find_foreign_code(folder)


def test_activations_and_older_names_of_modules_are_allowed(tmp_path):
    names = ["torch.nn.modules.activation.Tanh", "torch.nn.modules.linear.Identity", "torch.nn.GELU", "gelu_new"]
    (tmp_path / "a.json").write_text(json.dumps([{"activation_function": name} for name in names]))
    types = ["sentence_transformers.models.Pooling", "sentence_transformers.sparse_encoder.models.SpladePooling"]
    types += ["sentence_transformers.sentence_transformer.modules.pooling.Pooling"]
    (tmp_path / "modules.json").write_text(json.dumps([{"path": "1_Pooling", "type": name} for name in types]))
    assert find_foreign_code(tmp_path) is None


@pytest.fixture
def hub(models, tmp_path, monkeypatch):
    """The cache of the Hugging Face Hub with a model, and no network; returns the folder of the cached files."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    cached = tmp_path / "hub" / "models--owner--name"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("0" * 40)
    shutil.copytree(models / "dense", cached / "snapshots" / ("0" * 40))
    return cached / "snapshots" / ("0" * 40)


def test_models_on_the_hub_are_recognized_and_checked(hub, evil):
    assert is_sentence_model("owner/name")
    assert not is_sentence_model("owner/other")
    assert find_foreign_code(hub) is None
    (hub / "2_Dense" / "config.json").write_text('{"activation_function": "evil_module.Evil"}')
    with pytest.raises(ParameterError, match=r"owner/name .*names 'evil_module\.Evil'"):
        embed("owner/name", ["a b"], pool="sentence-transformers")
    assert not evil()


def test_sparse_encoders_and_plain_models_are_not_sentence_models(models, tmp_path):
    assert is_sentence_model(str(models / "dense"))
    assert not is_sentence_model(str(models / "bert"))
    folder = changed(
        models / "dense",
        tmp_path / "m",
        "config_sentence_transformers.json",
        lambda content: content | {"model_type": "SparseEncoder"},
    )
    assert not is_sentence_model(str(folder))


def test_attempts_to_reach_the_hub_are_not_logged(monkeypatch):
    logged = []

    def download(model, name):
        logged.append(logging.getLogger("huggingface_hub.utils._http").isEnabledFor(logging.WARNING))
        raise OSError("no network")

    monkeypatch.setattr(pytest.importorskip("huggingface_hub"), "hf_hub_download", download)
    monkeypatch.setattr(logging.getLogger("huggingface_hub"), "level", logging.WARNING)
    assert not is_sentence_model("no-such-model")
    assert logged == [False]
