"""How a repair is kept: a folder with its numbers as safetensors and the rest as JSON; never pickle."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import isoscope
from isoscope._core.errors import InputError
from isoscope._io.files import atomic_replace
from isoscope.sketching.file import checksum

if TYPE_CHECKING:
    from isoscope.transforms.repair import Repair

FORMAT, VERSION = "isoscope.transform", 1
CONFIG, NUMBERS = "config.json", "model.safetensors"
CHAIN = "Chain"

_FITTED_ARRAYS = {
    "Center": ("mean_",),
    "Standardize": ("mean_", "scale_"),
    "AllButTheTop": ("mean_", "components_"),
    "Whiten": ("mean_", "components_", "weights_", "matrix_", "shrinkage_"),
    "ClusterCenter": ("clusters_", "means_", "centers_", "precisions_", "offsets_"),
    "ClusterNull": ("clusters_", "means_", "centers_", "precisions_", "offsets_", "components_"),
}
"""What each class knows once it is fitted."""
_ADDRESS = re.compile(r"[\w+]{2,}:/")  # a path has one slash of the two, a drive one letter
_WITHOUT_DIMENSIONS = {"clusters_", "offsets_", "weights_"}


def check_save_folder(folder: str | os.PathLike[str]) -> Path:
    """Where a repair can be saved; an `InputError` for a folder of something else, and for what is no folder."""
    if _ADDRESS.match(os.fspath(folder)):  # not shown: a password may stand in it
        raise InputError("a repair is saved in a folder, not at an address: name a folder")
    target = Path(folder).resolve()
    if target.exists() and not _is_repair_folder(target):
        raise InputError(f"{folder} is there and is not a saved repair: give another folder, or remove it")
    return target


def save(repair: Repair, folder: str | os.PathLike[str]) -> None:
    """Write a fitted repair to a folder, whole or not at all."""
    from safetensors.numpy import save_file

    about, tensors = _serialize(repair)
    config = {"format": FORMAT, "version": VERSION, "isoscope": isoscope.__version__, **about}
    config["checksum"] = checksum(tensors, config)
    target = check_save_folder(folder)
    beside = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        beside.mkdir(parents=True)
        with atomic_replace(beside / NUMBERS) as temporary:  # for the sake of its syncing
            save_file(tensors, temporary)
        with atomic_replace(beside / CONFIG) as temporary:
            temporary.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        _put(beside, target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _serialize(repair: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A fitted repair in words and in numbers; those of a chain's steps are told apart by the step's number."""
    name = type(repair).__name__
    about: dict[str, Any] = {"class": name, "dimensions": int(repair.n_features_in_)}
    if hasattr(repair, "feature_names_in_"):
        about["feature_names"] = [str(column) for column in repair.feature_names_in_]
    if name == CHAIN:
        steps = [_serialize(step) for step in repair.steps_]
        about["steps"] = [words for words, _ in steps]
        return about, {f"{i}.{key}": value for i, (_, held) in enumerate(steps) for key, value in held.items()}
    if name not in _FITTED_ARRAYS:
        known = ", ".join([*_FITTED_ARRAYS, CHAIN])
        raise InputError(f"a {name} is not one of isoscope's own repairs: only {known} can be saved")
    parameters = {
        key: value.item() if isinstance(value, np.generic) else value
        for key, value in repair.get_params(deep=False).items()
    }
    if not isinstance(parameters.get("clusterer", ""), str):
        raise InputError(
            f"the clusterer is a {type(parameters['clusterer']).__name__}, which can be kept only by pickle: "
            'save a repair with clusterer="kmeans" or "gmm"'
        )
    if not isinstance(parameters.get("random_state"), int | None):
        del parameters["random_state"]  # the state of a generator is no part of what was learnt
    about["parameters"] = parameters
    return about, {key: np.asarray(getattr(repair, key), order="C") for key in _FITTED_ARRAYS[name]}


def _is_repair_folder(folder: Path) -> bool:
    """Whether only a repair is lost with a folder: many a model is a `config.json` and a `model.safetensors` too."""
    if not folder.is_dir():
        return False
    held = {path.name for path in folder.iterdir()}
    if not held or held - {CONFIG, NUMBERS}:
        return not held
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.get("format") == FORMAT


