"""Each row is a hidden state of the model, exactly once; a resumed run gives the same result."""

import json
import os
import signal
import subprocess
import sys
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("transformers")

import torch
from transformers import AutoModel, AutoTokenizer

import isoscope
from isoscope import DataWarning, InputError, open_store
from isoscope.embedding import run
from tests.finetuning import toy


@pytest.fixture(autouse=True)
def one_thread():
    with toy.one_thread():
        yield


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return toy.encoder(tmp_path_factory.mktemp("models") / "encoder")


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    return toy.decoder(tmp_path_factory.mktemp("models") / "decoder")


TEXTS, LABELS = toy.opinions(30)
embed = partial(isoscope.embed, pool="tokens")  # rows are tokens where a test does not choose another pooling


def states_of(folder, text, **more):
    """Return all hidden states of one text, without padding, computed with transformers only."""
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    read = tokenizer(text, return_tensors="pt", **more)
    read.pop("token_type_ids", None)
    with torch.no_grad():
        return [states[0].numpy() for states in model(**read, output_hidden_states=True).hidden_states]


def table(store_or_folder):
    """Return the content of all files in a folder, layer by layer."""
    files = sorted(store_or_folder.glob("layer-*.arrow"))
    return pa.concat_tables([pa.ipc.open_file(file).read_all() for file in files]).unify_dictionaries().to_pandas()


@pytest.mark.parametrize("which", ["encoder", "decoder"])
def test_tokens_of_every_layer_equal_hidden_states_of_the_model(which, request, tmp_path):
    folder = request.getfixturevalue(which)
    embed(folder, TEXTS, tmp_path / "store", labels=LABELS)
    found = table(tmp_path / "store")
    special = 1 if which == "encoder" else 0
    for number in (0, 7, 29):
        states = states_of(folder, TEXTS[number])
        for layer in range(3):
            rows = found[(found.layer == layer) & (found.document == number)]
            own = states[layer][special : len(states[layer]) - special]
            assert rows.position.tolist() == list(range(len(own)))
            assert rows.token.tolist() == TEXTS[number].split()
            np.testing.assert_allclose(np.stack(rows.embedding), own, atol=2e-6)
            assert set(rows.label) == {LABELS[number]}
    words = " ".join(TEXTS).split()
    one = found[found.layer == 1]
    assert len(one) == len(words)
    assert one.frequency.tolist() == [words.count(word) for word in words]
    assert one.text.iloc[0] == f"«the»{TEXTS[0][3:43]}" + ("…" if len(TEXTS[0]) > 43 else "")


def test_layers_are_consecutive_with_the_same_rows(encoder):
    found = embed(encoder, TEXTS[:5], layers=[0, -1])
    n = len(found) // 2
    assert found.columns == {"types": "token", "text": "text", "frequency": "frequency", "groups": "document"}
    assert found.types[:n].tolist() == found.types[n:].tolist() == " ".join(TEXTS[:5]).split()
    alone = embed(encoder, TEXTS[:5], layers=-1)
    assert np.array_equal(alone.take(range(n)), found.take(range(n, 2 * n)))


def test_batch_size_does_not_change_rows(encoder):
    one, other = (embed(encoder, TEXTS, batch_tokens=tokens) for tokens in (1, 500))
    np.testing.assert_allclose(one.take(range(len(one))), other.take(range(len(other))), atol=2e-6)


@pytest.mark.parametrize("special", ["keep", "drop"])
def test_mean_pooling_respects_special_tokens_option(encoder, special):
    found = embed(encoder, TEXTS[:8], layers=-1, pool="mean", special_tokens=special)
    for number in range(8):
        own = states_of(encoder, TEXTS[number])[-1]
        own = own if special == "keep" else own[1:-1]
        np.testing.assert_allclose(found.take([number])[0], own.mean(axis=0), atol=2e-6)
    assert found.text.tolist() == TEXTS[:8]


def test_first_and_last_token_pooling(encoder, decoder):
    first, last = (embed(encoder, TEXTS[:4], layers=-1, pool=pool) for pool in ("cls", "last"))
    word = embed(encoder, TEXTS[:4], layers=-1, pool="last", special_tokens="drop")
    end = embed(decoder, TEXTS[:4], layers=-1, pool="last")
    for number in range(4):
        own = states_of(encoder, TEXTS[number])[-1]
        for found, place in ((first, 0), (last, -1), (word, -2)):
            np.testing.assert_allclose(found.take([number])[0], own[place], atol=2e-6)
        np.testing.assert_allclose(end.take([number])[0], states_of(decoder, TEXTS[number])[-1][-1], atol=2e-6)
    with pytest.raises(InputError, match=r"adds no token such as \[CLS\]"):
        embed(decoder, TEXTS[:4], pool="cls")


