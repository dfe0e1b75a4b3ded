"""Save and load repairs: a folder contains arrays as safetensors and the rest as JSON; pickle is never used."""

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
from isoscope._core.errors import FileFormatError, InputError, NotFoundError, OutputError, ParameterError
from isoscope._io.files import atomic_replace
from isoscope._io.json import shorten
from isoscope.sketching.file import checksum
from isoscope.stores.databases.address import Address, parse_target

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
    "Quantizer": ("mean_", "basis_", "weights_", "low_", "span_", "centroids_"),
}
"""The fitted arrays of each class."""
_ADDRESS = re.compile(r"[\w+]{2,}:/")  # as a path, an address has only one slash; a drive has one letter
_WITHOUT_DIMENSIONS = {"clusters_", "offsets_", "weights_", "low_", "span_", "centroids_"}
_TRANSPOSED = {"matrix_", "basis_"}  # the dimensions of the vectors come first


def check_save_folder(folder: str | os.PathLike[str], kind: str = "repair") -> Path:
    """Return the path of a folder to save a repair or quantizer in; raise an `OutputError` if it has other contents."""
    if _ADDRESS.match(os.fspath(folder)) or isinstance(parse_target(folder), Address):
        raise OutputError(f"a {kind} is saved in a folder, not in a database: choose a folder")
    target = Path(folder).resolve()
    if target.exists() and not _is_repair_folder(target):
        raise OutputError(f"{folder} exists and is not a saved {kind}: choose another folder, or remove it")
    return target


def save(repair: Repair, folder: str | os.PathLike[str]) -> None:
    """Write a fitted repair to a folder, atomically."""
    from safetensors.numpy import save_file

    about, tensors = _serialize(repair)
    config = {"format": FORMAT, "version": VERSION, "isoscope": isoscope.__version__, **about}
    config["checksum"] = checksum(tensors, config)
    target = check_save_folder(folder, "quantizer" if about.get("class") == "Quantizer" else "repair")
    temporary_folder = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        temporary_folder.mkdir(parents=True)
        with atomic_replace(temporary_folder / NUMBERS) as temporary:  # also flushes the file to disk
            save_file(tensors, temporary)
        with atomic_replace(temporary_folder / CONFIG) as temporary:
            temporary.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        _replace_folder(temporary_folder, target)
    finally:
        shutil.rmtree(temporary_folder, ignore_errors=True)


