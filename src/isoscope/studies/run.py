"""Run a study: check its settings, run or resume its arms, and write its results."""

from __future__ import annotations

import math
import os
import platform
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isoscope._core.errors import FileFormatError, InputError, MissingExtra, NotFoundError, ParameterError, plural
from isoscope._core.threads import thread_count
from isoscope._io.files import atomic_replace, expand_user
from isoscope._io.json import CHANGED, check_type, checksum, jsonable, parse_json, shorten, write_json
from isoscope._io.progress import show_progress
from isoscope._io.runs import RunFolder, differences
from isoscope.studies.datasets.registry import fingerprint_data_sets
from isoscope.studies.datasets.source import DataSource
from isoscope.studies.formatting import file_name
from isoscope.studies.models import Model
from isoscope.studies.page import render_study_notebook, render_study_page, write_summary
from isoscope.studies.study import ArmContext, Case, Setting, format_value
from isoscope.studies.study import study as study_by_name

if TYPE_CHECKING:
    from isoscope._io.progress import Progress
    from isoscope.studies.study import Arm, Outcome, Results, Setting, Study, Table, Verdict


SETTINGS_SCHEMA = "isoscope.study-settings/1"
_SEED_PARAMETERS = ("seeds", "draws")  # if they are lists
_MAX_SEEDS = 1000  # a larger number is probably meant as a single seed
_MODEL_FILES = ("config.json", "modules.json", "vectors.npy")  # a model folder contains at least one of them


def make_setting(
    study: Study,
    models: Sequence[str | os.PathLike[str]] | None,
    data: str | os.PathLike[str] | None,
    quick: bool,
    given: Mapping[str, Any],
) -> Setting:
    """Return the validated settings of a run: the study's defaults, overridden by the given values."""
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
            raise ParameterError(f"{name} contains {wrong[0]}: need integers from 0 to {2**32 - 1}")
    places = [os.fspath(each) for each in models or (study.quick_models if quick else study.models)]
    found = tuple(map(_find_model, places))
    names = [each.name for each in found]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ParameterError(f"two models have the name {twice[0]}; rename one of the folders")
    return Setting(found, DataSource(None if data is None else expand_user(data)), values, quick)


def _find_model(place: str) -> Model:
    """Return a model from a folder, or from the Hub by a name such as "FacebookAI/roberta-base"."""
    path = expand_user(place)
    if path.is_dir() and not any((path / each).is_file() for each in _MODEL_FILES):
        raise NotFoundError(
            f"{path} contains no model: need config.json, weights and a tokenizer, as written by `save_pretrained`, or "
            "word vectors as vectors.npy and words.txt"
        )
    if path.exists():
        return Model(os.path.abspath(path))  # this also resolves . and .. to a name
    if path.is_absolute() or place.startswith((".", "~")) or place.count("/") > 1 or place.endswith("/"):
        raise NotFoundError(
            f"there is no folder {path}: pass a folder with a model's config.json, weights and tokenizer, as written "
            "by `save_pretrained`, or the name of a model on the Hugging Face Hub"
        )
    return Model(place)


def _check_seed_count(seeds: int) -> int:
    if not 0 < seeds <= _MAX_SEEDS:
        raise ParameterError(
            f"seeds is {seeds}: need a number of seeds from 1 to {_MAX_SEEDS}, or a list such as [{seeds}] "
            f"(on the command line, add a trailing comma: --seeds {seeds},)"
        )
    return seeds


def _tuple_or_empty(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else ()


def _to_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | range) else value


def settings_to_dict(study: Study, setting: Setting) -> dict[str, Any]:
    """Return everything that determines the results of the arms, as a dictionary for JSON."""
    return {
        "study": study.name,
        "quick": setting.quick,
        "parameters": {name: format_value(value) for name, value in setting.values.items()},
        "models": {each.name: each.fingerprint() for each in setting.models},
        "weights": {each.name: each.weights_fingerprint() for each in setting.models},
        "data": fingerprint_data_sets(tuple(study.data_sets(setting)), setting.data),
    }