# long texts


def test_long_texts_are_read_in_windows_and_every_token_is_a_row(encoder):
    words = [toy.WORDS[i % len(toy.WORDS)] for i in range(100)]  # the model reads 64 at once
    notes = []
    found = embed(encoder, [" ".join(words)], layers=[1], window=20, say=notes.append)
    assert found.types.tolist() == words
    second = states_of(encoder, " ".join(words[18:36]))[1][1:-1]
    np.testing.assert_allclose(found.take(range(18, 36)), second, atol=2e-6)
    assert "1 text is longer than a window of 20 tokens: read in several windows" in notes
    assert len(embed(encoder, [" ".join(words)], layers=[1])) == 100  # 512 were asked for, 64 fit


@pytest.mark.parametrize("which", ["encoder", "decoder"])
def test_overlapping_windows_use_the_most_context(which, request):
    folder = request.getfixturevalue(which)
    special = 1 if which == "encoder" else 0
    words = [toy.WORDS[i % len(toy.WORDS)] for i in range(12)]
    found = embed(folder, [" ".join(words)], layers=-1, window=8 + 2 * special, stride=4)
    first, second = (states_of(folder, " ".join(words[start : start + 8]))[-1] for start in (0, 4))
    first, second = (each[special : len(each) - special] for each in (first, second))
    border = 6 if which == "encoder" else 8  # a decoder's token sees most in the window that ends with it
    expected = np.concatenate([first[:border], second[border - 4 :]])
    np.testing.assert_allclose(found.take(range(12)), expected, atol=2e-6)


def test_mean_of_long_text_covers_all_its_tokens(encoder):
    text = " ".join(toy.WORDS * 3)
    tokens = embed(encoder, [text], layers=-1, window=20)
    mean = embed(encoder, [text], layers=-1, window=20, pool="mean", special_tokens="drop")
    np.testing.assert_allclose(mean.take([0])[0], tokens.take(range(len(tokens))).mean(axis=0), atol=2e-6)


def test_skipped_text_warns(encoder):
    text = " ".join(toy.WORDS * 3)
    with pytest.warns(DataWarning, match="1 text is longer than a window of 20 tokens: 90 tokens"):
        embed(encoder, [text], window=20, pool="cls")
    with pytest.warns(DataWarning, match=r"2 tokens \(50%\) are not in the vocabulary"):
        embed(encoder, ["good film zzz qqq"])


def test_empty_texts_have_no_row_but_keep_their_number(encoder, tmp_path):
    notes = []
    embed(encoder, ["", "good", "  \t", "bad"], tmp_path / "store", layers=-1, say=notes.append)
    assert table(tmp_path / "store").document.tolist() == [1, 3]
    assert "2 texts have no tokens, so they have no row: text 1, text 3" in notes


def test_a_single_text_is_counted_in_the_singular(encoder, tmp_path):
    notes = []
    embed(encoder, ["good", "", "bad film"], ids=["a", "b", "c"], window=3, truncate=True, say=notes.append)
    assert "1 text has no tokens, so it has no row: id b" in notes
    assert "1 text is longer than a window of 3 tokens: 1 token is not read" in notes


# what models can be


def test_loaded_model_is_unchanged(encoder):
    model, tokenizer = AutoModel.from_pretrained(encoder), AutoTokenizer.from_pretrained(encoder)
    model.train()
    found = embed(model, TEXTS[:3], tokenizer=tokenizer)
    assert np.array_equal(found.take(range(len(found))), embed(encoder, TEXTS[:3]).take(range(len(found))))
    assert model.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    with pytest.raises(InputError, match="pass its tokenizer"):
        embed(model, TEXTS)


def test_encoder_decoder_gives_encoder_states(tmp_path):
    from transformers import T5Config, T5Model

    words = toy.tokenizer(classifying=True)
    config = T5Config(vocab_size=len(words), d_model=16, d_kv=8, d_ff=16, num_layers=2, num_heads=2, pad_token_id=0)
    model = T5Model(config).eval()
    model.save_pretrained(tmp_path / "t5")
    words.save_pretrained(tmp_path / "t5")
    found = embed(tmp_path / "t5", TEXTS[:3], layers=-1)
    ids = torch.tensor([words(TEXTS[0])["input_ids"]])
    with torch.no_grad():
        own = model.encoder(ids).last_hidden_state[0, 1:-1].numpy()
    np.testing.assert_allclose(found.take(range(len(own))), own, atol=2e-6)