def _serialize(repair: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return a repair's configuration and arrays; in a chain, array names begin with the number of the step."""
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
        raise ParameterError(f"a {name} cannot be saved: need one of {known}")
    parameters = {
        key: value.item() if isinstance(value, np.generic) else value
        for key, value in repair.get_params(deep=False).items()
    }
    if not isinstance(parameters.get("clusterer", ""), str):
        raise ParameterError(
            f"the clusterer is a {type(parameters['clusterer']).__name__}, which only pickle can save: "
            'use clusterer="kmeans" or "gmm" instead'
        )
    if not isinstance(parameters.get("random_state"), int | None):
        del parameters["random_state"]  # the state of a generator is not a fitted value
    about["parameters"] = parameters
    return about, {key: np.asarray(getattr(repair, key), order="C") for key in _FITTED_ARRAYS[name]}


def _is_repair_folder(folder: Path) -> bool:
    """Return whether a folder is empty or contains only a repair; models have files with the same names."""
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


def _replace_folder(made: Path, target: Path) -> None:
    """Rename a complete folder to its target; the old folder is kept until then."""
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
    """Load a saved repair of any class.

    Parameters
    ----------
    folder : path
        The folder that `save` wrote.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> X = np.random.default_rng(0).standard_normal((100, 4)) + 3
    >>> isoscope.Center().fit(X).save("centered")
    >>> repair = isoscope.load_transform("centered")
    >>> repair, bool(abs(repair.transform(X).mean()) < 1e-12)
    (Center(), True)
    """
    found: Repair = load(folder)
    return found


def load(folder: str | os.PathLike[str]) -> Any:
    """Load a saved repair; raise an `InputError` that names the folder if it cannot be read."""
    config, tensors = read(folder)
    with reraise_as_input_error(folder):
        return _build_repair(config, tensors)


def read(folder: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the configuration and the arrays of a saved repair after checking them."""
    from safetensors.numpy import load_file

    folder = Path(folder)
    with reraise_as_input_error(folder):
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        if not isinstance(config, dict) or config.get("format") != FORMAT:
            raise FileFormatError(
                f"{folder} does not contain an isoscope repair: the format of its {CONFIG} is not recognized"
            )
        if config["version"] > VERSION:
            raise FileFormatError(
                f"{folder} has version {shorten(str(config['version']))}, but this version of isoscope reads at most "
                f"version {VERSION}: upgrade isoscope"
            )
        if config["class"] not in {*_FITTED_ARRAYS, CHAIN}:
            known = ", ".join([*_FITTED_ARRAYS, CHAIN])
            raise FileFormatError(f"{folder} contains a {shorten(repr(config['class']))}: need one of {known}")
        tensors = load_file(folder / NUMBERS)
        if checksum(tensors, {key: value for key, value in config.items() if key != "checksum"}) != config["checksum"]:
            raise FileFormatError(
                f"{folder} was changed after it was written (its checksum differs): fit the repair again"
            )
        for about, held in split_steps(config, tensors) if config["class"] == CHAIN else [(config, tensors)]:
            _check_numbers(about, held)
        return config, tensors


@contextmanager
def reraise_as_input_error(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Convert any error in a `with` block into an `InputError` that names the folder."""
    from safetensors import SafetensorError

    try:
        yield
    except InputError:
        raise
    except FileNotFoundError as error:
        raise NotFoundError(
            f"{folder} is not a saved repair: it has no {os.path.basename(error.filename or NUMBERS)}; pass the folder "
            "of a repair that fit, fix or advise saved"
        ) from error
    except OSError as error:
        raise NotFoundError(
            f"{folder} cannot be read as a repair: {error.strerror or error} ({error.filename})"
        ) from error
    except (SafetensorError, LookupError, TypeError, ValueError, OverflowError, RecursionError) as error:
        why = shorten(f"{type(error).__name__} {error}", 200)
        raise FileFormatError(f"{folder} is not a complete repair: {why}; fit the repair again") from error


def split_steps(
    config: dict[str, Any], tensors: dict[str, np.ndarray]
) -> list[tuple[dict[str, Any], dict[str, np.ndarray]]]:
    """Return the configuration and the arrays of each step of a chain."""
    found, width = [], int(config["dimensions"])
    for i, about in enumerate(config["steps"]):
        if about["class"] not in _FITTED_ARRAYS:
            raise ValueError(f"step {i} has the unknown class {about['class']!r}")
        if int(about["dimensions"]) != width:
            raise ValueError(f"step {i} takes {about['dimensions']} dimensions but gets {width}")
        mark = f"{i}."
        held = {key.removeprefix(mark): value for key, value in tensors.items() if key.startswith(mark)}
        found.append((about, held))
        width = held["matrix_"].shape[1] if about["class"] == "Whiten" else width
    return found


def _check_numbers(about: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
    """Raise an error if an array is missing, has a wrong shape or contains NaN."""
    names, d = _FITTED_ARRAYS[about["class"]], int(about["dimensions"])
    if missing := set(names) - tensors.keys():
        raise KeyError(", ".join(sorted(missing)))
    for name in names:
        value = tensors[name]
        last = value.shape[0] if name in _TRANSPOSED else value.shape[-1] if value.ndim else d
        if name not in _WITHOUT_DIMENSIONS and last != d:
            raise ValueError(f"{name} has shape {value.shape} but the vectors have {d} dimensions")
        if not np.isfinite(value).all():
            raise ValueError(f"{name} contains NaN or infinity")
    if "means_" in names:
        counts = {name: len(tensors[name]) for name in names}
        if len(set(counts.values())) > 1:
            raise ValueError(f"its arrays have different numbers of clusters: {counts}")


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
