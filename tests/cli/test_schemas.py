"""The JSON of every command matches the schema that the command prints, and the schema describes every field."""

from __future__ import annotations

import json

import numpy as np
import pytest

from isoscope._io.json import RESULT_SCHEMAS, read_schema
from isoscope.cli.main import main

jsonschema = pytest.importorskip("jsonschema")

NAMES = [name for names in RESULT_SCHEMAS.values() for name in names]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with two spaces, labels and queries."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 6)).astype(np.float32) + np.repeat(3 * np.eye(6, dtype=np.float32)[:3], 40, axis=0)
    np.save("a.npy", X)
    np.save("b.npy", X[:, ::-1].copy())
    np.save("labels.npy", np.repeat(np.arange(3), 40))
    return tmp_path


def properties(schema, path=""):
    """Yield the path and the schema of every property."""
    if isinstance(schema, dict):
        for name, value in schema.get("properties", {}).items():
            yield f"{path}/{name}", value
        for name, value in schema.items():
            yield from properties(value, f"{path}/{name}")
    elif isinstance(schema, list):
        for each in schema:
            yield from properties(each, path)


@pytest.mark.parametrize("name", NAMES)
def test_every_property_is_described(name):
    schema = read_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    found = dict(properties(schema))
    assert len(found) > 3
    lacking = [path for path, value in found.items() if len(value.get("description", "")) < 8]
    assert lacking == []


def print_schema(command, capsys):
    assert main([command, "--schema"]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_schema_has_its_file():
    from isoscope._io.json import _SCHEMAS

    assert {path.name.removesuffix(".schema.json") for path in _SCHEMAS.iterdir()} == set(NAMES)


CASES = {
    "audit": "audit a.npy",
    "audit several": "audit a.npy b.npy",
    "audit three": "audit a.npy b.npy a.npy",
    "audit by": "audit a.parquet --by group",
    "advise": "advise a.npy --labels labels.npy --measure knn --folds 2",
    "advise without a task": "advise a.npy --folds 2",
    "similarity": "similarity a.npy 0.8 -0.2",
    "similarity model": "similarity 0.8 --model all-MiniLM-L6-v2",
    "threshold": "threshold a.npy --false-matches 0.05",
    "threshold labels": "threshold a.npy --labels labels.npy --f1",
    "threshold undecided": "threshold a.npy --labels labels.npy --precision 0.999",
    "same": "same a.npy b.npy --pair rows",
    "same unmatched": "same a.npy b.npy --pair none",
    "same within": "same a.npy --within",
    "compress": "compress a.npy --precision float16,bit",
    "compress nothing": "compress a.npy --precision bit --keep 1",
    "fit": "fit center a.npy -o repair",
    "apply": "apply repair a.npy -o c.npy",
}


@pytest.mark.parametrize("case", CASES)
def test_real_output_matches_the_printed_schema(case, folder, capsys):
    words = CASES[case].split()
    if case == "apply":
        assert main(["fit", "center", "a.npy", "-o", "repair"]) == 0
    if "a.parquet" in words:
        pa = pytest.importorskip("pyarrow")
        pq = pytest.importorskip("pyarrow.parquet")
        table = {"vector": np.load("a.npy").tolist(), "group": np.repeat([0, 1], 60)}
        pq.write_table(pa.table(table), "a.parquet")
    capsys.readouterr()
    assert main([*words, "--json", "-"]) in (0, 1), capsys.readouterr().err
    content = json.loads(capsys.readouterr().out)
    assert content["schema"] in {schema["title"] for schema in map(read_schema, RESULT_SCHEMAS[words[0]])}
    jsonschema.Draft202012Validator(print_schema(words[0], capsys)).validate(content)