def test_sentence_transformers_match_their_own_encode(encoder, tmp_path):
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    inner = Transformer(str(encoder), max_seq_length=10)
    model = SentenceTransformer(modules=[inner, Pooling(32, "mean"), Normalize()], device="cpu")
    model.save(str(tmp_path / "model"))
    with pytest.warns(DataWarning, match="tokens are not read"):
        found = embed(tmp_path / "model", TEXTS, pool="sentence-transformers", labels=LABELS)
    np.testing.assert_allclose(found.take(range(30)), model.encode(TEXTS), atol=2e-6)
    assert found.labels.tolist() == LABELS
    tokens = embed(tmp_path / "model", ["the good film"], layers=-1)  # the transformer in it can be asked as well
    np.testing.assert_allclose(tokens.take([0])[0], states_of(encoder, "the good film")[-1][1], atol=2e-6)
    with pytest.raises(InputError, match=r"has no modules\.json"):
        embed(encoder, TEXTS, pool="sentence-transformers")


# settings


def test_float16_is_rounded_float32_and_never_infinite(encoder, tmp_path):
    wide, narrow = (embed(encoder, TEXTS[:4], dtype=dtype) for dtype in ("float32", "float16"))
    assert narrow.dtype == np.float16
    np.testing.assert_array_equal(narrow.take(range(20)), wide.take(range(20)).astype(np.float16))
    model, tokenizer = AutoModel.from_pretrained(encoder), AutoTokenizer.from_pretrained(encoder)
    with torch.no_grad():
        model.encoder.layer[0].output.LayerNorm.weight *= 1e6
    with pytest.raises(InputError, match=r"layer 1 of BertModel .* range of float16"):
        embed(model, TEXTS[:4], tmp_path / "store", tokenizer=tokenizer, dtype="float16", layers=[1])


def test_a_sample_has_max_tokens_and_depends_on_the_seed(encoder):
    found = embed(encoder, TEXTS, layers=-1, max_tokens=40, seed=3)
    assert len(found) == 40
    again = embed(encoder, TEXTS, layers=-1, max_tokens=40, seed=3)
    other = embed(encoder, TEXTS, layers=-1, max_tokens=40, seed=4)
    assert np.array_equal(found.take(range(40)), again.take(range(40)))
    assert found.text.tolist() == again.text.tolist() != other.text.tolist()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pool": "sum"}, "pool is 'sum'"),
        ({"layers": 9}, "layer is 9"),
        ({"layers": []}, "layer is empty"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"window": 0}, "window is 0"),
        ({"window": 2}, "the special tokens alone take 2"),
        ({"window": 10, "stride": 9}, "stride is 9, which skips tokens"),
        ({"special_tokens": "maybe"}, "special_tokens is 'maybe'"),
        ({"pool": "cls", "special_tokens": "drop"}, r'needs the token \[CLS\], but special_tokens="drop" drops it'),
        ({"pool": "last", "stride": 3}, "only one window"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"batch_tokens": 0}, "batch_tokens is 0"),
        ({"device": "nowhere"}, "device is 'nowhere', which is not available"),
        ({"split": "page"}, "split is 'page'"),
        ({"part": "train"}, "part is 'train'"),
        ({"labels": ["a"]}, "labels has 1 entries"),
    ],
)
def test_invalid_settings_raise_one_line_error_and_write_nothing(encoder, tmp_path, options, words):
    with pytest.raises(InputError, match=words) as error:
        embed(encoder, TEXTS, tmp_path / "store", **options)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "store").exists()


def test_folder_without_tokenizer_or_model_raises(encoder, tmp_path):
    import shutil

    shutil.copytree(encoder, tmp_path / "mute")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "mute" / name).unlink()
    with pytest.raises(InputError, match=r"tokenizer"):
        embed(tmp_path / "mute", TEXTS)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(InputError, match="cannot be used for embedding"):
        embed(tmp_path / "nothing", TEXTS)
    with pytest.raises(InputError, match="does not exist"):
        embed(tmp_path / "none", TEXTS)


def test_remote_code_is_run_only_on_request(encoder, tmp_path):
    import shutil

    folder = tmp_path / "own"
    shutil.copytree(encoder, folder)
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"}
    config["model_type"] = "evil"
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    with pytest.raises(InputError, match="comes with its own code, which runs only if you allow it"):
        embed(folder, TEXTS)
    assert not (tmp_path / "ran").exists()


