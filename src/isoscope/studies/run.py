"""Run a study: check its settings, run or resume its arms, and write its results."""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isoscope._core.errors import InputError, MissingExtra, NotFoundError, OutputError, ParameterError, plural
from isoscope._core.threads import thread_count
from isoscope._io.files import atomic_replace, lock_folder
from isoscope._io.progress import show_progress
from isoscope.finetuning.result import nan_to_null
from isoscope.studies.datasets.registry import fingerprint_data_sets
from isoscope.studies.datasets.source import DataSource
from isoscope.studies.formatting import file_name
from isoscope.studies.models import Model
from isoscope.studies.page import render_study_page, write_summary
from isoscope.studies.study import ArmContext, Case, Setting, format_value
from isoscope.studies.study import study as study_by_name

if TYPE_CHECKING:
    from isoscope._io.progress import Progress
    from isoscope.studies.study import Arm, Outcome, Results, Setting, Study, Table, Verdict


SETTINGS_SCHEMA = "isoscope.study-settings/1"
_SEED_PARAMETERS = ("seeds", "draws")  # where they are lists
_MAX_SEEDS = 1000  # a larger number is probably meant as one seed
_MODEL_FILES = ("config.json", "modules.json", "vectors.npy")  # a model's folder has at least one of them


def make_setting(
    study: Study,
    models: Sequence[str | os.PathLike[str]] | None,
    data: str | os.PathLike[str] | None,
    quick: bool,
    given: Mapping[str, Any],
) -> Setting:
    """Return the checked settings of a run: the study's defaults, replaced by the given values."""
    unknown = [name for name in given if name not in study.parameters]
    if unknown:
        raise ParameterError(f"{study.name} has no parameter {unknown[0]}: choose from {', '.join(study.parameters)}")
    values = {name: each.quick if quick else each.full for name, each in study.parameters.items()}
    for name, value in given.items():
        told = range(_check_seed_count(value)) if name == "seeds" and isinstance(value, int) else value
        values[name] = study.parameters[name].parse(
            name, told if isinstance(told, str) else format_value(_to_tuple(told))
        )
    for name in _SEED_PARAMETERS:
        wrong = [each for each in _tuple_or_empty(values.get(name)) if not 0 <= each < 2**32]
        if wrong:
            raise ParameterError(f"{name} has {wrong[0]}: need integers from 0 to {2**32 - 1}")
    places = [os.fspath(each) for each in models or (study.quick_models if quick else study.models)]
    found = tuple(map(_find_model, places))
    names = [each.name for each in found]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ParameterError(f"two models have the name {twice[0]}; rename one of the folders")
    return Setting(found, DataSource(None if data is None else Path(data).expanduser()), values, quick)


def _find_model(place: str) -> Model:
    """Return the model in a folder, or one on the hub: "bert-base-uncased", "FacebookAI/roberta-base"."""
    path = Path(place).expanduser()
    if path.is_dir() and not any((path / each).is_file() for each in _MODEL_FILES):
        raise NotFoundError(
            f"{path} has no model: need config.json, weights and a tokenizer, as `save_pretrained` writes them, or "
            "word vectors as vectors.npy and words.txt"
        )
    if path.exists():
        return Model(os.path.abspath(path))  # also resolves . and .. to a name
    if path.is_absolute() or place.startswith((".", "~")) or place.count("/") > 1 or place.endswith("/"):
        raise NotFoundError(
            f"there is no folder {path}: pass one with a model's config.json, weights and tokenizer, as "
            "`save_pretrained` writes them, or a model's name on the Hugging Face hub"
        )
    return Model(place)


def _check_seed_count(seeds: int) -> int:
    if not 0 < seeds <= _MAX_SEEDS:
        raise ParameterError(
            f"seeds is {seeds}: need a number of seeds from 1 to {_MAX_SEEDS}, or a list of seeds, such as {seeds},"
        )
    return seeds


def _tuple_or_empty(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else ()


def _to_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | range) else value


