"""Results written from Python replace earlier results, but no other files."""

import numpy as np
import pytest

import isoscope

LABELS = np.arange(200) % 2


@pytest.fixture(scope="module")
def vectors():
    return np.random.default_rng(0).standard_normal((200, 16)) + LABELS[:, None]


@pytest.fixture(scope="module")
def results(vectors):
    return {
        "audit": isoscope.audit(vectors),
        "grouped": isoscope.audit(vectors, by=LABELS),
        "comparison": isoscope.audit(vectors, vectors + 1),
        "threshold": isoscope.threshold(vectors, labels=LABELS),
    }


@pytest.mark.parametrize("form", ["to_html", "to_json"])
@pytest.mark.parametrize("name", ["audit", "grouped", "comparison", "threshold"])
def test_pages_and_json(results, vectors, tmp_path, name, form):
    source = tmp_path / "vectors.npy"
    np.save(source, vectors)
    before = source.read_bytes()
    write = getattr(results[name], form)
    with pytest.raises(isoscope.errors.OutputError, match=r"vectors\.npy exists and is not a result of isoscope"):
        write(source)
    assert source.read_bytes() == before
    path = tmp_path / "result"
    path.touch()  # an empty file is replaced
    write(path)
    first = path.read_bytes()
    write(path)
    assert path.read_bytes() == first != b""


def test_sketches(vectors, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(isoscope.errors.OutputError, match=r"notes\.txt exists"):
        isoscope.sketch(vectors).save(path)
    assert path.read_text() == "mine"
    isoscope.sketch(vectors).save(tmp_path / "a.sketch")
    isoscope.sketch(vectors[:50]).save(tmp_path / "a.sketch")
    assert isoscope.Sketch.load(tmp_path / "a.sketch").n == 50
