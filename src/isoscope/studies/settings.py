"""What a run of a study was asked for: checked, written down, and compared with what a folder holds already."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isoscope._core.errors import InputError
from isoscope.studies.catalog import study as study_by_name
from isoscope.studies.datasets import DataSource, Model
from isoscope.studies.reading import fingerprint_data_sets
from isoscope.studies.study import Setting, format_value

if TYPE_CHECKING:
    from isoscope.studies.study import Study

SCHEMA = "isoscope.study-settings/1"
_SEED_PARAMETERS = ("seeds", "draws")  # where they are lists
_MAX_SEEDS = 1000  # a larger number is meant as one seed
_MODEL_FILES = ("config.json", "modules.json", "vectors.npy")  # one of them at least is in a folder of a model


def make_setting(
    study: Study,
    models: Sequence[str | os.PathLike[str]] | None,
    data: str | os.PathLike[str] | None,
    quick: bool,
    given: Mapping[str, Any],
) -> Setting:
    """What is to be run: the study's own values, what was given in their place, everything checked."""
    unknown = [name for name in given if name not in study.parameters]
    if unknown:
        raise InputError(f"{study.name} has no parameter {unknown[0]}: it has {', '.join(study.parameters)}")
    values = {name: each.quick if quick else each.full for name, each in study.parameters.items()}
    for name, value in given.items():
        told = range(_check_seed_count(value)) if name == "seeds" and isinstance(value, int) else value
        values[name] = study.parameters[name].parse(
            name, told if isinstance(told, str) else format_value(_to_tuple(told))
        )
    for name in _SEED_PARAMETERS:
        wrong = [each for each in _tuple_or_empty(values.get(name)) if not 0 <= each < 2**32]
        if wrong:
            raise InputError(f"{name} has {wrong[0]}: need whole numbers from 0 to {2**32 - 1}")
    places = [os.fspath(each) for each in models or (study.quick_models if quick else study.models)]
    found = tuple(map(_find_model, places))
    names = [each.name for each in found]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputError(f"two models are called {twice[0]}: rename one of the folders")
    return Setting(found, DataSource(None if data is None else Path(data).expanduser()), values, quick)


def _find_model(place: str) -> Model:
    """A folder that is there, or a name on the hub: "bert-base-uncased", "FacebookAI/roberta-base"."""
    path = Path(place).expanduser()
    if path.is_dir() and not any((path / each).is_file() for each in _MODEL_FILES):
        raise InputError(
            f"{path} holds no model: need config.json, weights and a tokenizer, as `save_pretrained` writes them, or "
            "word vectors as vectors.npy and words.txt"
        )
    if path.exists():
        return Model(os.path.abspath(path))  # which also gives . and .. a name
    if path.is_absolute() or place.startswith((".", "~")) or place.count("/") > 1 or place.endswith("/"):
        raise InputError(
            f"there is no folder {path}: name one with a model's config.json, weights and tokenizer, as "
            "`save_pretrained` writes them, or a model's name on the Hugging Face hub"
        )
    return Model(place)


def _check_seed_count(seeds: int) -> int:
    if not 0 < seeds <= _MAX_SEEDS:
        raise InputError(f"seeds is {seeds}: need how many, from 1 to {_MAX_SEEDS}, or which, such as {seeds},")
    return seeds


def _tuple_or_empty(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else ()


def _to_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | range) else value


def settings_to_dict(study: Study, setting: Setting) -> dict[str, Any]:
    """Everything that decides what the arms give, for a file."""
    return {
        "schema": SCHEMA,
        "study": study.name,
        "quick": setting.quick,
        "parameters": {name: format_value(value) for name, value in setting.values.items()},
        "models": {each.name: each.fingerprint() for each in setting.models},
        "weights": {each.name: each.weights_fingerprint() for each in setting.models},
        "data": fingerprint_data_sets(tuple(study.data_sets(setting)), setting.data),
    }


def read_settings(folder: Path, told: Mapping[str, Any]) -> dict[str, Any] | None:
    """The settings of the run that a folder holds, None if it is to be begun.

    An `InputError` with the difference if finished arms are of other settings, or if the folder holds something else.
    """
    path = folder / "settings.json"
    if not path.exists():
        if folder.is_dir() and any(not each.name.startswith(".") for each in folder.iterdir()):  # a half of it, maybe
            raise InputError(f"{folder} holds something else than a run of a study: name another folder")
        return None
    try:
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        differing = _differences(kept, told)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not of a study's run: {error}; name another folder") from error
    if differing and any((folder / "arms").glob("*.json")):
        raise InputError(f"{folder} holds a run with other settings: {'; '.join(differing)}; name another folder")
    return None if differing else kept


def _differences(kept: Mapping[str, Any], told: Mapping[str, Any]) -> list[str]:
    """What would make a finished arm another one: models and data sets that both have, and all that does not widen."""
    if kept["schema"] != SCHEMA or kept["study"] != told["study"]:
        return [f"it is of {kept.get('study', kept['schema'])}, and this is {told['study']}"]
    widening = {name for name, each in study_by_name(told["study"]).parameters.items() if each.widens}
    found = [] if kept["quick"] == told["quick"] else [f"it was {'' if kept['quick'] else 'not '}a quick run"]
    for name, value in told["parameters"].items():
        before = kept["parameters"].get(name, value)
        if before != value and name not in widening:
            found.append(f"{name} was {before} and is {value}")
    for kind, words in (("models", "the model"), ("weights", "the model"), ("data", "the files of")):
        before = kept.get(kind, {})
        found += [f"{words} {name} changed" for name, word in told[kind].items() if before.get(name, word) != word]
    return list(dict.fromkeys(found))


def merge_settings(kept: Mapping[str, Any] | None, told: Mapping[str, Any]) -> dict[str, Any]:
    """Settings to write down: models and data sets of finished arms are remembered, also those not asked for now."""
    if kept is None:
        return dict(told)
    return {**told, **{kind: {**kept.get(kind, {}), **told[kind]} for kind in ("models", "weights", "data")}}
