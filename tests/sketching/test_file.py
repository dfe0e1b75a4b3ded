"""A saved sketch loads bit for bit, and a damaged or incomplete file raises an error that names it."""

import copy
import json
import os
import pickle
from dataclasses import fields

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import isoscope
from isoscope import InputError, Sketch
from isoscope.sketching.file import checksum


@pytest.fixture(params=["plain", "numbers", "words", "above the capacity", "with dropped rows", "empty"])
def kept(request, rng):
    X = rng.standard_normal((50, 3))
    bad = np.where(rng.random((50, 1)) < 0.2, np.nan, X)
    return {
        "plain": lambda: Sketch.of(X),
        "numbers": lambda: Sketch.of(X, np.arange(50) % 4),
        "words": lambda: Sketch.of(X, [f"naïve “{i % 4}”" for i in range(50)]),
        "above the capacity": lambda: Sketch.of(rng.standard_normal((70_000, 2))),
        "with dropped rows": lambda: Sketch.of(bad, np.arange(50) % 4, missing="drop"),
        "empty": Sketch,
    }[request.param]()


@pytest.fixture
def saved(tmp_path, rng):
    path = tmp_path / "a.sketch"
    Sketch.of(rng.standard_normal((20, 3)), ["a", "b"] * 10).save(path)
    return path


def contents(path):
    """Return the tensors and the metadata."""
    with safe_open(path, "np") as file:
        (about,) = file.metadata().values()
        return load_file(path), json.loads(about)


def write(path, tensors, about):
    """Write a file with a valid checksum, so that only the check of its content can reject it."""
    if isinstance(about, dict) and "numbers" in about:
        about = about | {"checksum": checksum(tensors, about["numbers"])}
    save_file(tensors, path, {"isoscope.sketch": about if isinstance(about, str) else json.dumps(about)})


# what is kept


def test_saved_sketch_loads_bit_for_bit(kept, tmp_path):
    kept.save(tmp_path / "a")
    again = Sketch.load(str(tmp_path / "a"))
    assert again == kept
    assert repr(again) == repr(kept)
    assert again.duplicates == kept.duplicates
    assert again + kept == kept + kept


def test_sketch_can_be_sent_to_other_processes(kept):
    assert copy.deepcopy(kept) == kept
    assert pickle.loads(pickle.dumps(kept)) == kept


def test_data_whose_squares_overflow_keep_their_directions(tmp_path, rng):
    s = Sketch.of(rng.standard_normal((20, 4)) * 1e200)
    s.save(tmp_path / "a")
    assert Sketch.load(tmp_path / "a").mean_cosine() == s.mean_cosine()


def test_file_contains_metadata(saved):
    tensors, about = contents(saved)
    assert about["version"] == 1
    assert about["numbers"]["n"] == about["numbers"]["rows.total"] == 20
    assert about["numbers"]["rows.level"] == 0
    assert all(value.dtype.kind in "fiu" for value in tensors.values())  # nothing that would need a pickle


# what is refused


def test_truncated_file_raises_with_its_name(saved):
    whole = saved.read_bytes()
    for length in [*range(0, len(whole), 97), len(whole) - 1]:
        saved.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"a\.sketch is not a complete sketch"):
            Sketch.load(saved)


def test_other_files_raise_with_their_name(saved):
    save_file({"mean": np.zeros(3)}, saved)
    with pytest.raises(InputError, match=r"a\.sketch is a safetensors file, but it does not contain a sketch"):
        Sketch.load(saved)
    saved.write_text("PAR1 and other bytes that are no header" * 9)
    with pytest.raises(InputError, match=r"a\.sketch is not a complete sketch"):
        Sketch.load(saved)


