"""Faults of embedding: lost, repeated, shuffled or mislabeled rows, padding, incomplete stores, wrong messages."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import isoscope
from isoscope._core.errors import InputError
from isoscope.embedding import run as room
from isoscope.embedding.tokens import Windows
from tests.finetuning import toy

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

embed = partial(isoscope.embed, pool="tokens")  # rows are tokens where a test does not choose another pooling


@pytest.fixture(autouse=True)
def _one_thread():
    with toy.one_thread():
        yield


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return toy.encoder(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    path = tmp_path_factory.mktemp("words") / "tiny.vec"
    path.write_text("".join(f"{word} {i} {i * i} 1\n" for i, word in enumerate(toy.WORDS)), encoding="utf-8")
    return str(path)


def table(folder: Path) -> pa.Table:
    """Return all rows of a store, in the order on disk."""
    return pa.concat_tables([pa.ipc.open_file(path).read_all() for path in sorted(folder.glob("layer-*.arrow"))])


def rows_of(found: pa.Table) -> np.ndarray:
    return np.stack(found["embedding"].to_numpy(zero_copy_only=False))


def blocks_of(monkeypatch, tokens: int) -> None:
    monkeypatch.setattr(room, "_BLOCK_TOKENS", (tokens, tokens))


# every row is the model's own


def own_states(model, ids: list[int]) -> list[np.ndarray]:
    with torch.no_grad():
        found = model(input_ids=torch.tensor([ids]), output_hidden_states=True)
    return [each[0].numpy() for each in found.hidden_states]


def family(name: str):
    words = len(toy.tokenizer(classifying=True))
    sizes = {"vocab_size": words, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 64, "max_position_embeddings": 66, "pad_token_id": 0}
    made = {
        "roberta": lambda t: t.RobertaModel(t.RobertaConfig(**sizes)),
        "albert": lambda t: t.AlbertModel(t.AlbertConfig(**sizes, embedding_size=16)),
        "electra": lambda t: t.ElectraModel(t.ElectraConfig(**sizes, embedding_size=16)),
        "longformer": lambda t: t.LongformerModel(t.LongformerConfig(**sizes, attention_window=[4, 4, 4])),
        "xlnet": lambda t: t.XLNetModel(t.XLNetConfig(vocab_size=words, d_model=32, n_layer=3, n_head=2, d_inner=64)),
        "fnet": lambda t: t.FNetModel(
            t.FNetConfig(vocab_size=words, hidden_size=32, num_hidden_layers=3, intermediate_size=64, pad_token_id=0)
        ),
        "convbert": lambda t: t.ConvBertModel(t.ConvBertConfig(**sizes, embedding_size=16)),
        "bart": lambda t: t.BartModel(
            t.BartConfig(
                vocab_size=words,
                d_model=32,
                encoder_layers=3,
                decoder_layers=2,
                encoder_attention_heads=2,
                decoder_attention_heads=2,
                encoder_ffn_dim=64,
                decoder_ffn_dim=64,
                max_position_embeddings=64,
            )
        ),
    }
    torch.manual_seed(0)
    model = made[name](transformers).eval()
    for weight in model.parameters():
        weight.data.normal_(0, 0.2)
    return model


@pytest.mark.parametrize(
    "name",
    ["roberta", "albert", "electra", "bart", "longformer", "xlnet", "fnet", "convbert"],
)
def test_rows_equal_states_of_the_model_alone(name, tmp_path):
    model, words = family(name), toy.tokenizer(classifying=True)
    texts = toy.opinions(30, 3)[0]
    embed(model, texts, tmp_path / "s", tokenizer=words, special_tokens="keep", batch_tokens=150)
    found = table(tmp_path / "s")
    layers, documents = found["layer"].to_numpy(), found["document"].to_numpy()
    inner = model.get_encoder() if name == "bart" else model
    for number, text in enumerate(texts):
        own = own_states(inner, words(text)["input_ids"])
        for layer in range(4):
            rows = rows_of(found.filter(pa.array((layers == layer) & (documents == number))))
            np.testing.assert_allclose(rows, own[layer], atol=2e-4, rtol=2e-3)


def test_special_tokens_are_where_the_tokenizer_puts_them(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    made = Tokenizer(models.BPE({"[CLS]": 0, "[SEP]": 1, "x": 2, "y": 3}, []))  # which drops what it lacks, such as "a"
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 1)]
    )
    words = transformers.PreTrainedTokenizerFast(tokenizer_object=made, cls_token="[CLS]", sep_token="[SEP]")
    model = transformers.BertModel(
        transformers.BertConfig(
            vocab_size=4, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
        )
    )
    embed(model, ["x y"], tmp_path / "s", tokenizer=words, special_tokens="keep", layers=[0])
    assert table(tmp_path / "s")["token_id"].to_pylist() == [0, 2, 3, 1]


def test_padding_token_outside_the_vocabulary_is_supported():
    words = toy.tokenizer(classifying=False)
    config = transformers.LlamaConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    words.add_special_tokens({"pad_token": "<pad>"})  # as many a decoder's tokenizer has it, and the model does not
    found = embed(transformers.LlamaModel(config), ["a b c", "a"], tokenizer=words)
    assert len(found) == 2 * 4


def test_checkpoint_with_missing_layers_raises(bert, tmp_path):
    folder = tmp_path / "m"
    shutil.copytree(bert, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 4}))
    with pytest.raises(InputError, match="lacks"):
        embed(str(folder), ["a b"])


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        # transformers 4 does not name the setting
        ("config.json", {"attention_probs_dropout_prob": "x"}, "(attention_probs_dropout_prob|'<' not supported)"),
        ("tokenizer.json", {"post_processor": 3}, "tokenizer"),
        ("tokenizer_config.json", {"model_max_length": []}, "tokenizer"),
        ("tokenizer_config.json", {"tokenizer_class": 3}, "tokenizer"),
    ],
)
def test_damaged_model_files_raise_one_line_error(bert, tmp_path, name, change, message):
    folder = shutil.copytree(bert, tmp_path / "model")
    content = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(content | change))
    with pytest.raises(InputError, match=rf"model.* cannot be .*{message}|{message}.* cannot be loaded") as caught:
        embed(folder, ["a b"])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_tokenizer_without_files_raises(bert, sentences, tmp_path):
    for model, pool in ((bert, "mean"), (sentences, "sentence-transformers")):
        folder = shutil.copytree(model, tmp_path / pool)
        (folder / "tokenizer.json").unlink()
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
        with pytest.raises(InputError, match=r"tokenizer.*tokenizer\.json"):
            isoscope.embed(folder, ["a b"], tmp_path / "s", pool=pool)
    assert not (tmp_path / "s").exists()


def test_texts_of_unknown_words_raise(bert, tmp_path):
    with pytest.raises(InputError, match=r"2 tokens \(100%\) are not in the vocabulary"):
        isoscope.embed(bert, ["Ω Ж"], tmp_path / "s")
    with pytest.raises(InputError, match=r"39 tokens \(98%\) are not in the vocabulary"):
        isoscope.embed(bert, ["Ω " * 39 + "a"], tmp_path / "s")
    assert not (tmp_path / "s").exists()
    with pytest.warns(isoscope.DataWarning, match=r"9 tokens \(90%\) are not in the vocabulary"):
        isoscope.embed(bert, ["Ω " * 9 + "a"], tmp_path / "s")


@pytest.mark.parametrize("value", [5, "BertForMaskedLM", [5], {}, []])
def test_invalid_architectures_are_ignored(bert, tmp_path, value):
    folder = shutil.copytree(bert, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": value}))
    notes = []
    isoscope.embed(folder, ["a b"], say=notes.append)
    assert notes[1].endswith("model: BertModel")


class _Call:
    def __reduce__(self):
        return print, ("run",)


def test_pickled_weights_are_loaded_only_if_they_are_tensors(bert, tmp_path, capsys):
    folder = shutil.copytree(bert, tmp_path / "model")
    weights = transformers.BertModel.from_pretrained(bert).state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(dict(weights), folder / "pytorch_model.bin")
    assert np.array_equal(np.concatenate([*embed(folder, ["a b"])]), np.concatenate([*embed(bert, ["a b"])]))
    torch.save(dict(weights) | {"more": _Call()}, folder / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"pickle with objects other than tensors.*model\.safetensors") as caught:
        embed(folder, ["a b"])
    assert "weights_only" not in str(caught.value)
    assert "run" not in capsys.readouterr().out


def test_remote_code_is_not_run(bert, tmp_path):
    for pool in ("mean", "sentence-transformers"):
        if pool == "sentence-transformers":
            pytest.importorskip("sentence_transformers")
        folder, mark = tmp_path / pool, tmp_path / f"{pool}.ran"
        shutil.copytree(bert, folder)
        (folder / "evil.py").write_text(f"open({str(mark)!r}, 'w')\nclass Evil: pass\n")
        config = json.loads((folder / "config.json").read_text())
        config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"}}
        (folder / "config.json").write_text(json.dumps(config))
        modules = [{"idx": 0, "name": "0", "path": "", "type": "evil.Evil"}]
        (folder / "modules.json").write_text(json.dumps(modules))
        with pytest.raises(InputError, match="trust"):
            embed(str(folder), ["a b"], pool=pool)
        assert not mark.exists()


# a loaded model is as it was


def test_loaded_model_keeps_hooks_mode_and_gradients(bert):
    model = transformers.BertModel.from_pretrained(bert)
    model.train()
    hooks = lambda: sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())  # noqa: E731
    before = hooks()
    embed(model, ["a b", "c"], tokenizer=toy.tokenizer(classifying=True))
    assert model.training
    assert all(weight.grad is None and weight.requires_grad for weight in model.parameters())
    assert hooks() == before


def test_layer_names_raise(bert):
    with pytest.raises(InputError, match="layer"):
        embed(str(bert), ["a b"], layers=["embeddings"])


def test_non_models_raise():
    for pool in ("tokens", "sentence-transformers"):
        with pytest.raises(InputError, match="model"):
            embed(5, ["a b"], pool=pool, tokenizer=toy.tokenizer(classifying=True))


# windows


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_windows_contain_each_token_once(data):
    room_, n = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 60))
    windows = Windows(room_, data.draw(st.integers(1, room_)), causal=data.draw(st.booleans()))
    cuts = windows.split(n, room_)
    kept = [token for _, _, first, last in cuts for token in range(first, last)]
    assert kept == [*range(n)]
    assert all(0 <= start <= first < last <= stop <= n and stop - start <= room_ for start, stop, first, last in cuts)


def test_mean_of_long_text_equals_mean_of_its_tokens(bert, tmp_path):
    text = " ".join(toy.WORDS * 5)
    for stride in (None, 3):
        kw = {"window": 12, "stride": stride, "special_tokens": "drop", "layers": [2]}
        tokens = embed(str(bert), [text, "a b"], **kw)
        mean = embed(str(bert), [text, "a b"], pool="mean", **kw)
        n = len(toy.WORDS) * 5
        np.testing.assert_allclose(mean.take([0])[0], tokens.take(np.arange(n)).mean(axis=0), atol=1e-5)


# a choice of tokens


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_sample_has_requested_rows_with_their_own_text(vectors, tmp_path, seed):
    texts = ["a b c d e f g h i j", "k l", "m n o", "p"]
    for most in range(1, 16):
        folder = tmp_path / str(most)
        embed(vectors, texts, folder, max_tokens=most, seed=seed)
        found = table(folder)
        assert found.num_rows == most
        for token, document, position in zip(
            *(found[name].to_pylist() for name in ("token", "document", "position")), strict=True
        ):
            assert texts[document].split()[position] == token


def test_sample_has_exact_size_with_small_blocks(vectors, tmp_path, monkeypatch):
    blocks_of(monkeypatch, 1)
    texts = ["a b c d e f g h i j", "k l", "m n o", "p"]
    for seed in range(6):
        embed(vectors, texts, tmp_path / str(seed), max_tokens=9, seed=seed)
        assert table(tmp_path / str(seed)).num_rows == 9


# texts and labels


def test_more_texts_than_labels_raise(vectors):
    with pytest.raises(InputError, match="labels has 2"):
        embed(vectors, ["a", "b", "c"], labels=[0, 1])


def test_missing_labels_are_null(vectors, tmp_path):
    embed(vectors, ["a", "b", "c"], tmp_path / "s", labels=["x", float("nan"), None])
    assert table(tmp_path / "s")["label"].to_pylist() == ["x", None, None]


def test_booleans_are_labels_of_one_type(vectors, tmp_path):
    for number, labels in enumerate(([True, False], np.array([True, False]), [np.True_, np.False_])):
        embed(vectors, ["a", "b"], tmp_path / str(number), labels=labels)
        assert table(tmp_path / str(number))["label"].to_pylist() == [1, 0]


def test_unsupported_label_types_raise(vectors):
    for labels in ([2**70, 1], 5, "label"):
        with pytest.raises(InputError):
            embed(vectors, ["a", "b"], labels=labels)


@pytest.mark.parametrize("value", ["[1]", '{"a": 1}'])
@pytest.mark.parametrize("role", ["ids", "labels"])
def test_lists_as_ids_or_labels_raise_and_name_the_column(vectors, tmp_path, role, value):
    name = {"ids": "id", "labels": "label"}[role]
    (tmp_path / "t.jsonl").write_text(f'{{"text": "a", "{name}": {value}}}\n{{"text": "b", "{name}": 2}}\n')
    with pytest.raises(InputError, match=rf"the {role} in column {name} of t\.jsonl are lists or objects.*{role}=NAME"):
        isoscope.embed(vectors, tmp_path / "t.jsonl", tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_invalid_text_lists_raise(vectors):
    pandas = pytest.importorskip("pandas")
    for texts in ({"text": ["a b"]}, pandas.DataFrame({"a": ["b c"]}), np.array([["a", "b"]]), [pandas.NA, ["a"]]):
        with pytest.raises(InputError):
            embed(vectors, texts)


def test_text_instead_of_path_raises(vectors):
    with pytest.raises(InputError):
        embed(vectors, "a b c " * 100)


def test_column_option_for_a_list_raises(vectors):
    for more in ({"text": "body"}, {"split": "paragraph"}):
        with pytest.raises(InputError):
            embed(vectors, ["a", "b"], **more)


def test_lone_surrogate_is_read(bert, tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "a \\ud83d b"}\n')
    with pytest.warns(isoscope.DataWarning, match="vocabulary"):
        embed(str(bert), path, tmp_path / "s", layers=[0])
    assert table(tmp_path / "s")["token"].to_pylist()[::2] == ["a", "b"]


def test_long_table_cell_is_read(vectors, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("text\n" + "a b " * 50_000 + "\n")
    assert len(embed(vectors, path)) == 100_000


def test_labels_may_be_missing_in_the_first_record(vectors, tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "a"}\n{"text": "b", "label": 1}\n')
    embed(vectors, path, tmp_path / "s")
    assert table(tmp_path / "s")["label"].to_pylist() == [None, 1]


def test_split_of_a_loaded_dataset_can_be_chosen(vectors):
    datasets = pytest.importorskip("datasets")
    both = datasets.DatasetDict(
        {"train": datasets.Dataset.from_dict({"text": ["a b"]}), "test": datasets.Dataset.from_dict({"text": ["c"]})}
    )
    assert len(embed(vectors, both, part="train")) == 2
    with pytest.raises(InputError):
        embed(vectors, both["train"], part="test")
    with pytest.raises(InputError):
        embed(vectors, datasets.Dataset.from_dict({"text": []}))


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_endings_and_byte_order_marks_are_not_text(bert, tmp_path, ending, mark):
    path = tmp_path / "t.txt"
    path.write_bytes((mark + ending.join(["a b", "", "c"])).encode())
    embed(str(bert), path, tmp_path / "s", layers=[0])
    found = table(tmp_path / "s")
    assert found["token"].to_pylist() == ["a", "b", "c"]
    assert found["document"].to_pylist() == [0, 0, 2]
    assert found["text"].to_pylist() == ["«a» b", "a «b»", "«c»"]


def test_word_list_with_windows_line_endings_is_read(tmp_path):
    np.save(tmp_path / "vectors.npy", np.eye(2, dtype=np.float16))
    (tmp_path / "words.txt").write_bytes(b"river\r\nbank\r\n")
    assert len(embed(tmp_path, ["river bank"])) == 2


# going on


def test_another_tokenizer_is_a_changed_setting(bert, tmp_path, monkeypatch):
    blocks_of(monkeypatch, 8)
    model = transformers.BertModel.from_pretrained(bert)
    words = toy.tokenizer(classifying=True)
    texts = toy.opinions(6)[0]
    embed(model, texts, tmp_path / "s", tokenizer=words)
    other = transformers.PreTrainedTokenizerFast(
        tokenizer_object=_upside_down(), unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]"
    )
    with pytest.raises(InputError, match="different settings"):
        embed(model, texts, tmp_path / "s", tokenizer=other)


def _upside_down():
    from tokenizers import Tokenizer

    made = json.loads(toy.tokenizer(classifying=True).backend_tokenizer.to_str())
    names = [word for word in made["model"]["vocab"] if not word.startswith("[")]
    for word, other in zip(names, reversed(names), strict=True):
        made["model"]["vocab"][word] = 4 + names.index(other)
    return Tokenizer.from_str(json.dumps(made))


def test_settings_that_change_no_row_do_not_prevent_resuming(vectors, tmp_path):
    embed(vectors, ["a b"], tmp_path / "s")
    embed(vectors, ["a b"], tmp_path / "s", seed=3)
    embed(vectors, ["a b"], tmp_path / "s", stride=512)


def test_late_change_in_word_vectors_is_detected(tmp_path):
    path = tmp_path / "v.vec"
    lines = [f"w{i} {i} 1\n" for i in range(1500)]
    path.write_text("".join(lines))
    embed(path, ["w1 w1400"], tmp_path / "s")
    path.write_text("".join([*lines[:1400], "w1400 9 9\n", *lines[1401:]]))
    with pytest.raises(InputError, match="weights differ"):
        embed(path, ["w1 w1400"], tmp_path / "s")


def change_weights(folder: Path, change) -> None:
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    weights = load_file(path)
    change(weights)
    save_file(weights, path, metadata={"format": "pt"})


def drop_pooler(weights) -> None:
    for name in [name for name in weights if "pooler" in name]:
        del weights[name]


@pytest.mark.parametrize("pool", ["mean", "sentence-transformers"])
def test_model_without_pooler_weights_resumes(sentences, tmp_path, pool):
    folder, notes = shutil.copytree(sentences, tmp_path / "model"), []
    change_weights(folder, drop_pooler)
    for seed in (0, 1):
        torch.manual_seed(seed)
        isoscope.embed(folder, ["a b"], tmp_path / "s", pool=pool, say=notes.append)
    assert notes[-1].endswith("is already complete")


def change_one_value(weights) -> None:
    weights["embeddings.word_embeddings.weight"].view(-1)[700] += 1e-3


@pytest.mark.parametrize("pool", ["mean", "sentence-transformers"])
def test_any_changed_weight_is_detected(sentences, tmp_path, pool):
    folder = shutil.copytree(sentences, tmp_path / "model")
    isoscope.embed(folder, ["a b"], tmp_path / "s", pool=pool)
    change_weights(folder, change_one_value)
    with pytest.raises(InputError, match="the weights differ"):
        isoscope.embed(folder, ["a b"], tmp_path / "s", pool=pool)


@pytest.mark.parametrize("pool", ["mean", "sentence-transformers"])
def test_changed_configuration_is_detected(sentences, tmp_path, pool):
    folder, notes = shutil.copytree(sentences, tmp_path / "model"), []
    isoscope.embed(folder, ["a b"], tmp_path / "s", pool=pool)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["BertForMaskedLM"]}))
    isoscope.embed(folder, ["a b"], tmp_path / "s", pool=pool, say=notes.append)
    assert notes[-1].endswith("is already complete")
    (folder / "config.json").write_text(json.dumps(config | {"hidden_act": "relu"}))
    with pytest.raises(InputError, match="the configuration of the model or the weights differ"):
        isoscope.embed(folder, ["a b"], tmp_path / "s", pool=pool)


def test_changed_default_prompt_is_detected(sentences, tmp_path):
    folder = shutil.copytree(sentences, tmp_path / "model")
    isoscope.embed(folder, ["a b"], tmp_path / "s")
    path = folder / "config_sentence_transformers.json"
    changed = json.loads(path.read_text()) | {"prompts": {"query": "c "}, "default_prompt_name": "query"}
    path.write_text(json.dumps(changed))
    with pytest.raises(InputError, match="the configuration of the model"):
        isoscope.embed(folder, ["a b"], tmp_path / "s")


def test_partial_checksum_of_an_earlier_version_raises_with_the_reason(bert, tmp_path):
    embed(bert, ["a b"], tmp_path / "s")
    path = tmp_path / "s" / "_embedding.json"
    content = json.loads(path.read_text())
    content["settings"]["weights"] = "3bbb075ff3331d2a10042367a9414f9f"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"an earlier version .* only a part of the weights.*--restart") as caught:
        embed(bert, ["a b"], tmp_path / "s")
    assert "differ;" not in str(caught.value)
    embed(bert, ["a b"], tmp_path / "s", restart=True)


def test_interrupted_first_manifest_does_not_block_the_folder(vectors, tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "._embedding.json.0123456789abcdef.part").write_text("{")
    embed(vectors, ["a b"], tmp_path / "s")
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == ["_embedding.json", "layer-00-00000.arrow"]


def test_partial_file_of_earlier_run_is_removed(vectors, tmp_path):
    embed(vectors, ["a b"], tmp_path / "s")
    (tmp_path / "s" / ".layer-00-00001.arrow.0123456789abcdef.part").write_bytes(b"half")
    embed(vectors, ["a b"], tmp_path / "s", restart=True)
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == ["_embedding.json", "layer-00-00000.arrow"]


def big_states(bert):
    model = transformers.BertModel.from_pretrained(bert)
    with torch.no_grad():
        model.encoder.layer[-1].output.LayerNorm.weight.fill_(1e6)
    return model


def test_following_the_error_advice_works(bert, tmp_path):
    given = {"tokenizer": toy.tokenizer(classifying=True)}
    with pytest.raises(InputError, match="float32"):
        embed(big_states(bert), ["a b"], tmp_path / "s", dtype="float16", **given)
    embed(big_states(bert), ["a b"], tmp_path / "s", dtype="float32", **given)


def test_nonfinite_states_are_not_blamed_on_the_precision(bert):
    model = transformers.BertModel.from_pretrained(bert)
    with torch.no_grad():
        model.encoder.layer[0].output.LayerNorm.weight.fill_(float("nan"))
    with pytest.raises(InputError, match="NaN"):
        embed(model, ["a b"], dtype="float16", tokenizer=toy.tokenizer(classifying=True))


def test_error_says_where_the_run_can_resume(vectors, tmp_path, monkeypatch):
    blocks_of(monkeypatch, 1)
    from isoscope.embedding.shards import ShardWriter

    put = ShardWriter.write

    def full(self, block, columns, rows):
        if block == 3:
            raise OSError(28, "No space left on device")
        return put(self, block, columns, rows)

    monkeypatch.setattr(ShardWriter, "write", full)
    with pytest.raises(OSError, match="No space") as caught:
        embed(vectors, ["a b c", "d", "e", "f", "g"], tmp_path / "s", window=1)
    assert "part 4 of" in caught.value.__notes__[0]


def test_short_texts_are_read_in_bounded_memory(bert, monkeypatch):
    monkeypatch.setattr(room, "_BLOCK_BYTES", 2**16)
    blocks_of(monkeypatch, 4096)
    sizes = []
    real = room.make_pooling
    monkeypatch.setattr(
        room, "make_pooling", lambda pool, block, *rest: sizes.append(len(block.documents)) or real(pool, block, *rest)
    )
    embed(str(bert), ["a"] * 1000, pool="mean", layers="all")
    assert max(sizes) * 3 * 32 * 8 <= 2**16 * 2


KILLED = """
import os, sys
from pathlib import Path
from isoscope._io import files
from isoscope.embedding import run as room, shards
room._BLOCK_TOKENS = 16, 16
left = int(sys.argv[1])
real = files.sync
def sync(path):  # what is on the disk changes before and behind each of these
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), 9)
    real(path)
