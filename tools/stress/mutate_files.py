"""Damage vector files of every format in seeded ways and check that each one is read, or refused with one clear line.

    python tools/stress/mutate_files.py --count 200 --seed 0

A file must either be read to its end or raise an `InputError` of one line. Every other error, a killed process, a
missing answer after 30 seconds and memory beyond the limit are failures; the exit code is then 1. The damaged files of
failures are kept in the folder that the last line names.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

_ROWS, _DIM = 60, 8
_SECONDS = 30
_LIMIT = 3 * 2**30  # bytes of address space
_LONGEST_MESSAGE = 600

_NUMBERS = [b"\xff" * 4, b"\xff" * 8, b"\x00" * 8, b"\x00\x00\x00\x80", b"\xff\xff\xff\x7f", b"\x01\x00\x00\x00" * 2]
_TOKENS = [
    *(b'"', b'""', b",", b";", b"\n", b"\r", b"\t", b" ", b"\x00", b"\xff", b"-", b"nan", b"inf", b"1e999", b"0x1f"),
    *(b"[", b"]", b"{", b"}", b"[" * 3000, b"9" * 5000, b"null", b"true", b"\\ud800", b"\xed\xa0\x80", b"-1", b"'"),
]


def mutate(content: bytes, chance: random.Random, *, text: bool) -> bytes:
    """Return the content with one to three random changes, half of them near its beginning or its end."""
    for _ in range(chance.randint(1, 3)):
        size = len(content)
        reach = chance.choice([size, size, min(size, 256), min(size, 1024)])
        at = chance.randrange(reach + 1)
        if chance.random() < 0.3:
            at = size - at
        length = chance.choice([1, 4, 8, chance.randint(1, 64), chance.randint(1, max(1, size // 3))])
        piece = content[at : at + length]
        change = chance.randrange(6)
        if change == 0:
            content = content[:at]
        elif change == 1:
            flipped = bytes(byte ^ (1 << chance.randrange(8)) for byte in piece[:8])
            content = content[:at] + flipped + content[at + len(flipped) :]
        elif change == 2:
            content = content[:at] + content[at + length :]
        elif change == 3:
            to = chance.randrange(size + 1)
            content = content[:to] + piece + content[to:]
        elif change == 4:
            to = chance.randrange(size + 1)
            content = content[:to] + piece + content[to + len(piece) :]
        else:
            token = chance.choice(_TOKENS if text or chance.random() < 0.3 else _NUMBERS)
            content = content[:at] + token + content[at + (0 if text else len(token)) :]
    return content


# undamaged files


def _vectors() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((_ROWS, _DIM)).astype(np.float32)


def _table() -> object:
    import pyarrow as pa

    lists = pa.FixedSizeListArray.from_arrays(pa.array(_vectors().ravel()), _DIM)
    labels = pa.array([f"label {i % 3}" for i in range(_ROWS)]).dictionary_encode()
    texts = pa.array([f"text {i}, é" for i in range(_ROWS)])
    return pa.table({"id": pa.array(range(_ROWS)), "embedding": lists, "label": labels, "text": texts})


def _wide() -> object:
    import pyarrow as pa

    return pa.table({f"e{i}": column for i, column in enumerate(_vectors().T)})


def _write_arrow(path: Path, *, stream: bool, compression: str | None) -> None:
    import pyarrow as pa

    table = _table()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    opened = (pa.ipc.new_stream if stream else pa.ipc.new_file)(str(path), table.schema, options=options)  # type: ignore[attr-defined]
    with opened as writer:
        writer.write_table(table, max_chunksize=25)


def _write_parquet(path: Path, table: object, compression: str) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table, path, row_group_size=25, compression=compression)


def _write_hdf5(path: Path) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("train", data=_vectors(), chunks=(20, _DIM), compression="gzip")
        file["label"] = np.arange(_ROWS) % 3
        file["text"] = [f"text {i}" for i in range(_ROWS)]


def _write_safetensors(path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"embeddings": _vectors(), "label": np.arange(_ROWS) % 3}, path)


def _records(dtype: str) -> bytes:
    rows = np.zeros(_ROWS, [("dim", "<i4"), ("vector", dtype, (_DIM,))])
    rows["dim"], rows["vector"] = _DIM, _vectors() if dtype == "<f4" else 100
    return rows.tobytes()


def _words(header: bool) -> bytes:
    lines = [f"word{i} " + " ".join(f"{x:.4f}" for x in row) for i, row in enumerate(_vectors())]
    return "\n".join([f"{_ROWS} {_DIM}", *lines] if header else lines).encode() + b"\n"


def _word_binary() -> bytes:
    rows = [f"word{i} ".encode() + row.tobytes() + b"\n" for i, row in enumerate(_vectors())]
    return f"{_ROWS} {_DIM}\n".encode() + b"".join(rows)


def _cells(delimiter: str) -> bytes:
    lines = [delimiter.join(["id", "text", *(f"e{i}" for i in range(_DIM))])]
    quote = "" if delimiter == "\t" else '"'
    lines += [
        delimiter.join([str(i), f"{quote}text {i}{delimiter if quote else ''} é{quote}", *(f"{x:.4f}" for x in row)])
        for i, row in enumerate(_vectors())
    ]
    return "\n".join(lines).encode() + b"\n"


def _json_lines() -> bytes:
    rows = ({"id": i, "text": f"text {i}", "embedding": row.tolist()} for i, row in enumerate(_vectors()))
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


_FILES: dict[str, dict[str, Callable[[Path], object]]] = {
    "npy": {
        "a.npy": lambda path: np.save(path, _vectors()),
        "f.npy": lambda path: np.save(path, np.asfortranarray(_vectors())),
    },
    "npz": {
        "a.npz": lambda path: np.savez(path, x=_vectors(), label=np.arange(_ROWS) % 3),
        "z.npz": lambda path: np.savez_compressed(path, x=_vectors(), label=np.arange(_ROWS) % 3),
    },
    "safetensors": {"a.safetensors": _write_safetensors},
    "parquet": {
        "a.parquet": lambda path: _write_parquet(path, _table(), "snappy"),
        "z.parquet": lambda path: _write_parquet(path, _table(), "zstd"),
        "w.parquet": lambda path: _write_parquet(path, _wide(), "none"),
    },
    "arrow": {
        "a.arrow": lambda path: _write_arrow(path, stream=False, compression=None),
        "z.arrow": lambda path: _write_arrow(path, stream=False, compression="zstd"),
        "l.arrow": lambda path: _write_arrow(path, stream=False, compression="lz4"),
        "s.arrow": lambda path: _write_arrow(path, stream=True, compression=None),
        "t.arrow": lambda path: _write_arrow(path, stream=True, compression="zstd"),
    },
    "h5": {"a.h5": _write_hdf5},
    "fvecs": {"a.fvecs": lambda path: path.write_bytes(_records("<f4"))},
    "bvecs": {"a.bvecs": lambda path: path.write_bytes(_records("u1"))},
    "bin": {"a.bin": lambda path: path.write_bytes(_word_binary())},
    "txt": {"a.txt": lambda path: path.write_bytes(_words(header=False))},
    "vec": {"a.vec": lambda path: path.write_bytes(_words(header=True))},
    "csv": {
        "a.csv": lambda path: path.write_bytes(_cells(",")),
        "s.csv": lambda path: path.write_bytes(_cells(";")),
    },
    "tsv": {"a.tsv": lambda path: path.write_bytes(_cells("\t"))},
    "jsonl": {"a.jsonl": lambda path: path.write_bytes(_json_lines())},
    "gz": {
        "a.csv.gz": lambda path: path.write_bytes(gzip.compress(_cells(","))),
        "a.jsonl.gz": lambda path: path.write_bytes(gzip.compress(_json_lines())),
        "a.txt.gz": lambda path: path.write_bytes(gzip.compress(_words(header=False))),
    },
}
_TEXT = {"txt", "vec", "csv", "tsv", "jsonl"}


# reading, in a process of its own


def _read(path: Path) -> str:
    """Read everything in a file; return "read", "refused", or a description of the failure."""
    from isoscope._core.errors import InputError
    from isoscope.stores.open import open_store

    try:
        store = open_store(path)
        if len(store) < 2**31:
            store.take([0, len(store) - 1])
        for _ in store.batches(other_columns=store.layout() is not None):
            pass
        for role in store.columns:
            store.column(role)
    except InputError as error:
        message = str(error)
        if "\n" in message or len(message) > _LONGEST_MESSAGE:
            return f"message of {message.count(chr(10)) + 1} lines and {len(message)} characters: {message[:80]!r}"
        return "refused"
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {str(error)[:160]!r} ({Path(where.filename).name}:{where.lineno})"
    return "read"


def _read_files() -> None:
    """Read the files named on standard input, and print an outcome for each."""
    resource.setrlimit(resource.RLIMIT_AS, (_LIMIT, _LIMIT))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a loop inside a C library lets no Python handler run
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        signal.alarm(_SECONDS)
        outcome = _read(Path(line.strip()))
        signal.alarm(0)
        print(json.dumps(outcome), flush=True)


def _check(paths: list[Path]) -> dict[Path, str]:
    """Return the outcome for each file; a file that ends the process is a failure, and the next process goes on."""
    outcomes: dict[Path, str] = {}
    while len(outcomes) < len(paths):
        left = paths[len(outcomes) :]
        done = subprocess.run(
            [sys.executable, __file__, "--read"],
            input="".join(f"{path}\n" for path in left),
            capture_output=True,
            text=True,
            check=False,
        )
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        outcomes.update(zip(left, answers, strict=False))
        if len(answers) < len(left):
            ending = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit code {done.returncode}"
            outcomes[left[len(answers)]] = f"the process ended with {ending} {done.stderr[-200:]}".strip()
    return outcomes


def report_outcomes(kind: str, outcomes: dict[Path, str], success: str) -> set[Path]:
    """Print the counts of one kind of file, and its failures; return the paths that failed."""
    failed = {path: outcome for path, outcome in outcomes.items() if outcome not in (success, "refused")}
    counts = Counter(outcomes.values())
    print(f"{kind:<12} {len(outcomes):>5} {counts[success]:>5} {counts['refused']:>8} {len(failed):>7}", flush=True)
    for path, outcome in failed.items():
        print(f"    {path.name}: {outcome}", flush=True)
    return set(failed)


def report_end(failures: int, kept: Path) -> int:
    """Print the number of failures, remove the folder of damaged files if it is empty, and return the exit code."""
    print(f"{failures} failures" + (f"; the files are in {kept}" if failures else ""))
    if not failures:
        kept.rmdir()
    return 1 if failures else 0


def main() -> int:
    """Damage and read files; print how many were tried and how many failed for each format."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="damaged files of each format")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--formats", nargs="*", default=list(_FILES), choices=list(_FILES))
    parser.add_argument("--read", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        _read_files()
        return 0
    kept = Path(tempfile.mkdtemp(prefix="isoscope-mutated-"))
    failures = 0
    print(f"{'format':<12} tried  read  refused  failed")
    for kind in options.formats:
        paths = []
        for i in range(options.count):
            chance = random.Random(f"{options.seed} {kind} {i}")
            name, write = list(_FILES[kind].items())[i % len(_FILES[kind])]
            path = kept / f"{kind}-{options.seed}-{i}-{name}"
            write(path)
            if kind == "gz" and i % 2:  # damaged before it was compressed, so that its checksum is right
                path.write_bytes(gzip.compress(mutate(gzip.decompress(path.read_bytes()), chance, text=True)))
            else:
                path.write_bytes(mutate(path.read_bytes(), chance, text=kind in _TEXT))
            paths.append(path)
        failed = report_outcomes(kind, _check(paths), "read")
        failures += len(failed)
        for path in paths:
            if path not in failed:
                path.unlink()
    return report_end(failures, kept)


if __name__ == "__main__":
    sys.exit(main())