def compare_settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the changes that invalidate finished arms: in models, data, or parameters without `widens`."""
    for kind in ("parameters", "models", "weights", "data"):
        check_type(old[kind] if kind != "weights" else old.get(kind, {}), dict, kind)
    if check_type(old["study"], str, "study") != new["study"]:
        return [f"it is a run of {shorten(old['study'])}, not of {new['study']}"]
    widening = {name for name, each in study_by_name(new["study"]).parameters.items() if each.widens}
    compared = {name: value for name, value in new["parameters"].items() if name not in widening}
    found = [] if old["quick"] == new["quick"] else [f"it was {'' if old['quick'] else 'not '}a quick run"]
    found += differences(old["parameters"], compared)
    for kind, words in (("models", "the model"), ("weights", "the model"), ("data", "the files of")):
        changed = {name: f"{words} {name} changed" for name in new[kind]}
        found += differences(old.get(kind, {}), new[kind], changed)
    return list(dict.fromkeys(found))


def merge_settings(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings to write; they also include models and datasets that only earlier arms used."""
    if old is None:
        return dict(new)
    return {**new, **{kind: {**old.get(kind, {}), **new[kind]} for kind in ("models", "weights", "data")}}


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

    def __repr__(self) -> str:
        counts = Counter(each.holds.value for each in self.outcome.verdicts)
        found = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
        return f"StudyRun({self.study.name}: {plural(len(self.results), 'arm')}, claims: {found})"

    def _repr_html_(self) -> str:
        return render_study_notebook(self.study, self.outcome, self.folder)

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
    output: str | os.PathLike[str],
    models: Sequence[str | os.PathLike[str]] | None = None,
    data: str | os.PathLike[str] | None = None,
    quick: bool = False,
    only: str | Sequence[str] = (),
    progress: bool | Progress | None = None,
    **parameters: Any,
) -> StudyRun:
    """Run a paper's protocol and compare our numbers with the published ones.

    Finished arms are saved in `output`. A repeated call reads them back and runs only the missing ones, so it resumes
    an interrupted run. It rejects different settings in the same folder, but it can add more seeds, tasks and models.

    Parameters
    ----------
    name : str
        The name of a study, from `isoscope.studies.study.STUDIES`.
    output : path
        The folder of the run: ``results.json``, ``page.html``, ``summary.md`` with ``figures/``, and ``arms/``.
    models : sequence of str or path, optional
        Folders, or names on the Hugging Face Hub. Default: the paper's models.
    data : path, optional
        The folder that contains the datasets' folders. Default: datasets are read from the Hugging Face Hub.
    quick : bool
        Run a smaller version that takes minutes and shows the same trends.
    only : str or sequence of str
        Run only the arms whose key matches one of these patterns, such as ``"cola/*/seed-0"``. Tables and verdicts then
        use these arms and those that are already in `output`. Default: all arms.
    progress : bool or function, optional
        Whether to show a progress bar: by default in notebooks and at a Python prompt; or a function that
        receives the arm's number, the number of finished arms, the share of the work done, and a note.
    **parameters
        Parameters of the study: see its `parameters`, or ``isoscope study show NAME``. `seeds` is the number of seeds,
        or a list of them.

    Examples
    --------
    >>> import isoscope
    >>> isoscope.run_study("isotropy-clusters-classifiers", output="run", updates="many")
    Traceback (most recent call last):
    ...
    isoscope.errors.ParameterError: updates is many: need an integer, such as 0
    """
    found = study_by_name(name)
    setting = make_setting(found, models, data, quick, parameters)
    run_folder = RunFolder(expand_user(output), "settings.json", SETTINGS_SCHEMA, parts=("arms/*.json",))
    folder = run_folder.path
    told = settings_to_dict(found, setting)
    _check_extra(found, setting)
    arms = _check_distinct(found.arms(setting))
    asked = _match_keys(arms, (only,) if isinstance(only, str) else only)
    with run_folder.open(parents=True):
        earlier = run_folder.check(told, compare=compare_settings)
        for each in ("work", "shared") if earlier is None else ():  # unfinished arms with other settings
            shutil.rmtree(folder / each, ignore_errors=True)
        run_folder.write(merge_settings(earlier, told))
        began = time.monotonic()
        with show_progress(progress, "arms") as report:
            results, seconds, failed = _run_arms(_choose_arms(arms, asked, folder), folder, report)
        if not results:
            raise _failure(failed)
        facts = _facts(found, setting, told, arms, seconds, time.monotonic() - began)
        with _explain_unverified_arms(folder):
            run = StudyRun(found, setting, results, found.outcome(setting, results), folder, facts)
            write_json(jsonable(run.to_dict()), folder / "results.json", indent=1)
            with atomic_replace(folder / "page.html") as path:
                path.write_text(render_study_page(found, run.outcome, facts), encoding="utf-8")
            write_summary(found, run.outcome, facts, folder)
    if failed:
        raise _failure(failed, f"finished {plural(len(results), 'other arm')}: {folder / 'page.html'}")
    return run


def _failure(failed: Mapping[str, InputError], more: str = "") -> InputError:
    """Return an error that names the first failed arm, its error and the number of failed arms."""
    key, error = next(iter(failed.items()))
    others = f" ({plural(len(failed), 'arm')} failed)" if len(failed) > 1 else ""
    return InputError("; ".join(each for each in (f"{key}: {error}{others}", more) if each))