# interruptions


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(run, "_BLOCK_TOKENS", (20, 40))
    monkeypatch.setattr(run, "_BLOCK_BYTES", 1)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".arrow"}


def broken_off(monkeypatch, after, *arguments, **options):
    """A run that is interrupted, as by Ctrl-C."""
    write = isoscope.embedding.shards.ShardWriter.write

    def once(self, block, *rest):
        if block == after:
            raise KeyboardInterrupt
        return write(self, block, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(isoscope.embedding.shards.ShardWriter, "write", once)
        with pytest.raises(KeyboardInterrupt):
            embed(*arguments, **options)


def test_an_interrupted_run_resumes_to_the_same_bytes(encoder, tmp_path, small_blocks, monkeypatch):
    embed(encoder, TEXTS, tmp_path / "whole")
    broken_off(monkeypatch, 3, encoder, TEXTS, tmp_path / "store")
    with pytest.warns(DataWarning, match=r"is incomplete: 3 of \d+ parts"):
        assert len(open_store(tmp_path / "store")) > 0
    notes = []
    embed(encoder, TEXTS, tmp_path / "store", say=notes.append)
    assert any("resuming from part 4" in note for note in notes)
    assert contents(tmp_path / "store") == contents(tmp_path / "whole")
    assert sorted(path.name for path in (tmp_path / "store").iterdir() if path.suffix != ".arrow") == [
        "_embedding.json"
    ]


def test_finished_run_is_not_repeated(encoder, tmp_path, monkeypatch):
    embed(encoder, TEXTS, tmp_path / "store")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").glob("layer-*")}
    notes = []
    embed(encoder, TEXTS, tmp_path / "store", say=notes.append)
    assert notes[-1].endswith("is already complete")
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "store").glob("layer-*")}


@pytest.mark.parametrize("harm", ["cut", "flip", "remove"])
def test_damaged_part_is_recomputed(encoder, tmp_path, small_blocks, harm):
    embed(encoder, TEXTS, tmp_path / "store")
    whole = contents(tmp_path / "store")
    victim = sorted((tmp_path / "store").glob("layer-01-*"))[2]
    data = bytearray(victim.read_bytes())
    if harm == "cut":
        victim.write_bytes(data[:-20])
    elif harm == "flip":
        data[300] ^= 255
        victim.write_bytes(data)
    else:
        victim.unlink()
    notes = []
    embed(encoder, TEXTS, tmp_path / "store", say=notes.append)
    assert any("resuming from part 3" in note and "damaged" in note for note in notes)
    assert contents(tmp_path / "store") == whole


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"layers": [1]}, "layers was 0,1,2, is 1"),
        ({"pool": "mean"}, "pool was tokens, is mean"),
        ({"window": 9}, "window was 64, is 9"),
        ({"stride": 5}, "stride was not set, is 5"),
        ({"special_tokens": "keep"}, "special tokens was drop, is keep"),
        ({"dtype": "float16"}, "dtype was float32, is float16"),
        ({"max_tokens": 50}, "max tokens was not set, is 50"),
        ({"labels": LABELS}, "the texts or their tokens, labels or ids differ"),
        ({"ids": LABELS}, "the texts or their tokens, labels or ids differ"),
        ({"truncate": True}, "truncate was False, is True"),
    ],
)
def test_changed_settings_raise_with_the_difference(encoder, tmp_path, options, words):
    embed(encoder, TEXTS, tmp_path / "store")
    kept = contents(tmp_path / "store")
    with pytest.raises(InputError, match=words):
        embed(encoder, TEXTS, tmp_path / "store", **options)
    assert contents(tmp_path / "store") == kept
    embed(encoder, TEXTS, tmp_path / "store", batch_tokens=64)  # decides nothing but the speed
    embed(encoder, TEXTS, tmp_path / "store", restart=True, **options)


def test_another_model_raises(encoder, decoder, tmp_path):
    embed(encoder, TEXTS, tmp_path / "store")
    with pytest.raises(InputError, match="the weights differ"):
        embed(decoder, TEXTS, tmp_path / "store")


def test_folders_with_other_files_raise(encoder, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match=r"contains other files, such as thesis\.txt"):
        embed(encoder, TEXTS, tmp_path / "mine", restart=True)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    (tmp_path / "mine" / "notes").write_text("more work")
    with pytest.raises(InputError, match="is a file"):
        embed(encoder, TEXTS, tmp_path / "mine" / "notes")
    with pytest.raises(InputError, match="is not a folder"):
        embed(encoder, TEXTS, tmp_path / "no" / "such")


