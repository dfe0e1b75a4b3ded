"""Damage the files that isoscope saves in seeded ways and check that each is used, or refused with one clear line.

    python tools/stress/mutate_saved.py --count 100 --seed 0

Keys are removed, values get wrong types, NaN, huge numbers and deep nesting, arrays get wrong shapes, files are
truncated and bytes are changed; checksums are made right again where isoscope has them. A command must then succeed, or
print one line and return exit code 2; a function must return or raise an `InputError` of one line. Every other error, a
killed process and a missing answer after 60 seconds are failures; the exit code is then 1. The damaged files of
failures are kept in the folder that the last line names.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mutate_files import mutate, report_end, report_outcomes

sys.path.append(str(Path(__file__).parents[2]))  # for the tiny models of the tests
_SECONDS = 60
_LONGEST_MESSAGE = 600
_CONFIG_KEY = "isoscope.sketch"


# damage


def _deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


_VALUES: list[Callable[[], Any]] = [
    *(lambda value=value: value for value in (None, True, False, 0, 1, -1, 2, 7, 10**9, 2**63, -(2**70), 10**400)),  # type: ignore[misc]
    *(lambda value=value: value for value in (0.5, -0.0, 1e-320, 1e308, -1e308, float("nan"), float("inf"))),  # type: ignore[misc]
    *(lambda value=value: value for value in ("", "x", "0", "nan", "é", "\x1b[31m", "\ud800", "../..", "a" * 5000)),  # type: ignore[misc]
    *(lambda value=value: value for value in ([], {}, [[]], [1, "a"], {"a": 1}, [None], [float("nan")] * 3)),  # type: ignore[misc]
    lambda: _deep(3),
    lambda: _deep(600),
]


def _places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        found.append((value, key))
        _places(item, found)
    return found


def mutate_json(content: Any, chance: random.Random, keep: tuple[str, ...] = ()) -> Any:
    """Return the content with one to three values removed, replaced, swapped or repeated."""
    content = json.loads(json.dumps(content))
    if chance.random() < 0.03:
        return chance.choice(_VALUES)()
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        places = [place for place in _places(content, []) if place[1] not in keep]
        if not places:
            break
        parent, key = chance.choice(places)
        if isinstance(parent, list) and chance.random() < 0.7:
            named = [place for place in places if isinstance(place[0], dict)]
            parent, key = chance.choice(named or places)
        change = chance.randrange(6)
        if change == 0:
            del parent[key]
        elif change in (1, 2):
            parent[key] = chance.choice(_VALUES)()
        elif change == 3:
            other, name = chance.choice(places)
            if isinstance(other, dict) == (name in other) or isinstance(other, list):
                parent[key] = json.loads(json.dumps(other[name])) if name in other or isinstance(other, list) else None
        elif change == 4 and isinstance(parent[key], list) and parent[key]:
            parent[key] = chance.choice([parent[key][:-1], parent[key] * 2, parent[key][::-1], parent[key][:1]])
        elif isinstance(parent[key], bool | int | float):
            parent[key] = chance.choice([-parent[key], parent[key] * 1e9, str(parent[key]), [parent[key]]])
        else:
            parent[key] = chance.choice(_VALUES)()
    return content


def mutate_tensors(tensors: dict[str, np.ndarray], chance: random.Random) -> dict[str, np.ndarray]:
    """Return the arrays with one to three removed, reshaped, converted or filled with extreme numbers."""
    tensors = dict(tensors)
    for _ in range(chance.choice([1, 1, 2, 3])):
        if not tensors:
            break
        name = chance.choice(sorted(tensors))
        value = tensors[name]
        change = chance.randrange(9)
        if change == 0:
            del tensors[name]
        elif change == 1:
            tensors[name] = value[None]
        elif change == 2 and value.ndim:
            tensors[name] = value[: chance.choice([0, 1, max(0, len(value) - 1)])]
        elif change == 3 and value.ndim:
            tensors[name] = np.concatenate([value, value])
        elif change == 4:
            tensors[name] = value.T[..., :1] if value.ndim > 1 else value.reshape(-1, 1)
        elif change == 5:
            with np.errstate(all="ignore"):
                tensors[name] = value.astype(chance.choice(["float16", "int64", "uint8", "bool", "float64"]))
        elif change == 6:
            tensors[name + chance.choice(["", "x"])] = np.full_like(value, chance.choice([0, 1]))
        elif value.size and value.dtype.kind in "fiu":
            value = value.astype(value.dtype, copy=True)
            extreme = [np.nan, np.inf, -1e300, 1e300, 1e-300] if value.dtype == np.float64 else [0, 1, 100]
            with np.errstate(all="ignore"):
                value.flat[chance.randrange(value.size)] = chance.choice(extreme)
                tensors[name] = value if change == 7 else -value
    return {name: np.ascontiguousarray(value) for name, value in tensors.items()}


def _damage_bytes(path: Path, chance: random.Random) -> None:
    text = path.suffix in (".json", ".txt")
    path.write_bytes(b"" if chance.random() < 0.03 else mutate(path.read_bytes(), chance, text=text))


def _damage_json(path: Path, chance: random.Random, keep: tuple[str, ...] = ("schema", "format")) -> None:
    content = mutate_json(json.loads(path.read_text(encoding="utf-8")), chance, keep)
    path.write_text(json.dumps(content), encoding="utf-8")


def _damage_file(path: Path, chance: random.Random) -> None:
    if path.suffix == ".json" and chance.random() < 0.75:
        _damage_json(path, chance)
    else:
        _damage_bytes(path, chance)


def _damage_repair(folder: Path, chance: random.Random) -> None:
    from safetensors.numpy import load_file, save_file

    from isoscope.sketching.file import checksum

    if chance.random() < 0.2:
        _damage_bytes(folder / chance.choice(["config.json", "model.safetensors"]), chance)
        return
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    tensors = load_file(folder / "model.safetensors")
    if chance.random() < 0.5:
        config = mutate_json(config, chance, ("format", "checksum"))
    else:
        tensors = mutate_tensors(tensors, chance)
    if isinstance(config, dict):
        config["checksum"] = checksum(tensors, {key: value for key, value in config.items() if key != "checksum"})
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(tensors, folder / "model.safetensors")


def _damage_sketch(folder: Path, chance: random.Random) -> None:
    from safetensors import safe_open
    from safetensors.numpy import save_file

    from isoscope.sketching.file import checksum

    path = next(folder.glob("*.sketch"))
    if chance.random() < 0.2:
        _damage_bytes(path, chance)
        return
    with safe_open(path, framework="np") as file:
        about = json.loads(file.metadata()[_CONFIG_KEY])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    if chance.random() < 0.4:
        about = mutate_json(about, chance, ("checksum",))
    else:
        tensors = mutate_tensors(tensors, chance)
    if isinstance(about, dict) and "numbers" in about:
        about["checksum"] = checksum(tensors, about["numbers"])
    save_file(tensors, path, {_CONFIG_KEY: json.dumps(about)})


def _damage_history(folder: Path, chance: random.Random) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = next(folder.glob("*.parquet"))
    if chance.random() < 0.4:
        _damage_bytes(path, chance)
        return
    table = pq.read_table(path)
    for _ in range(chance.choice([1, 1, 2])):
        at = chance.randrange(table.num_columns)
        name, values = table.column_names[at], table.column(at).to_pylist()
        change = chance.randrange(5)
        if change == 0 and table.num_columns > 1:
            table = table.remove_column(at)
        elif change == 1:
            table = table.slice(0, chance.choice([0, 1, 2]))
        elif change == 2:
            table = table.append_column(name, table.column(at))
        else:
            i = chance.randrange(len(values)) if values else 0
            wrong: list[Any] = [
                [None] * len(values),
                [str(value) for value in values],
                [[1.0]] * len(values),
                [b"\xff"] * len(values),
                [-(2**62)] * len(values),
                [1e308] * len(values),
                [float("inf")] * len(values),
                [0.5] * len(values),
                [None if j == i else value for j, value in enumerate(values)],
                ["\x1b[31m"] * len(values),
            ]
            table = table.set_column(at, name, pa.array(chance.choice(wrong)))
    pq.write_table(table, path)


def _damage_any(pattern: str) -> Callable[[Path, random.Random], None]:
    def damage(folder: Path, chance: random.Random) -> None:
        files = sorted(path for path in folder.glob(pattern) if path.is_file())
        _damage_file(chance.choice(files), chance)

    return damage


# undamaged files


def _vectors(rows: int = 80, dim: int = 6) -> np.ndarray:
    return (np.random.default_rng(0).standard_normal((rows, dim)) + 0.5).astype(np.float32)


def _run(*words: object) -> int:
    """Run a command in this process; return its exit code."""
    from isoscope.cli.main import main

    return main([str(word) for word in words])


def _require(code: int, output: str = "") -> None:
    if code != 0:
        raise RuntimeError(f"the undamaged files cannot be made: exit code {code} {output}")


def _make_repairs(folder: Path) -> None:
    import isoscope

    X = _vectors()
    repairs = [
        isoscope.Center(),
        isoscope.Standardize(),
        isoscope.AllButTheTop(2),
        isoscope.Whiten(n_components=4),
        isoscope.ClusterCenter(n_clusters=3, random_state=0),
        isoscope.ClusterNull(n_clusters=3, n_components=1, random_state=0),
        isoscope.Chain([isoscope.Center(), isoscope.Whiten(n_components=4)]),
    ]
    for i, repair in enumerate(repairs):
        repair.fit(X).save(folder / str(i) / "repair")
        np.save(folder / str(i) / "x.npy", X)


def _make_sketches(folder: Path) -> None:
    import isoscope

    X = _vectors()
    types = np.array([f"type {i % 5}" for i in range(len(X))])
    groups = np.arange(len(X)) // 4
    sketches = (isoscope.sketch(X), isoscope.sketch(X, types=types), isoscope.sketch(X, groups=groups))
    for i, sketch in enumerate(sketches):
        (folder / str(i)).mkdir()
        sketch.save(folder / str(i) / "a.sketch")


def _make_audits(folder: Path) -> None:
    import isoscope

    X = _vectors()
    for i, labels in enumerate((None, np.arange(len(X)) % 3)):
        (folder / str(i)).mkdir()
        isoscope.audit(X, labels=labels).to_json(folder / str(i) / "audit.json")
        np.save(folder / str(i) / "x.npy", X)


def _make_grouped_audits(folder: Path) -> None:
    import isoscope

    X = _vectors(240)
    for i, values in enumerate((np.arange(240) % 3, np.array(["a", "b"] * 120))):
        (folder / str(i)).mkdir()
        isoscope.audit(X, by=values).to_json(folder / str(i) / "audit.json")


def _make_histories(folder: Path) -> None:
    from isoscope.training.history import MEASUREMENTS, History

    history = History(folder / "0" / "history.parquet")
    for step in range(0, 50, 10):
        for order in range(2):
            row = {"step": step, "epoch": step / 50, "order": order, "layer": f"layer_{order}"}
            history.append([row | {"rows": 64, "dimensions": 8} | dict.fromkeys(MEASUREMENTS, 0.5 + step / 100)])
    history.save()


def _make_words(folder: Path, rows: int = 1500) -> None:
    folder.mkdir(parents=True)
    vectors = np.random.default_rng(0).standard_normal((rows, 12)).astype(np.float32)
    np.save(folder / "vectors.npy", vectors)
    (folder / "words.txt").write_text("".join(f"w{i}\n" for i in range(rows)), encoding="utf-8")


def _study_command(folder: Path) -> list[object]:
    settings = {"tokens": 1100, "k": 10, "lid_sample": 100, "cluster_sample": 120, "restarts": 1, "points": 50}
    words: list[object] = ["study", "run", "clusters-and-manifolds", "-o", folder / "run", "--quick"]
    words += ["--model", folder / "glove-tiny", "--data", folder]
    return words + [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


def _make_study(folder: Path) -> None:
    _make_words(folder / "0" / "glove-tiny")
    _require(_run(*_study_command(folder / "0")))


def _make_embedding(folder: Path) -> None:
    _make_words(folder / "0" / "words", 40)
    lines = "".join(f"w{i % 40} w{i % 7}\n" for i in range(30))
    (folder / "0" / "texts.txt").write_text(lines, encoding="utf-8")
    _require(_run(*_embed_command(folder / "0")))


def _embed_command(folder: Path) -> list[object]:
    return ["embed", folder / "words", folder / "texts.txt", "-o", folder / "run", "--pool", "mean"]


def _make_applied(folder: Path) -> None:
    import isoscope

    X = _vectors()
    (folder / "0" / "source").mkdir(parents=True)
    for i in range(3):
        np.save(folder / "0" / "source" / f"{i}.npy", X)
    isoscope.Center().fit(X).save(folder / "0" / "repair")
    _require(_run(*_apply_command(folder / "0")))


def _apply_command(folder: Path) -> list[object]:
    return ["apply", folder / "repair", folder / "source", "-o", folder / "run"]


def _make_models(folder: Path) -> None:
    from tests.finetuning.toy import decoder, encoder

    for i, build in enumerate((encoder, decoder)):
        build(folder / str(i) / "model")
        (folder / str(i) / "texts.txt").write_text("the film is good\na b c\n", encoding="utf-8")


_FINETUNE = [
    "finetune",
    "model",
    "cola",
    "--data",
    "data",
    "-o",
    "run",
    "--epochs",
    "2",
    "--batch-size",
    "16",
    "--every",
    "2",
    "--probe",
    "16",
]


def _finetune(folder: Path) -> int:
    """Run in the folder, because the settings of a run contain the path of the model."""
    with chdir(folder):
        return _run(*_FINETUNE)


def _make_finetuned(folder: Path) -> None:
    from tests.finetuning.toy import encoder, write_glue

    encoder(folder / "0" / "model")
    write_glue(folder / "0" / "data", rows=48, dev_rows=24)
    _require(_finetune(folder / "0"))


def _make_checkpoints(folder: Path) -> None:
    from tests.finetuning.toy import encoder, write_glue

    import isoscope

    place = folder / "0"
    encoder(place / "model")
    write_glue(place / "data", rows=48, dev_rows=24)

    def interrupt(*_: object) -> None:
        if list((place / "run").glob("seed-*/checkpoint-*/trainer_state.json")):
            raise KeyboardInterrupt

    options = {"epochs": 2, "batch_size": 16, "every": 2, "probe": 16}
    try:
        with chdir(place):
            isoscope.finetune("model", "cola", data="data", output="run", progress=interrupt, **options)
    except KeyboardInterrupt:
        return
    raise RuntimeError("the run ended before a checkpoint was written")


# use, in a process of its own


def _use_repair(folder: Path) -> Iterator[Callable[[], object]]:
    yield lambda: _run("apply", folder / "repair", folder / "x.npy", "-o", folder / "y.npy")


def _use_sketch(folder: Path) -> Iterator[Callable[[], object]]:
    import isoscope

    sketch = isoscope.Sketch.load(folder / "a.sketch")
    yield from (sketch.isoscore, sketch.spectrum, sketch.anisotropy, sketch.mean_cosine, sketch.effective_rank)
    yield from (sketch.isoscore_interval, sketch.participation_ratio, sketch.cosine_contribution)
    yield from (sketch.intra_similarity, sketch.inter_similarity, sketch.silhouette_objective)
    yield from (lambda: sketch + sketch, lambda: repr(sketch), lambda: sketch.duplicates)
    yield lambda: sketch + isoscope.sketch(_vectors())


def _use_audit(folder: Path) -> Iterator[Callable[[], object]]:
    import isoscope

    page = folder / "page.html"
    yield lambda: _run("audit", folder / "x.npy", "--baseline", folder / "audit.json", "--html", page)
    audit = isoscope.Audit.from_json(folder / "audit.json")
    yield from (lambda: str(audit), lambda: audit.to_html(page), audit._repr_html_, lambda: repr(audit))


def _use_grouped_audit(folder: Path) -> Iterator[Callable[[], object]]:
    import isoscope

    audit = isoscope.GroupedAudit.from_json(folder / "audit.json")
    yield from (lambda: str(audit), lambda: audit.to_html(folder / "page.html"), audit._repr_html_)
    findings = {finding.name for each in audit.groups.values() for finding in each.findings}
    yield lambda: [audit.series(name) for name in findings]


def _use_history(folder: Path) -> Iterator[Callable[[], object]]:
    from isoscope._render import render
    from isoscope.training.history import History

    history = History.read(folder)
    yield lambda: [history.series(layer, "isoscore") for layer in history.layers]
    yield from (lambda: repr(history), lambda: render("History", "page", [history], {}))
    yield lambda: history.truncate(20)


class _Kind(NamedTuple):
    make: Callable[[Path], None]
    damage: Callable[[Path, random.Random], None]
    use: Callable[[Path], Iterator[Callable[[], object]]]


def _command(words: Callable[[Path], list[object]]) -> Callable[[Path], Iterator[Callable[[], object]]]:
    def use(folder: Path) -> Iterator[Callable[[], object]]:
        yield lambda: _run(*words(folder))

    return use


def _use_finetuned(folder: Path) -> Iterator[Callable[[], object]]:
    yield lambda: _finetune(folder)


def _use_embedding(folder: Path) -> Iterator[Callable[[], object]]:
    yield lambda: _run("audit", folder / "run")
    yield lambda: _run(*_embed_command(folder))


def _use_applied(folder: Path) -> Iterator[Callable[[], object]]:
    yield lambda: _run("audit", folder / "run")
    yield lambda: _run(*_apply_command(folder))


def _embed_with_model(folder: Path) -> list[object]:
    return ["embed", folder / "model", folder / "texts.txt", "-o", folder / "out"]


_KINDS = {
    "repair": _Kind(_make_repairs, lambda folder, chance: _damage_repair(folder / "repair", chance), _use_repair),
    "sketch": _Kind(_make_sketches, _damage_sketch, _use_sketch),
    "audit": _Kind(_make_audits, _damage_any("audit.json"), _use_audit),
    "grouped": _Kind(_make_grouped_audits, _damage_any("audit.json"), _use_grouped_audit),
    "history": _Kind(_make_histories, _damage_history, _use_history),
    "arm": _Kind(_make_study, _damage_any("run/arms/*.json"), _command(_study_command)),
    "study": _Kind(_make_study, _damage_any("run/settings.json"), _command(_study_command)),
    "embed": _Kind(_make_embedding, _damage_any("run/_embedding.json"), _use_embedding),
    "apply": _Kind(_make_applied, _damage_any("run/_repaired.json"), _use_applied),
    "model": _Kind(_make_models, _damage_any("model/*"), _command(_embed_with_model)),
    "finetune": _Kind(_make_finetuned, _damage_any("run/**/*.json"), _use_finetuned),
    "checkpoint": _Kind(_make_checkpoints, _damage_any("run/seed-*/**/*"), _use_finetuned),
}


def _judge_message(message: str) -> str:
    if "\n" in message or len(message) > _LONGEST_MESSAGE:
        return f"message of {message.count(chr(10)) + 1} lines and {len(message)} characters: {message[:160]!r}"
    if any(not (char.isprintable()) for char in message) or "weights_only" in message:
        return f"message with control characters or bad advice: {message[:160]!r}"
    return "refused"


def _attempt(call: Callable[[], object]) -> str:
    """Call a function or run a command; return "used", "refused", or a description of the failure."""
    from isoscope._core.errors import InputError

    printed = io.StringIO()
    try:
        with redirect_stderr(printed), redirect_stdout(io.StringIO()):
            code = call()
    except InputError as error:
        return _judge_message(str(error))
    except BaseException as error:
        where = [frame for frame in traceback.extract_tb(error.__traceback__) if "isoscope" in frame.filename][-1:]
        place = f"{Path(where[0].filename).name}:{where[0].lineno}" if where else ""
        return f"{type(error).__name__}: {str(error)[:160]!r} ({place})"
    if type(code) is not int or code in (0, 1):
        return "used"
    lines = [line for line in printed.getvalue().splitlines() if line.startswith("isoscope: ")]
    if code != 2 or not lines or not printed.getvalue().rstrip().endswith(lines[-1]):
        return f"exit code {code}: {printed.getvalue()[-300:]!r}"
    return _judge_message(lines[-1])


def _use(kind: str, folder: Path) -> str:
    outcomes = []
    try:
        for call in _KINDS[kind].use(folder):
            outcomes.append(_attempt(call))
    except BaseException as error:  # what `use` itself reads
        outcomes.append(_attempt(lambda error=error: _raise(error)))  # type: ignore[misc]
    failures = [outcome for outcome in outcomes if outcome not in ("used", "refused")]
    return failures[0] if failures else "used" if "used" in outcomes else "refused"


def _raise(error: BaseException) -> None:
    raise error


def _use_folders(kind: str) -> None:
    """Use the folders named on standard input, and print an outcome for each."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a loop inside a C library lets no Python handler run
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print to standard output
    for line in sys.stdin:
        signal.alarm(_SECONDS)
        outcome = _use(kind, Path(line.strip()))
        signal.alarm(0)
        print(json.dumps(outcome), file=answers, flush=True)


