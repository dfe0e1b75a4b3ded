"""A saved repair is loaded bit for bit; the error for a damaged one names the folder."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from sklearn.base import clone
from sklearn.cluster import KMeans

import isoscope
from isoscope import AllButTheTop, Center, ClusterCenter, ClusterNull, InputError, Whiten, load_transform
from isoscope.sketching.file import checksum
from isoscope.transforms import persistence
from tests.transforms.conftest import EVERY


@pytest.fixture
def folder(tmp_path, clusters):
    path = tmp_path / "repair"
    ClusterNull(3, 2, random_state=0).fit(clusters).save(path)
    return path


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def change(folder, *, sealed=True, tensors=(), **about):
    """Replace tensors and metadata of a saved repair; the checksum is valid if `sealed`."""
    config = json.loads((folder / "config.json").read_text())
    numbers = {**load_file(folder / "model.safetensors"), **dict(tensors)}
    numbers = {name: value for name, value in numbers.items() if value is not None}
    config = {key: value for key, value in (config | about).items() if value is not None}
    if sealed:
        config["checksum"] = checksum(numbers, {key: value for key, value in config.items() if key != "checksum"})
    save_file(numbers, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))


# what is kept


@pytest.mark.parametrize("repair", EVERY, ids=repr)
def test_saved_repair_transforms_identically(repair, clusters, tmp_path):
    repair = clone(repair).fit(clusters)
    repair.save(tmp_path / "a")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]
    assert sorted(contents(tmp_path / "a")) == ["config.json", "model.safetensors"]
    for again in (load_transform(tmp_path / "a"), type(repair).load(str(tmp_path / "a"))):
        assert type(again) is type(repair)
        assert str(again.get_params(deep=False)) == str(repair.get_params(deep=False))
        assert repr(again) == repr(repair)
        for X in (clusters, clusters.astype(np.float32), clusters[:1] + 5):
            assert np.array_equal(again.transform(X), repair.transform(X))
        assert list(again.get_feature_names_out()) == list(repair.get_feature_names_out())
        public = {name for name in vars(repair) if name.endswith("_")} - {"sketch_"}
        assert public <= vars(again).keys()
        again.save(tmp_path / "b")
        assert contents(tmp_path / "b") == contents(tmp_path / "a")
        np.testing.assert_array_equal(again.fit(clusters).transform(clusters), repair.transform(clusters))


def test_numpy_numbers_and_column_names_are_saved(clusters, tmp_path):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(clusters, columns=list("abcdefgh"))
    ClusterNull(np.int64(2), np.int32(1), random_state=np.int64(7)).fit(table).save(tmp_path / "a")
    again = load_transform(tmp_path / "a")
    assert again.get_params()["random_state"] == 7
    assert list(again.get_feature_names_out()) == list("abcdefgh")
    again.transform(table)  # a warning of other columns would be an error here
    ClusterCenter(2, random_state=np.random.RandomState(0)).fit(clusters).save(tmp_path / "b")
    assert load_transform(tmp_path / "b").random_state is None


def test_folder_describes_its_contents(folder):
    config = json.loads((folder / "config.json").read_text())
    assert config["format"] == "isoscope.transform"
    assert config["version"] == 1
    assert config["isoscope"] == isoscope.__version__
    assert config["class"] == "ClusterNull"
    assert config["parameters"]["n_clusters"] == 3
    assert config["dimensions"] == 8


def test_loaded_repair_rejects_partial_fit(clusters, tmp_path):
    Whiten().fit(clusters).save(tmp_path / "a")
    again = Whiten.load(tmp_path / "a")
    with pytest.raises(InputError, match="no sketch to update: keep the Sketch"):
        again.partial_fit(clusters)
    again.fit(clusters).partial_fit(clusters)


# how it is written


def test_old_repair_is_replaced_and_missing_parent_created(folder, clusters, tmp_path):
    Center().fit(clusters).save(folder)
    assert isinstance(load_transform(folder), Center)
    (tmp_path / "empty").mkdir()
    Center().fit(clusters).save(tmp_path / "empty")
    Center().fit(clusters).save(tmp_path / "new" / "deep")
    load_transform(tmp_path / "new" / "deep")
    (tmp_path / "link").symlink_to(folder)
    AllButTheTop().fit(clusters).save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert isinstance(load_transform(folder), AllButTheTop)
    assert {path.name for path in tmp_path.iterdir()} == {"repair", "empty", "new", "link"}


@pytest.mark.parametrize("stage", ["numbers", "words", "old away", "new in place"])
def test_failed_write_keeps_the_old_repair(stage, folder, clusters, tmp_path, monkeypatch):
    before = contents(folder)

    def fail(*args, **kwargs):
        raise OSError("no space left")

    if stage == "numbers":
        monkeypatch.setattr("safetensors.numpy.save_file", fail)
    elif stage == "words":
        monkeypatch.setattr("pathlib.Path.write_text", fail)
    else:
        replace, calls = persistence.os.replace, []

        def replace_some(source, target):
            if str(target) == str(folder) or stage == "old away":
                calls.append(target)
            if (stage == "old away" and str(source) == str(folder)) or (
                stage == "new in place" and str(target) == str(folder) and len(calls) == 1
            ):
                raise OSError("no space left")
            replace(source, target)

        monkeypatch.setattr(persistence.os, "replace", replace_some)
    with pytest.raises(OSError, match="no space left"):
        Center().fit(clusters).save(folder)
    monkeypatch.undo()
    assert contents(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["repair"]


@pytest.mark.parametrize("kind", ["other files", "another model", "no words", "broken words", "a file"])
def test_foreign_folder_is_rejected_and_unchanged(kind, tmp_path, clusters):
    target = tmp_path / "theirs"
    files = {
        "other files": {"notes.txt": "mine"},
        "another model": {"config.json": '{"model_type": "bert"}', "model.safetensors": "weights"},
        "no words": {"model.safetensors": "weights"},
        "broken words": {"config.json": "{"},
    }
    if kind == "a file":
        target.write_text("mine")
    else:
        target.mkdir()
        for name, text in files[kind].items():
            (target / name).write_text(text)
    with pytest.raises(InputError, match="exists and is not a saved repair"):
        Center().fit(clusters).save(target)
    if kind == "a file":
        assert target.read_text() == "mine"
    else:
        assert {path.name: path.read_text() for path in target.iterdir()} == files[kind]
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


def test_unserializable_parameters_raise(clusters, tmp_path):
    with pytest.raises(InputError, match=r"the clusterer is a KMeans.*pickle"):
        ClusterCenter(clusterer=KMeans(2, n_init=1)).fit(clusters).save(tmp_path / "a")

    class Mine(Center):
        pass

    with pytest.raises(InputError, match="a Mine cannot be saved"):
        Mine().fit(clusters).save(tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_an_unfitted_repair_is_not_saved(tmp_path):
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        Center().save(tmp_path / "a")


# damaged folders

DAMAGE = {
    "a number was changed": (
        lambda f: change(f, sealed=False, tensors={"means_": np.zeros((3, 8))}),
        "checksum differs",
    ),
    "a parameter was changed": (
        lambda f: change(f, sealed=False, parameters={"n_clusters": 3, "n_components": 1}),
        "checksum differs",
    ),
    "another class": (lambda f: change(f, sealed=False, **{"class": "ClusterCenter"}), "checksum differs"),
    "another format": (lambda f: change(f, format="other"), "does not contain an isoscope repair"),
    "a newer version": (
        lambda f: change(f, version=2),
        "has version 2, but this version of isoscope reads at most version 1",
    ),
    "a version in words": (lambda f: change(f, version="new"), "is not a complete repair"),
    "an unknown class": (lambda f: change(f, **{"class": "audit"}), "contains a 'audit': need one of Center"),
    "a path for a class": (lambda f: change(f, **{"class": "../../os"}), "contains a '../../os'"),
    "a list for a class": (lambda f: change(f, **{"class": ["Center"]}), "is not a complete repair"),
    "a parameter too many": (lambda f: change(f, parameters={"evil": 1}), "is not a complete repair"),
    "a wrong parameter": (lambda f: change(f, parameters={"n_clusters": -3}), "n_clusters is -3"),
    "no checksum": (lambda f: change(f, sealed=False, checksum=None), "is not a complete repair"),
    "a missing number": (lambda f: change(f, tensors={"offsets_": None}), "KeyError 'offsets_'"),
    "other dimensions": (lambda f: change(f, dimensions=9), "the vectors have 9 dimensions"),
    "means that lie on their side": (
        lambda f: change(f, tensors={"means_": np.zeros((8, 3))}),
        "means_ has shape (8, 3)",
    ),
    "a mean too few": (lambda f: change(f, tensors={"means_": np.zeros((2, 8))}), "different numbers of clusters"),
    "NaN": (lambda f: change(f, tensors={"means_": np.full((3, 8), np.nan)}), "means_ contains NaN"),
    "no numbers": (lambda f: (f / "model.safetensors").unlink(), "it has no model.safetensors"),
    "no words": (lambda f: (f / "config.json").unlink(), "it has no config.json"),
    "half the numbers": (
        lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-9]),
        "is not a complete repair: SafetensorError",
    ),
    "half the words": (lambda f: (f / "config.json").write_text('{"format": "isos'), "is not a complete repair"),
    "no text": (lambda f: (f / "config.json").write_bytes(b"\xff\xfe\x00"), "is not a complete repair"),
    "a list": (lambda f: (f / "config.json").write_text("[]"), "does not contain an isoscope repair"),
    "nothing": (shutil.rmtree, "is not a saved repair"),
    "a file": (lambda f: (shutil.rmtree(f), f.write_text("mine")), "Not a directory"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_folder_raises_with_its_name(kind, folder):
    damage, message = DAMAGE[kind]
    damage(folder)
    with pytest.raises(InputError) as raised:
        load_transform(folder)
    assert message in str(raised.value)
    assert kind in ("a wrong parameter",) or str(folder) in str(raised.value)


def test_tensors_named_like_paths_are_ignored(folder, clusters):
    expected = load_transform(folder).transform(clusters)
    change(folder, tensors={"../../etc/evil": np.zeros(3), "transform": np.zeros(8)})
    again = load_transform(folder)
    np.testing.assert_array_equal(again.transform(clusters), expected)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["repair"]


def test_a_class_loads_only_its_own_repairs(folder):
    with pytest.raises(InputError, match="contains a ClusterNull, not a Whiten"):
        Whiten.load(folder)
    assert isinstance(ClusterCenter.load(folder), ClusterNull)