def test_a_full_disk_keeps_finished_parts_and_says_how_to_resume(encoder, tmp_path, small_blocks, monkeypatch):
    real = isoscope.embedding.shards.Part.write

    def full(part, table):
        if part.path.name == "layer-01-00002.arrow":
            raise OSError(28, "No space left on device")
        real(part, table)

    monkeypatch.setattr(isoscope.embedding.shards.Part, "write", full)
    with pytest.raises(OSError, match="No space left") as error:
        embed(encoder, TEXTS, tmp_path / "store")
    assert "run the same command again to resume" in error.value.__notes__[0]
    monkeypatch.undo()
    monkeypatch.setattr(run, "_BLOCK_TOKENS", (20, 40))
    monkeypatch.setattr(run, "_BLOCK_BYTES", 1)
    embed(encoder, TEXTS, tmp_path / "store")
    embed(encoder, TEXTS, tmp_path / "whole")
    assert contents(tmp_path / "store") == contents(tmp_path / "whole")


SCRIPT = """
import sys, time
import torch; torch.set_num_threads(1)
from isoscope.embedding import embed as embedding, run as running, shards
running._BLOCK_TOKENS, running._BLOCK_BYTES = (20, 40), 1
commit = shards.ShardWriter.commit
def stop(self, parts):
    if self.blocks_done == 2:
        print("killed in the third block", flush=True)
        sys.stdin.read()
    commit(self, parts)
shards.ShardWriter.commit = stop
embedding.embed(sys.argv[1], sys.argv[2], sys.argv[3], pool="tokens")
"""


def test_killed_run_loses_and_repeats_no_row(encoder, tmp_path, small_blocks):
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"{text}\n" for text in TEXTS))
    command = [sys.executable, "-c", SCRIPT, str(encoder), str(lines)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([*command, str(tmp_path / "store")], **pipes) as run:
        assert run.stdout.readline() == b"killed in the third block\n"
        os.kill(run.pid, signal.SIGKILL)
    for target in ("store", "whole"):
        embed(encoder, lines, tmp_path / target)
    assert contents(tmp_path / "store") == contents(tmp_path / "whole")
    rows = table(tmp_path / "store")
    assert rows[rows.layer == 2].token.tolist() == " ".join(TEXTS).split()


def test_second_process_raises(encoder, tmp_path):
    from isoscope.embedding.shards import ShardWriter

    busy = pytest.raises(InputError, match="is being written by another process")
    with ShardWriter(tmp_path / "store").open_folder(), busy:
        embed(encoder, TEXTS, tmp_path / "store")


RECORDED = {
    "schema": "isoscope.embedding/1",
    "isoscope": "0.1.0.dev0",
    "model": "tiny.vec",
    "rows": 2,
    "counts": {"texts": 2, "empty": 0, "tokens": 4, "unknown": 0, "missed": 0, "longer": 0, "unread": 0, "left_out": 0},
    "settings": {
        "weights": "3bbb075ff3331d2a10042367a9414f9f",
        "texts": "0280f483475d29a0045289b39354d03c",
        "layers": [0],
        "dimensions": 2,
        "pool": "mean",
        "window": 512,
        "stride": None,
        "special_tokens": "keep",
        "dtype": "float32",
        "max_tokens": None,
        "seed": None,
    },
    "blocks": 1,
    "written": [{"layer-00-00000.arrow": "c6905063"}],
    "finished": True,
}


def test_folder_of_earlier_version_resumes_or_raises(tmp_path):
    words, folder, notes = tmp_path / "tiny.vec", tmp_path / "store", []
    words.write_text("river 1 0.5\nbank -1 0.25\nmoney 0 2\n")
    texts = ["river bank", "money bank"]
    embed(words, texts, folder, pool="mean")
    before = contents(folder)
    (folder / "_embedding.json").write_text(json.dumps(RECORDED))
    embed(words, texts, folder, pool="mean", say=notes.append)
    assert notes[-1].endswith("is already complete")  # the file has the bytes of the earlier version
    assert contents(folder) == before
    (folder / "_embedding.json").write_text(json.dumps(RECORDED))
    with pytest.raises(InputError, match="dtype was float32, is float16"):
        embed(words, texts, folder, pool="mean", dtype="float16")
    (folder / "_embedding.json").write_text(json.dumps({**RECORDED, "schema": "isoscope.embedding/0"}))
    with pytest.raises(InputError, match=r"isoscope\.embedding/0.*--restart"):
        embed(words, texts, folder, pool="mean")
