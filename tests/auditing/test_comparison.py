import json

import numpy as np
import pytest

import isoscope
from isoscope._io.json import read_schema
from isoscope.errors import ParameterError

RNG = np.random.default_rng(0)
CLOUD = RNG.standard_normal((200, 8))


@pytest.fixture(scope="module")
def compared():
    return isoscope.audit(
        CLOUD, CLOUD @ np.linalg.qr(RNG.standard_normal((8, 8)))[0], text=[f"text {i}" for i in range(200)]
    )


def test_each_audit_equals_the_audit_of_its_source(compared):
    alone = isoscope.audit(CLOUD, text=[f"text {i}" for i in range(200)])
    assert len(compared) == 2
    assert [f.to_dict() for f in compared[0].findings] == [f.to_dict() for f in alone.findings]
    assert compared["array"] is compared[0]
    assert list(compared) == compared.audits
    with pytest.raises(KeyError, match=r"b\.npy.*array"):
        compared["b.npy"]


def test_a_rotation_keeps_the_neighbors(compared):
    assert compared.neighbor_agreements == [compared.agreement]
    assert compared.agreement == pytest.approx(1)
    assert {each.name: round(each.value, 6) for each in compared.correspondence[0]}["cka"] == 1
    assert "100% of nearest neighbors in common" in repr(compared)


def test_spaces_with_other_rows_are_not_compared_row_by_row():
    compared = isoscope.audit(CLOUD, CLOUD[:150], CLOUD + 3)
    assert compared.agreement is None
    assert compared.correspondence[0] == []
    assert compared.neighbor_agreements[0] is None
    assert compared.verdict == "bad"


def test_outputs(compared, tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    compared.to_json(tmp_path / "a.json")
    content = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    jsonschema.validate(content, read_schema("audit-1", "comparison-1"))
    assert content["agreement"] == pytest.approx(1)
    compared.to_html(tmp_path / "a.html")
    assert "text 7" in (tmp_path / "a.html").read_text(encoding="utf-8")
    compared.without_texts().to_html(tmp_path / "b.html")
    assert "text 7" not in (tmp_path / "b.html").read_text(encoding="utf-8")
    assert compared.headline in str(compared)


def test_groups_of_several_sources():
    with pytest.raises(ParameterError, match="2 sources"):
        isoscope.audit(CLOUD, CLOUD, by=np.arange(200) // 100)