def _put(made: Path, target: Path) -> None:
    """Rename a whole folder into place; the old one is kept until the new one stands."""
    old = made.with_suffix(".old")
    if target.exists():
        os.replace(target, old)
    try:
        os.replace(made, target)
    except BaseException:
        if old.exists():
            os.replace(old, target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def load_transform(folder: str | os.PathLike[str]) -> Repair:
    """Read a repair that `save` wrote, whatever its class.

    Parameters
    ----------
    folder : path
        The folder.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> X = np.random.default_rng(0).standard_normal((100, 4)) + 3
    >>> isoscope.Center().fit(X).save("centred")
    >>> repair = isoscope.load_transform("centred")
    >>> repair, bool(abs(repair.transform(X).mean()) < 1e-12)
    (Center(), True)
    """
    found: Repair = load(folder)
    return found


def load(folder: str | os.PathLike[str]) -> Any:
    """Read what `save` wrote; an `InputError` that names the folder if it cannot."""
    config, tensors = read(folder)
    with reraise_as_input_error(folder):
        return _build_repair(config, tensors)


def read(folder: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What `save` wrote, in words and in numbers, seen to be whole."""
    from safetensors.numpy import load_file

    folder = Path(folder)
    with reraise_as_input_error(folder):
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        if not isinstance(config, dict) or config.get("format") != FORMAT:
            raise InputError(f"{folder} does not hold a repair of isoscope's: its {CONFIG} says another format")
        if config["version"] > VERSION:
            raise InputError(
                f"{folder} is of version {config['version']}, this isoscope reads up to {VERSION}: upgrade it"
            )
        if config["class"] not in {*_FITTED_ARRAYS, CHAIN}:
            raise InputError(f"{folder} holds a {config['class']!r}: need one of {', '.join([*_FITTED_ARRAYS, CHAIN])}")
        tensors = load_file(folder / NUMBERS)
        if checksum(tensors, {key: value for key, value in config.items() if key != "checksum"}) != config["checksum"]:
            raise InputError(f"{folder} was changed after it was written: its checksum differs; fit it again")
        for about, held in split_steps(config, tensors) if config["class"] == CHAIN else [(config, tensors)]:
            _check_numbers(about, held)
        return config, tensors


@contextmanager
def reraise_as_input_error(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Have whatever goes wrong with a folder said as an `InputError` that names it."""
    from safetensors import SafetensorError

    try:
        yield
    except InputError:
        raise
    except OSError as error:
        raise InputError(
            f"{folder} cannot be read as a repair: {error.strerror or error} ({error.filename})"
        ) from error
    except (SafetensorError, LookupError, TypeError, ValueError) as error:
        raise InputError(f"{folder} is not a whole repair: {type(error).__name__} {error}; fit it again") from error


def split_steps(
    config: dict[str, Any], tensors: dict[str, np.ndarray]
) -> list[tuple[dict[str, Any], dict[str, np.ndarray]]]:
    """The steps of a chain, in words and in numbers."""
    found, width = [], int(config["dimensions"])
    for i, about in enumerate(config["steps"]):
        if about["class"] not in _FITTED_ARRAYS:
            raise ValueError(f"step {i} is a {about['class']!r}")
        if int(about["dimensions"]) != width:
            raise ValueError(f"step {i} takes {about['dimensions']} dimensions and is given {width}")
        mark = f"{i}."
        held = {key.removeprefix(mark): value for key, value in tensors.items() if key.startswith(mark)}
        found.append((about, held))
        width = held["matrix_"].shape[1] if about["class"] == "Whiten" else width
    return found


def _check_numbers(about: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
    """Refuse a repair that lacks an array, or has one of another shape, or with NaN."""
    names, d = _FITTED_ARRAYS[about["class"]], int(about["dimensions"])
    if missing := set(names) - tensors.keys():
        raise KeyError(", ".join(sorted(missing)))
    for name in names:
        value = tensors[name]
        last = value.shape[0] if name == "matrix_" else value.shape[-1] if value.ndim else d
        if name not in _WITHOUT_DIMENSIONS and last != d:
            raise ValueError(f"{name} has shape {value.shape}, the vectors have {d} dimensions")
        if not np.isfinite(value).all():
            raise ValueError(f"{name} holds NaN or infinity")
    if "means_" in names:
        counts = {name: len(tensors[name]) for name in names}
        if len(set(counts.values())) > 1:
            raise ValueError(f"its arrays are of different numbers of clusters: {counts}")


def _build_repair(config: dict[str, Any], tensors: dict[str, np.ndarray]) -> Any:
    if config["class"] == CHAIN:
        return _build_chain(config, tensors)
    repair = getattr(isoscope, config["class"])(**config["parameters"])
    repair._check_parameters()
    for name in _FITTED_ARRAYS[config["class"]]:
        value = tensors[name]
        setattr(repair, name, value if value.ndim else value.item())
    repair.n_features_in_ = int(config["dimensions"])
    _name_features(repair, config)
    repair._update_derived()
    return repair


def _build_chain(config: dict[str, Any], tensors: dict[str, np.ndarray]) -> Any:
    from sklearn.base import clone

    steps = [_build_repair(about, held) for about, held in split_steps(config, tensors)]
    chain = getattr(isoscope, CHAIN)([clone(step) for step in steps])
    chain.steps_ = steps
    chain.n_features_in_ = int(config["dimensions"])
    _name_features(chain, config)
    return chain


def _name_features(repair: Any, config: dict[str, Any]) -> None:
    if "feature_names" in config:
        repair.feature_names_in_ = np.asarray(config["feature_names"], dtype=object)