def _check_distinct(arms: Sequence[Arm]) -> Sequence[Arm]:
    keys = [each.key for each in arms]
    if not arms:
        raise ParameterError("nothing to run: pass at least one task, one seed and one model")
    if len(set(keys)) < len(keys):
        raise RuntimeError(f"two arms have the same key: {next(key for key in keys if keys.count(key) > 1)}")
    return arms


def _match_keys(arms: Sequence[Arm], patterns: Sequence[str]) -> set[str]:
    """Return the keys of the arms that match a pattern, or of all arms if there are no patterns."""
    keys = [each.key for each in arms]
    if not patterns:
        return set(keys)
    for pattern in patterns:
        if not any(fnmatchcase(key, pattern) for key in keys):
            raise ParameterError(
                f"only is {pattern}, which matches no arm: the first key is {keys[0]} and the last is {keys[-1]}"
            )
    return {key for key in keys if any(fnmatchcase(key, pattern) for pattern in patterns)}


def _choose_arms(arms: Sequence[Arm], asked: set[str], folder: Path) -> list[Arm]:
    """Return the arms that were requested and those that are finished."""
    return [each for each in arms if each.key in asked or _arm_path(folder, each).exists()]


def _arm_path(folder: Path, arm: Arm) -> Path:
    return folder / "arms" / f"{file_name(arm.key)}.json"


def _run_arms(
    arms: Sequence[Arm], folder: Path, progress: Progress
) -> tuple[dict[str, Any], dict[str, float], dict[str, InputError]]:
    """Run the unfinished arms in order; return the results and run times of all arms, and the errors of failed arms."""
    shared = folder / "shared"
    for each in (folder / "arms", shared):
        each.mkdir(exist_ok=True)
    results: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    failed: dict[str, InputError] = {}
    paths = [_arm_path(folder, arm) for arm in arms]
    total = sum(each.cost for each in arms)
    before = sum(arm.cost for arm, path in zip(arms, paths, strict=True) if path.exists())  # these take no time
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
                result = jsonable(arm.run(ArmContext(own, shared, tell)))
            except MissingExtra:
                raise
            except InputError as error:  # such as diverging training; the other arms still run
                failed[arm.key] = error
                continue
            spent = round(time.monotonic() - began, 3)
            done = {"key": arm.key, "seconds": spent, "checksum": checksum(result), "result": result}
            write_json(jsonable(done), path, indent=1)
            done = _read_arm(path, arm) or done  # exactly what the next run will read
            shutil.rmtree(own, ignore_errors=True)
            tell(1.0)
            before += arm.cost
        results[arm.key], seconds[arm.key] = _null_to_nan(done["result"]), done["seconds"]
    with suppress(OSError):  # the unfinished work of other arms stays
        (folder / "work").rmdir()
    return results, seconds, failed


def _read_arm(path: Path, arm: Arm) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        found: dict[str, Any] = parse_json(path.read_text(encoding="utf-8"))
        if found["key"] != arm.key or not isinstance(found["result"], dict):
            raise ValueError("it belongs to another arm")
        check_type(found["seconds"], (int, float), "seconds")
        if "checksum" in found and found["checksum"] != checksum(found["result"]):
            raise ValueError(CHANGED)
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = shorten(f"{type(error).__name__} {error}" if isinstance(error, KeyError) else str(error), 200)
        raise FileFormatError(f"{path} is not the result of an arm ({why}): remove it to rerun that arm") from error
    return found


@contextmanager
def _explain_unverified_arms(folder: Path) -> Iterator[None]:
    """Convert errors in a `with` block into a `FileFormatError` if a saved arm has no checksum that verifies it."""
    try:
        yield
    except (InputError, OSError):
        raise
    except Exception as error:
        arms = sorted((folder / "arms").glob("*.json"))
        unverified = [path for path in arms if "checksum" not in parse_json(path.read_text(encoding="utf-8"))]
        if not unverified:
            raise
        why = shorten(f"{type(error).__name__} {error}", 200)
        raise FileFormatError(
            f"the saved results cannot be read ({why}): remove {unverified[0]} and other results in arms/ that have no "
            "checksum, then rerun"
        ) from error


def _null_to_nan(value: Any) -> Any:
    """Replace null (None) by NaN in a value that was read from JSON."""
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
    """Return a verdict as a dictionary for JSON, including the cases on which it is based."""
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
    """Create a case from its JSON dictionary, in which null stands for a number that is not finite."""
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