def settings_to_dict(study: Study, setting: Setting) -> dict[str, Any]:
    """Everything that decides what the arms give, for a file."""
    return {
        "schema": SETTINGS_SCHEMA,
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
    if kept["schema"] != SETTINGS_SCHEMA or kept["study"] != told["study"]:
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


SCHEMA = "isoscope.study/1"


@dataclass(frozen=True)
class StudyRun:
    """The result of `run_study`: the arms' results, and the tables, figures and verdicts derived from them."""

    study: Study
    setting: Setting
    results: Results
    outcome: Outcome
    folder: Path
    facts: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the run as a dictionary for JSON."""
        return {
            "schema": SCHEMA,
            "study": self.study.name,
            "paper": asdict(self.study.published.paper),
            "facts": self.facts,
            "claims": [verdict_to_dict(each) for each in self.outcome.verdicts],
            "observations": [verdict_to_dict(each) for each in self.outcome.observations],
            "tables": [_table_to_dict(each) for each in self.outcome.tables],
            "notes": list(self.outcome.notes),
            "arms": dict(self.results),
        }


def run_study(
    name: str,
    *,
    out: str | os.PathLike[str],
    models: Sequence[str | os.PathLike[str]] | None = None,
    data: str | os.PathLike[str] | None = None,
    quick: bool = False,
    only: str | Sequence[str] = (),
    progress: bool | Progress = False,
    **parameters: Any,
) -> StudyRun:
    """Run a paper's protocol, and compare our numbers with the published ones.

    Finished arms are saved in `out`. A repeated call reads them back and runs only the missing ones, so it resumes an
    interrupted run. It rejects other settings in the same folder, but adds more seeds, tasks and models.

    Parameters
    ----------
    name : str
        One of `isoscope.studies.study.STUDIES`.
    out : path
        The folder of the run: ``results.json``, ``page.html``, ``summary.md`` with ``figures/``, and ``arms/``.
    models : sequence of str or path, optional
        Folders, or names on the Hugging Face hub. Default: the paper's models.
    data : path, optional
        The folder with the data sets' folders. Default: data sets are read from the hub.
    quick : bool
        Run a smaller version that takes minutes and shows the same direction.
    only : str or sequence of str
        Run only the arms whose key matches one of these patterns, such as ``"cola/*/seed-0"``. Tables and verdicts then
        use these and the arms that are already in `out`. Default: all arms.
    progress : bool or callable
        Show a progress bar; or a function that receives the arm's number, the finished arms, the share of the work
        done, and a note.
    **parameters
        Parameters of the study: see its `parameters`, or ``isoscope study show NAME``. `seeds` is the number of seeds,
        or a list of them.

    Examples
    --------
    >>> import isoscope
    >>> isoscope.run_study("isotropy-clusters-classifiers", out="run", updates="many")
    Traceback (most recent call last):
    ...
    isoscope.ParameterError: updates is many: need an integer, such as 0
    """
    found = study_by_name(name)
    setting = make_setting(found, models, data, quick, parameters)
    folder = Path(out).expanduser()
    told = settings_to_dict(found, setting)
    _check_extra(found, setting)
    arms = _check_distinct(found.arms(setting))
    asked = _match_keys(arms, (only,) if isinstance(only, str) else only)
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file: pass a folder for the run")
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder):
        kept = read_settings(folder, told)
        for each in ("work", "shared") if kept is None else ():  # halves of arms with other settings
            shutil.rmtree(folder / each, ignore_errors=True)
        _write_json(merge_settings(kept, told), folder / "settings.json")
        began = time.monotonic()
        with show_progress(progress, "arms") as report:
            results, seconds, failed = _run_arms(_choose_arms(arms, asked, folder), folder, report)
        if not results:
            raise _failure(failed)
        facts = _facts(found, setting, told, arms, seconds, time.monotonic() - began)
        run = StudyRun(found, setting, results, found.outcome(setting, results), folder, facts)
        _write_json(run.to_dict(), folder / "results.json")
        with atomic_replace(folder / "page.html") as path:
            path.write_text(render_study_page(found, run.outcome, facts), encoding="utf-8")
        write_summary(found, run.outcome, facts, folder)
    if failed:
        raise _failure(failed, f"{plural(len(results), 'other arm')} done: {folder / 'page.html'}")
    return run


def _failure(failed: Mapping[str, InputError], more: str = "") -> InputError:
    """Return the error of the first arm that failed, with the number of failed arms."""
    key, error = next(iter(failed.items()))
    others = f" ({plural(len(failed), 'arm')} failed)" if len(failed) > 1 else ""
    return InputError("; ".join(each for each in (f"{key}: {error}{others}", more) if each))


def _check_distinct(arms: Sequence[Arm]) -> Sequence[Arm]:
    keys = [each.key for each in arms]
    if not arms:
        raise ParameterError("nothing to run: pass at least one task, one seed and one model")
    if len(set(keys)) < len(keys):
        raise RuntimeError(f"two arms have one key: {next(key for key in keys if keys.count(key) > 1)}")
    return arms


def _match_keys(arms: Sequence[Arm], patterns: Sequence[str]) -> set[str]:
    """Return the keys of the arms that match a pattern; of all arms if there are no patterns."""
    keys = [each.key for each in arms]
    if not patterns:
        return set(keys)
    for pattern in patterns:
        if not any(fnmatchcase(key, pattern) for key in keys):
            raise ParameterError(f"only is {pattern}: no arm matches; arm keys go from {keys[0]} to {keys[-1]}")
    return {key for key in keys if any(fnmatchcase(key, pattern) for pattern in patterns)}


def _choose_arms(arms: Sequence[Arm], asked: set[str], folder: Path) -> list[Arm]:
    """Return the requested arms and the finished ones."""
    return [each for each in arms if each.key in asked or _arm_path(folder, each).exists()]


def _arm_path(folder: Path, arm: Arm) -> Path:
    return folder / "arms" / f"{file_name(arm.key)}.json"


def _run_arms(
    arms: Sequence[Arm], folder: Path, progress: Progress
) -> tuple[dict[str, Any], dict[str, float], dict[str, InputError]]:
    """Each arm that is not done, in its order; what all of them gave, how long each took, and those that failed."""
    shared = folder / "shared"
    for each in (folder / "arms", shared):
        each.mkdir(exist_ok=True)
    results: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    failed: dict[str, InputError] = {}
    paths = [_arm_path(folder, arm) for arm in arms]
    total = sum(each.cost for each in arms)
    before = sum(arm.cost for arm, path in zip(arms, paths, strict=True) if path.exists())  # it takes no time now
    for place, (arm, path) in enumerate(zip(arms, paths, strict=True)):
        done = _read_arm(path, arm)
        if done is None:

            def tell(share: float, words: str = "", *, arm: Arm = arm, place: int = place, at: float = before) -> None:
                note = f"{arm.words}  {words}".strip()
                progress(f"arm {place + 1}/{len(arms)}", place, (at + share * arm.cost) / total, note)

            own = folder / "work" / file_name(arm.key)
            own.mkdir(parents=True, exist_ok=True)
            tell(0.0)
            began = time.monotonic()
            try:
                result = nan_to_null(arm.run(ArmContext(own, shared, tell)))
            except MissingExtra:
                raise
            except InputError as error:  # such as a training that diverges: the other arms are run all the same
                failed[arm.key] = error
                continue
            done = {"key": arm.key, "seconds": round(time.monotonic() - began, 3), "result": result}
            _write_json(done, path)
            done = _read_arm(path, arm) or done  # what the next start reads, to the last key
            shutil.rmtree(own, ignore_errors=True)
            tell(1.0)
            before += arm.cost
        results[arm.key], seconds[arm.key] = _null_to_nan(done["result"]), done["seconds"]
    with suppress(OSError):  # what other arms have begun stays
        (folder / "work").rmdir()
    return results, seconds, failed


def _read_arm(path: Path, arm: Arm) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if found["key"] != arm.key or not isinstance(found["result"], dict):
            raise ValueError("it is of another arm")
        float(found["seconds"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no result of an arm ({error}): remove it to run that arm anew") from error
    return found


def _null_to_nan(value: Any) -> Any:
    """What `nan_to_null` made of numbers that JSON does not have."""
    if isinstance(value, dict):
        return {name: _null_to_nan(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_null_to_nan(each) for each in value]
    return float("nan") if value is None else value


def _facts(
    study: Study,
    setting: Setting,
    told: Mapping[str, Any],
    arms: Sequence[Arm],
    seconds: Mapping[str, float],
    now: float,
) -> dict[str, Any]:
    return {
        "models": [each.name for each in setting.models],
        "data": list(told["data"]),
        "quick": setting.quick,
        "parameters": told["parameters"],
        "arms": len(seconds),
        "arms_in_all": len(arms),
        "seconds": round(sum(seconds.values()), 1),
        "seconds_of_last_start": round(now, 1),
        "hardware": f"{plural(thread_count(), 'thread')}, {platform.machine()}, {platform.system()}",
        "versions": dict(_versions(("isoscope", "numpy", "scipy", "scikit-learn", "torch", "transformers"))),
        "python": platform.python_version(),
    }


def _versions(names: Iterable[str]) -> Iterable[tuple[str, str]]:
    for name in names:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue


def _check_extra(study: Study, setting: Setting) -> None:
    needed = {"train": ("torch", "transformers", "accelerate"), "embed": ("torch", "transformers"), "": ()}
    extra = study.extra_for(setting)
    missing = [name for name in needed[extra] if find_spec(name) is None]
    if missing:
        raise MissingExtra(f'{study.name} needs {", ".join(missing)}: pip install "isoscope[{extra}]"')


def verdict_to_dict(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as a dictionary for JSON, with the cases from which it is derived."""
    return {
        **asdict(verdict.claim),
        "published": verdict.published,
        "ours": verdict.ours,
        "holds": verdict.holds.value,
        "why": verdict.why,
        "most": verdict.most,
        "cases": [asdict(each) for each in verdict.cases],
    }


def read_case(told: Mapping[str, Any]) -> Case:
    """Return a case from its dictionary in JSON, where null stands for numbers that are not finite."""
    low, high = (math.nan if end is None else float(end) for end in told["interval"])
    least, greatest = told["claimed"]
    claimed = (-math.inf if least is None else float(least), math.inf if greatest is None else float(greatest))
    return Case(told["words"], float(told["estimate"]), (low, high), claimed)


def _table_to_dict(table: Table) -> dict[str, Any]:
    return {
        "key": table.key,
        "title": table.title,
        "where": table.where,
        "rows": [
            {
                "name": row.name,
                "ours": {
                    name: {"mean": value.mean, "std": value.std, "seeds": list(value.seeds)}
                    for name, value in row.ours.items()
                },
                "published": {name: asdict(number) for name, number in row.published.items()},
                "of": row.of,
            }
            for row in table.rows
        ],
    }


def _write_json(told: Mapping[str, Any], path: Path) -> None:
    with atomic_replace(path) as temporary:
        temporary.write_text(json.dumps(nan_to_null(told), indent=1, allow_nan=False) + "\n", encoding="utf-8")