def _check(kind: str, folders: list[Path]) -> dict[Path, str]:
    """Return the outcome for each folder; one that ends the process is a failure, and the next process goes on."""
    outcomes: dict[Path, str] = {}
    while len(outcomes) < len(folders):
        left = folders[len(outcomes) :]
        done = subprocess.run(
            [sys.executable, __file__, "--use", kind],
            input="".join(f"{folder}\n" for folder in left),
            capture_output=True,
            text=True,
            check=False,
            errors="backslashreplace",
        )
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        outcomes.update(zip(left, answers, strict=False))
        if len(answers) < len(left):
            ending = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit code {done.returncode}"
            outcomes[left[len(answers)]] = f"the process ended with {ending} {done.stderr[-200:]}".strip()
    return outcomes


def _make(kind: str, folder: Path) -> None:
    """Make undamaged files, and check that they can be used."""
    _KINDS[kind].make(folder)
    for place in sorted(folder.iterdir()):
        copy = folder.with_name(f"{folder.name}-{place.name}-copy")
        shutil.copytree(place, copy)
        calls = [_attempt(call) for call in _KINDS[kind].use(copy)]
        if "used" not in calls or {*calls} - {"used", "refused"}:
            raise RuntimeError(f"the undamaged files of {kind} cannot be used: {calls}")
        shutil.rmtree(copy)


def main() -> int:
    """Damage and use saved files; print how many were tried and how many failed for each kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100, help="damaged files of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", default=list(_KINDS), choices=list(_KINDS))
    parser.add_argument("--use", choices=list(_KINDS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.use:
        _use_folders(options.use)
        return 0
    kept = Path(tempfile.mkdtemp(prefix="isoscope-mutated-"))
    failures = 0
    print(f"{'kind':<12} tried  used  refused  failed")
    for kind in options.kinds:
        whole = kept / f"{kind}-whole"
        whole.mkdir()
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            _make(kind, whole)
        variants = sorted(whole.iterdir())
        folders = []
        for i in range(options.count):
            chance = random.Random(f"{options.seed} {kind} {i}")
            folder = kept / f"{kind}-{options.seed}-{i}"
            shutil.copytree(variants[i % len(variants)], folder)
            _KINDS[kind].damage(folder, chance)
            folders.append(folder)
        failed = report_outcomes(kind, _check(kind, folders), "used")
        failures += len(failed)
        for folder in (whole, *folders):
            if folder not in failed:
                shutil.rmtree(folder)
    return report_end(failures, kept)


if __name__ == "__main__":
    sys.exit(main())
