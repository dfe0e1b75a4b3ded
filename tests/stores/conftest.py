"""The same cloud in every format that isoscope reads."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

N, D = 1000, 16


class Cloud(NamedTuple):
    """The content of every format."""

    vectors: np.ndarray
    labels: np.ndarray
    words: list[str]


def make_cloud() -> Cloud:
    rng = np.random.default_rng(11)
    words = [f"word{i}" for i in range(N)]
    words[3], words[500] = "naïve", "零"
    return Cloud(rng.standard_normal((N, D)).astype(np.float32), rng.integers(0, 5, N), words)


@pytest.fixture(scope="session")
def truth() -> Cloud:
    return make_cloud()


def arrow_table(cloud: Cloud, kind: str = "fixed") -> Any:
    import pyarrow as pa

    flat = pa.array(cloud.vectors.ravel())
    if kind == "fixed":
        vectors = pa.FixedSizeListArray.from_arrays(flat, D)
    else:
        offsets = np.arange(0, cloud.vectors.size + 1, D)
        many = kind == "large"
        vectors = (pa.LargeListArray if many else pa.ListArray).from_arrays(
            pa.array(offsets, None if many else "int32"), flat
        )
    return pa.table({"embedding": vectors, "label": cloud.labels, "text": cloud.words})


def write_npy(cloud, path):
    np.save(path, cloud.vectors)


def write_npy_fortran(cloud, path):
    np.save(path, np.asfortranarray(cloud.vectors))


def write_npy_big_endian(cloud, path):
    np.save(path, cloud.vectors.astype(">f4"))


def write_npz(cloud, path):
    np.savez(path, vectors=cloud.vectors, label=cloud.labels, text=np.array(cloud.words))


def write_npz_compressed(cloud, path):
    np.savez_compressed(path, vectors=cloud.vectors, label=cloud.labels, text=np.array(cloud.words))


def write_npz_compressed_fortran(cloud, path):
    np.savez_compressed(path, np.asfortranarray(cloud.vectors))


def write_safetensors(cloud, path):
    from safetensors.numpy import save_file

    save_file({"embeddings": cloud.vectors, "label": cloud.labels}, path)


def write_parquet(cloud, path, kind="fixed"):
    import pyarrow.parquet as pq

    pq.write_table(arrow_table(cloud, kind), path, row_group_size=300)


def write_parquet_list(cloud, path):
    write_parquet(cloud, path, "list")


def write_parquet_large_list(cloud, path):
    write_parquet(cloud, path, "large")


def write_parquet_wide(cloud, path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {f"d{i}": cloud.vectors[:, i] for i in range(D)}
    pq.write_table(pa.table({"id": np.arange(N), **columns, "label": cloud.labels, "text": cloud.words}), path)


def write_feather(cloud, path):
    from pyarrow import feather

    feather.write_feather(arrow_table(cloud), str(path), compression="lz4", chunksize=256)


def write_arrow_file(cloud, path):
    from pyarrow import feather

    feather.write_feather(arrow_table(cloud, "list"), str(path), compression="uncompressed", chunksize=128)


def write_arrow_stream(cloud, path):
    import pyarrow as pa

    table = arrow_table(cloud, "list")
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=90)


def write_hdf5(cloud, path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file["train"] = cloud.vectors
        file["test"] = cloud.vectors[:10]
        file["neighbors"] = np.zeros((10, 5), np.int32)
        file["label"] = cloud.labels
        file.create_dataset("text", data=cloud.words, dtype=h5py.string_dtype())


def write_fvecs(cloud, path):
    rows = np.empty(len(cloud.vectors), np.dtype([("d", "<i4"), ("v", "<f4", (D,))]))
    rows["d"], rows["v"] = D, cloud.vectors
    rows.tofile(path)


def word_lines(cloud):
    for word, row in zip(cloud.words, cloud.vectors, strict=True):
        yield " ".join([word, *map(str, row)])


def write_glove(cloud, path):
    text = "\n".join(word_lines(cloud)) + "\n"
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        file.write(text)


def write_fasttext(cloud, path):
    lines = [f"{N} {D}", *(line + " " for line in word_lines(cloud))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_word2vec(cloud, path, newline=b"\n"):
    with path.open("wb") as file:
        file.write(f"{N} {D}\n".encode())
        for word, row in zip(cloud.words, cloud.vectors, strict=True):
            file.write(word.encode() + b" " + row.astype("<f4").tobytes() + newline)


def write_word2vec_gensim(cloud, path):
    write_word2vec(cloud, path, newline=b"")


def write_jsonl(cloud, path):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        for vector, label, word in zip(cloud.vectors.tolist(), cloud.labels.tolist(), cloud.words, strict=True):
            file.write(json.dumps({"text": word, "embedding": vector, "label": label}) + "\n")


def write_bare_jsonl(cloud, path):
    path.write_text("".join(json.dumps(row) + "\n" for row in cloud.vectors.tolist()))


def write_csv(cloud, path):
    delimiter = "\t" if ".tsv" in path.name else ","
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        file.write(delimiter.join(["id", *(f"d{i}" for i in range(D)), "label", "text"]) + "\n")
        for i, (vector, label, word) in enumerate(zip(cloud.vectors.tolist(), cloud.labels, cloud.words, strict=True)):
            file.write(delimiter.join([str(i), *map(repr, vector), str(label), word]) + "\n")


def write_bare_csv(cloud, path):
    path.write_text("".join(",".join(map(repr, row)) + "\r\n" for row in cloud.vectors.tolist()))


def write_csv_of_lists(cloud, path):
    with path.open("w", encoding="utf-8") as file:
        file.write("text,vector,label\n")
        for vector, label, word in zip(cloud.vectors.tolist(), cloud.labels, cloud.words, strict=True):
            file.write(f'{word},"{vector}",{label}\n')


def write_shards(cloud, path):
    path.mkdir()
    for i, rows in enumerate(np.array_split(np.arange(N), 12)):
        part = Cloud(cloud.vectors[rows], cloud.labels[rows], [cloud.words[r] for r in rows])
        np.savez(path / f"shard-{i}.npz", vectors=part.vectors, label=part.labels, text=np.array(part.words))
    (path / "README.txt").write_text("about these shards")


def write_text_shards(cloud, path):
    path.mkdir()
    for i, rows in enumerate(np.array_split(np.arange(N), 11)):
        part = Cloud(cloud.vectors[rows], cloud.labels[rows], [cloud.words[r] for r in rows])
        write_jsonl(part, path / f"part{i}.jsonl.gz")


class Format(NamedTuple):
    """A format: how the data is written, which columns are read back, and in which precision."""

    name: str
    write: Any
    columns: str = ""
    dtype: str = "float32"

    def __repr__(self) -> str:
        return f"{self.write.__name__.removeprefix('write_')}-{self.name}"


FORMATS = [
    Format("a.npy", write_npy),
    Format("fortran.npy", write_npy_fortran),
    Format("big.npy", write_npy_big_endian),
    Format("a.npz", write_npz, "labels text"),
    Format("packed.npz", write_npz_compressed, "labels text"),
    Format("packed_fortran.npz", write_npz_compressed_fortran),
    Format("a.safetensors", write_safetensors, "labels"),
    Format("a.parquet", write_parquet, "labels text"),
    Format("list.parquet", write_parquet_list, "labels text"),
    Format("large.parquet", write_parquet_large_list, "labels text"),
    Format("wide.parquet", write_parquet_wide, "ids labels text"),
    Format("a.feather", write_feather, "labels text"),
    Format("a.arrow", write_arrow_file, "labels text"),
    Format("stream.arrow", write_arrow_stream, "labels text"),
    Format("a.hdf5", write_hdf5, "labels text"),
    Format("a.fvecs", write_fvecs),
    Format("a.txt", write_glove, "frequency text"),
    Format("a.txt.gz", write_glove, "frequency text"),
    Format("a.vec", write_fasttext, "frequency text"),
    Format("a.bin", write_word2vec, "frequency text"),
    Format("gensim.bin", write_word2vec_gensim, "frequency text"),
    Format("a.jsonl", write_jsonl, "labels text", "float64"),
    Format("a.jsonl.gz", write_jsonl, "labels text", "float64"),
    Format("bare.jsonl", write_bare_jsonl, "", "float64"),
    Format("a.csv", write_csv, "ids labels text", "float64"),
    Format("a.csv.gz", write_csv, "ids labels text", "float64"),
    Format("a.tsv", write_csv, "ids labels text", "float64"),
    Format("bare.csv", write_bare_csv, "", "float64"),
    Format("lists.csv", write_csv_of_lists, "labels text", "float64"),
    Format("shards", write_shards, "labels text"),
    Format("text_shards", write_text_shards, "labels text", "float64"),
]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("formats")


@pytest.fixture(scope="session")
def written(folder: Path, truth: Cloud) -> Any:
    """`written(write_npy)` or `written(format)` writes the data once and returns the path."""

    def once(form: Format) -> Path:
        path = folder / form.name
        if not path.exists():
            form.write(truth, path)
        return path

    return once