def test_folder_raises_and_missing_file_raises_file_not_found(tmp_path):
    with pytest.raises(InputError, match=r"is a folder: need a file written by Sketch\.save"):
        Sketch.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="none"):
        Sketch.load(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        Sketch().save(tmp_path / "none" / "a")


def test_newer_file_error_asks_for_a_newer_isoscope(saved):
    tensors, about = contents(saved)
    write(saved, tensors, about | {"version": 3})
    with pytest.raises(InputError, match=r"a\.sketch has version 3, .* at most version 2: upgrade"):
        Sketch.load(saved)


@pytest.mark.parametrize(
    "name",
    [
        *[f.name for f in fields(Sketch) if f.name not in ("rows", "types", "groups")],
        *["rows.hashes", "rows.counts", "rows.level", "rows.total"],
        *["types.names", "types.counts", "types.means", "types.within", "types.unit_sums", "types.unit_squares"],
    ],
)
def test_incomplete_sketch_raises(name, saved):
    tensors, about = contents(saved)
    assert (tensors.pop(name, None) is None) != (about["numbers"].pop(name, None) is None)
    write(saved, tensors, about)
    with pytest.raises(InputError, match=r"a\.sketch is not a complete sketch"):
        Sketch.load(saved)


MISFITS = {
    "a shorter mean": ({"mean": np.zeros(2)}, {}),
    "names that are no JSON": ({"types.names": np.full(4, 255, np.uint8)}, {}),
    "one more tensor": ({"more": np.zeros(2)}, {}),
    "one more number": ({}, {"more": 3}),
    "no numbers": ({}, "{}"),
    "a list": ({}, "[]"),
    "half of a JSON": ({}, '{"version": 1, "numbers": {'),
    "a version in words": ({}, '{"version": "one", "numbers": {}}'),
}
TAKEN = {
    "fewer counts than hashes": ({"rows.counts": np.ones(3, np.int64)}, {}),
    "fewer counts than names": ({"types.counts": np.ones(1, np.int64)}, {}),
    "fewer names than counts": ({"types.names": np.frombuffer(b'["a"]', np.uint8)}, {}),
    "names in lists": ({"types.names": np.frombuffer(b'[["a"], ["b", "c"]]', np.uint8)}, {}),
    "types of fewer dimensions": ({"types.means": np.zeros((2, 2))}, {}),
    "a number in words": ({}, {"n": "twenty"}),
    "no number": ({}, {"quartic": None}),
    "a level that is no integer": ({}, {"rows.level": 1.5}),
    "a level beyond 64 bits": ({}, {"rows.level": 64}),
    "a negative total": ({}, {"rows.total": -1}),
    "true as a number": ({}, {"zeros": True}),
    "a least norm in words": ({}, {"least_norm": "0"}),
    "counts with a fraction": ({"types.counts": np.ones(2)}, {}),
    "hashes in a table": ({"rows.hashes": np.ones((1, 20), np.uint64), "rows.counts": np.ones((1, 20), int)}, {}),
    "a mean of integers": ({"mean": np.zeros(3, np.int64)}, {}),
    "names that are objects": ({"types.names": np.frombuffer(b'[{"a": 1}, {"b": 1}]', np.uint8)}, {}),
    "numbers in a list": ({}, '{"version": 1, "numbers": []}'),
    "deep numbers": ({}, '{"version": 1, "numbers": ' + "[" * 100_000),
}


@pytest.mark.parametrize(
    ("more", "changed"),
    [
        *(pytest.param(*case, id=name) for name, case in MISFITS.items()),
        *(pytest.param(*case, id=name) for name, case in TAKEN.items()),
    ],
)
def test_inconsistent_contents_raise(more, changed, saved):
    tensors, about = contents(saved)
    about = changed if isinstance(changed, str) else about | {"numbers": about["numbers"] | changed}
    write(saved, tensors | more, about)
    with pytest.raises(InputError, match=r"a\.sketch is not a complete sketch"):
        Sketch.load(saved)


# interruptions and traps


def test_flipped_bit_is_detected(saved):
    whole = saved.read_bytes()
    tensors = 8 + int.from_bytes(whole[:8], "little")  # where the header ends
    for at in range(tensors, len(whole), 97):
        saved.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(InputError, match="checksum differs"):
            Sketch.load(saved)


@pytest.mark.parametrize("interruption", [OSError, KeyboardInterrupt])
def test_interrupted_write_keeps_the_old_file_and_no_temporary_file(interruption, saved, monkeypatch, rng):
    def half(path, content):
        with open(path, "wb") as file:
            file.write(content[: len(content) // 2])
        raise interruption

    monkeypatch.setattr("pathlib.Path.write_bytes", half)
    old = saved.read_bytes()
    with pytest.raises(interruption):
        Sketch.of(rng.standard_normal((9, 3))).save(saved)
    assert saved.read_bytes() == old
    assert os.listdir(saved.parent) == [saved.name]


class Bomb:
    def __reduce__(self):
        return (os.mkdir, (os.environ["BOMB"],))


def test_nothing_is_unpickled(saved, monkeypatch, tmp_path):
    monkeypatch.setenv("BOMB", str(tmp_path / "exploded"))
    saved.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(InputError, match=r"a\.sketch is not a complete sketch"):
        Sketch.load(saved)
    np.savez(tmp_path / "b.npz", mean=np.array([Bomb()], object), allow_pickle=True)
    with pytest.raises(InputError, match=r"b\.npz is not a complete sketch"):
        Sketch.load(tmp_path / "b.npz")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
def test_saved_files_have_the_permissions_of_other_files(tmp_path):
    X = np.random.default_rng(0).standard_normal((50, 4))
    before = os.umask(0o022)
    try:
        isoscope.sketch(X).save(tmp_path / "a.sketch")
        isoscope.Center().fit(X).save(tmp_path / "repair")
        isoscope.write_store(X, tmp_path / "a.safetensors")
        isoscope.write_store(X, tmp_path / "a.parquet")
        isoscope.audit(X).to_json(tmp_path / "a.json")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()}
    assert len(modes) == 6
    assert set(modes.values()) == {0o644}
    assert (tmp_path / "repair").stat().st_mode & 0o777 == 0o755