files.sync = shards.sync = sync
import isoscope
isoscope.embed(sys.argv[2], Path(sys.argv[3]), sys.argv[4], pool="tokens")
"""


def test_run_killed_at_any_point_resumes_to_same_store(vectors, tmp_path):
    texts = tmp_path / "t.txt"
    texts.write_text("\n".join(toy.opinions(12)[0]))
    command = [sys.executable, "-c", KILLED]
    subprocess.run([*command, "0", vectors, texts, tmp_path / "whole"], check=True)
    whole = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    for moment in (1, 2, 4, 5, 9):
        folder = tmp_path / f"killed-{moment}"
        assert subprocess.run([*command, str(moment), vectors, texts, folder]).returncode == -9
        subprocess.run([*command, "0", vectors, texts, folder], check=True)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == whole


def test_damaged_parts_are_recomputed(vectors, tmp_path, monkeypatch):
    blocks_of(monkeypatch, 16)
    texts = toy.opinions(12)[0]
    embed(vectors, texts, tmp_path / "s")
    whole = {path.name: path.read_bytes() for path in (tmp_path / "s").iterdir()}
    third = tmp_path / "s" / "layer-00-00002.arrow"
    size = third.stat().st_size
    for harm in (
        lambda: third.write_bytes(whole[third.name][: size // 2]),
        lambda: third.unlink(),
        lambda: third.write_bytes(bytes([whole[third.name][0]]) + bytes(size - 1)),
    ):
        harm()
        embed(vectors, texts, tmp_path / "s")
        assert {path.name: path.read_bytes() for path in (tmp_path / "s").iterdir()} == whole
    for place in range(0, size, max(1, size // 40)):
        flipped = bytearray(whole[third.name])
        flipped[place] ^= 1
        third.write_bytes(flipped)
        embed(vectors, texts, tmp_path / "s")
        assert third.read_bytes() == whole[third.name], place


def test_broken_symlink_raises(vectors, tmp_path):
    (tmp_path / "s").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError):
        embed(vectors, ["a b"], tmp_path / "s")


def test_damaged_manifest_raises(vectors, tmp_path):
    embed(vectors, ["a b"], tmp_path / "s")
    note = tmp_path / "s" / "_embedding.json"
    held = json.loads(note.read_text())
    for harm in ({"written": [3]}, {"blocks": None}, {"written": [{"../x": "y"}]}, {"written": {}}, {"blocks": True}):
        note.write_text(json.dumps(held | harm))
        with pytest.raises(InputError, match="damaged"):
            embed(vectors, ["a b"], tmp_path / "s")


# Sentence Transformers


@pytest.fixture(scope="module")
def sentences(bert, tmp_path_factory):
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    inner = Transformer(str(bert), max_seq_length=16)
    made = SentenceTransformer(modules=[inner, Pooling(32), Normalize()], device="cpu")
    folder = tmp_path_factory.mktemp("st")
    made.save(str(folder))
    return folder


def test_sentences_match_the_models_encode(sentences, tmp_path):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(sentences), device="cpu")
    texts = [*toy.opinions(20)[0], "", "a b " * 40]
    with pytest.warns(isoscope.DataWarning, match="66 tokens are not read"):
        embed(str(sentences), texts, tmp_path / "s", pool="sentence-transformers", batch_tokens=60)
    found = table(tmp_path / "s")
    kept = found["document"].to_pylist()
    assert kept == [*range(20), 21]
    np.testing.assert_allclose(rows_of(found), model.encode([texts[i] for i in kept]), atol=1e-5)


def test_loaded_sentence_model_keeps_its_mode(sentences):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(sentences), device="cpu")
    model.train()
    embed(model, ["a b"], pool="sentence-transformers")
    assert model.training


def test_sentence_model_also_gives_tokens(sentences):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(sentences), device="cpu")
    named = embed(str(sentences), ["a b"])
    loaded = embed(model, ["a b"])
    np.testing.assert_array_equal(named.take([0, 1]), loaded.take([0, 1]))


def test_encoder_with_non_english_tokenizer_is_not_causal(bert):
    from tokenizers import Tokenizer, models, pre_tokenizers

    from isoscope.embedding.transformer import TransformerEmbedder

    made = Tokenizer(models.WordLevel({"[UNK]": 1, "α": 2, "β": 3}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    words = transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]")
    assert not TransformerEmbedder(transformers.BertModel.from_pretrained(bert), tokenizer=words).causal()
