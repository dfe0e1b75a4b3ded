"""The JSON follows its schema, schemas/audit-1.schema.json."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import isoscope
from isoscope._io.json import read_schema
from isoscope.auditing.audit_result import SCHEMA
from isoscope.auditing.findings import FINDINGS
from isoscope.auditing.grouped import SCHEMA as GROUPED
from isoscope.cli.main import main

jsonschema = pytest.importorskip("jsonschema")
DOCS = Path(__file__).parents[2] / "docs"
HELD = read_schema("audit-1")


def check(told):
    jsonschema.Draft202012Validator(HELD).validate(told)


def clouds():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 12))
    yield "plain", X, {}
    yield "everything", X + 1, {"labels": np.arange(300) % 3, "types": np.arange(300) // 4, "queries": X[:20] - 1}
    yield "euclidean", X, {"metric": "euclidean"}
    yield "rows", np.vstack([X, X[:9]]), {"rows": True, "top": 3, "labels": np.arange(309) % 3, "ids": np.arange(309)}
    yield "sampled", X, {"sample": 100}
    yield "four rows", X[:4, :2], {}
    yield "equal rows", np.ones((9, 3)), {}
    yield "wide", X[:6], {}


@pytest.mark.parametrize(("X", "options"), [pytest.param(X, o, id=name) for name, X, o in clouds()])
def test_every_audit_matches_the_schema(X, options):
    told = isoscope.audit(X, **options).to_dict()
    check(json.loads(json.dumps(told, allow_nan=False)))


def test_changes_match_the_schema(tmp_path, capsys):
    source, before, after = tmp_path / "x.npy", tmp_path / "before.json", tmp_path / "after.json"
    np.save(source, np.random.default_rng(0).standard_normal((200, 8)))
    main(["audit", str(source), "--json", str(before)])
    main(["audit", str(source), "--baseline", str(before), "--json", str(after)])
    told = json.loads(after.read_text())
    assert told["changes"]
    check(told)


def test_schema_name_matches_the_code_and_the_page():
    assert HELD["properties"]["schema"]["const"] == HELD["title"] == SCHEMA
    page = (DOCS / "audit-json.md").read_text(encoding="utf-8")
    assert SCHEMA in page
    assert GROUPED in page


def test_the_schema_rejects_other_objects():
    told = isoscope.audit(np.random.default_rng(0).standard_normal((50, 4))).to_dict()
    for spoiled in (
        {**told, "verdict": "fine"},
        {**told, "more": 1},
        {k: v for k, v in told.items() if k != "findings"},
    ):
        with pytest.raises(jsonschema.ValidationError):
            check(spoiled)


def test_every_finding_is_described():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 12))
    found = isoscope.audit(
        X, labels=np.arange(300) % 3, types=np.arange(300) // 4, queries=X[:20], frequency=X[:, 0] ** 2
    )
    assert {finding.name for finding in found.findings} == set(FINDINGS)
    page = (DOCS / "findings.md").read_text(encoding="utf-8")
    for finding in found.findings:
        assert f"`{finding.name}`" in page


def test_every_finding_name_is_described_in_the_schema():
    names = HELD["$defs"]["finding"]["properties"]["name"]["oneOf"]
    assert {each["const"] for each in names} == set(FINDINGS)
    assert all(len(each["description"]) > 20 for each in names)
