"""same: the answer for each kind of input, and a one-line error for input that cannot be compared."""

import json

import numpy as np
import pytest

import isoscope
from isoscope import InputError, open_store, same
from isoscope.comparing.canary import MIN_TEXTS
from tests.comparing.spaces import topics

X = topics(400)
IDS = [f"d{i}" for i in range(400)]


def store(rows, ids=IDS, **columns):
    return open_store(rows, ids=ids[: len(rows)], **columns)


def test_rows_are_matched_by_id_in_any_order():
    order = np.random.default_rng(0).permutation(400)
    found = same(store(X), open_store(2 * X[order], ids=[IDS[i] for i in order]))
    assert (found.answer, found.evidence, found.compared) == ("rescaled", "pairs", 400)
    assert found.scale == pytest.approx(2, rel=1e-5)
    assert not found


def test_rows_are_matched_by_text_without_ids():
    found = same(open_store(X, text=IDS), open_store(X[::-1], text=IDS[::-1]))
    assert (found.answer, found.evidence) == ("same", "pairs")
    assert found


@pytest.mark.parametrize("codes", ["one range", "a range for each vector"])
def test_integer_codes_are_the_same_space(codes):
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    largest = np.abs(unit).max() if codes == "one range" else np.abs(unit).max(axis=1, keepdims=True)
    found = same(store(unit), store(np.round(127 * unit / largest).astype(np.int8)))
    assert found.answer == "same"
    assert any("rounding" in note for note in found.notes)
    assert same(store(unit), store(np.round(100 * unit[:, ::-1]).astype(np.int8))).answer == "rotated"


def test_the_tolerance_of_integer_codes_is_reported():
    codes = np.round(7 * X / np.abs(X).max()).astype(np.int8)
    found = same(store(X), store(codes))
    assert found.details["tolerance"] > found.settings.tolerance
    assert f"tolerance is {found.details['tolerance']:.2g}." in found.paragraph
    shifted = same(store(X), store((np.round(127 * X / np.abs(X).max()) + 128).astype(np.uint8)))
    assert shifted.answer == "same"
    assert any("a factor or a shift" in note for note in shifted.notes)
    assert same(store(X), store(X)).details == {"tolerance": 0.05}


@pytest.mark.parametrize("factor", [1, 3])
def test_a_factor_of_a_shift_or_rotation_is_stated(factor):
    shifted = same(store(X), store(factor * X + 0.1))
    turned = same(store(X), store(factor * X[:, ::-1]))
    assert (shifted.answer, turned.answer) == ("shifted", "rotated")
    for found in (shifted, turned):
        assert ("multiplied by 3.00" in found.headline) == (factor == 3)
    assert ("divide by the factor" in shifted.paragraph) == (factor == 3)
    assert ("3.00 times as large" in turned.paragraph) == (factor == 3)


def test_unpaired_rows_never_give_a_rotation():
    assert same(X[:200], X[200:]).answer == "same"
    turned = same(X[:200], X[200:, ::-1])
    assert (turned.answer, turned.evidence) == ("different", "rows")
    assert turned.auc > 0.9
    assert turned.auc_low <= turned.auc <= turned.auc_high
    assert any("canary" in note for note in turned.notes)


def test_unpaired_rows_show_a_factor_and_a_shift():
    assert same(X[:200], 3 * X[200:]).answer == "rescaled"
    assert same(X[:200], X[200:] + 1).answer == "shifted"


def test_sketches_and_their_files(tmp_path):
    isoscope.sketch(X[:200]).save(tmp_path / "old.sketch")
    for new in (X[200:], isoscope.sketch(X[200:])):
        found = same(tmp_path / "old.sketch", new)
        assert (found.answer, found.evidence) == ("same", "sketches")
    assert same(tmp_path / "old.sketch", X[200:, ::-1]).answer == "different"
    assert same(isoscope.sketch(X[:200]), isoscope.sketch(2 * X[200:])).answer == "rescaled"


def test_other_dimensions_are_a_different_space():
    found = same(X, X[:, :10])
    assert (found.answer, found.evidence) == ("different", "dimensions")
    assert "48" in found.paragraph
    assert "10" in found.paragraph


def test_few_rows_are_undecided_and_the_number_that_is_enough_decides():
    found = same(X[:15], X[15:30])
    assert found.answer == "undecided"
    assert f"about {found.enough:,} would be enough" in found.headline
    paired = same(X[:6], X[:6], pair="rows")
    assert paired.answer == "undecided"
    assert same(X[: paired.enough], X[: paired.enough], pair="rows").answer == "same"
    fewest = same(X[:3], X[:3], pair="rows").enough
    assert fewest == MIN_TEXTS == 48
    assert same(X[:fewest], X[:fewest, ::-1], pair="rows").answer == "rotated"


def test_ids_that_only_one_side_has_are_an_error_or_left_out():
    with pytest.raises(InputError, match=r"100 ids of old are not in new, first d300.*drop"):
        same(store(X), store(X[:300]))
    found = same(store(X), store(X[:300]), missing="drop")
    assert (found.answer, found.compared) == ("same", 300)
    assert "100 ids of old that are not in new were left out." in found.notes


def test_repeated_ids_are_an_error_or_left_out():
    ids = ["d1", *IDS[1:]]
    with pytest.raises(InputError, match="1 id on several rows, first d1"):
        same(store(X), store(X, ids))
    found = same(store(X), store(X, ids), missing="drop")
    assert found.compared == 398
    assert "1 id that occurs on several rows of new was left out." in found.notes


def test_rows_with_another_text_are_left_out():
    texts = [f"text {i}" for i in range(400)]
    changed = ["new text", *texts[1:]]
    Y = X.copy()
    Y[0] = -Y[0]
    found = same(store(X, text=texts), store(Y, text=changed))
    assert (found.answer, found.compared, found.n_changed) == ("same", 399, 0)
    assert "1 row was left out because its text differs in new, so its vector should differ." in found.notes


def test_rows_can_be_paired_by_number_or_not_at_all():
    assert same(X, X[:, ::-1], pair="rows").answer == "rotated"
    assert same(store(X), store(X[:, ::-1]), pair="none").answer == "different"
    with pytest.raises(InputError, match="400 rows and new has 300"):
        same(X, X[:300], pair="rows")
    with pytest.raises(InputError, match="no ids"):
        same(X, X, pair="ids")
    with pytest.raises(InputError, match="sketch"):
        same(isoscope.sketch(X), X, pair="rows")


def test_incomplete_rows_and_rows_of_zeros_can_be_left_out():
    Y = X.copy()
    Y[3], Y[4] = np.nan, 0
    with pytest.raises(InputError):
        same(store(X), store(Y))
    found = same(store(X), store(Y), missing="drop", zeros="drop")
    assert (found.answer, found.compared) == ("same", 398)


def test_a_sample_of_the_pairs_is_compared():
    found = same(store(X), store(X), sample=100)
    assert found.compared == 100
    assert any("sample of 100 of 400" in note for note in found.notes)


def test_groups_stay_together():
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.standard_normal((60, 8)), 10, axis=0) + 0.2 * rng.standard_normal((600, 8))
    groups = np.repeat(np.arange(30), 10)
    sides = [open_store(part, groups=groups) for part in (rows[:300], rows[300:])]
    assert same(rows[:300], rows[300:]).answer != "same"
    assert same(*sides).answer in ("same", "undecided")


def test_within_finds_the_rows_of_another_model():
    Y = topics(900, d=96)
    other = np.random.default_rng(1).permutation(900)[:90]
    Y[other] = topics(900, d=96, model=1)[other]
    ids = [f"d{i}" for i in range(900)]
    found = same(open_store(Y, ids=ids), within=True)
    assert found.answer == "mixed"
    assert set(found.changed) == {ids[i] for i in other}
    assert "topic" in found.paragraph
    assert same(topics(900, d=96), within=True).answer == "same"
    for few, enough in ((Y[:50], 200), (Y[:, :5], None)):
        found = same(few, within=True)
        assert (found.answer, found.enough) == ("undecided", enough)


@pytest.mark.parametrize("options", [{"tolerance": 0}, {"sample": 5}, {"missing": "no"}, {"pair": "x"}])
def test_bad_options_are_one_line(options):
    with pytest.raises(InputError) as error:
        same(X, X, **options)
    assert "\n" not in str(error.value)


def test_one_or_two_sources_are_needed():
    for arguments, options in (((X,), {}), ((X, X), {"within": True})):
        with pytest.raises(InputError, match="within"):
            same(*arguments, **options)
    with pytest.raises(InputError, match="all rows of old and of new are equal"):
        same(np.ones((50, 4)), np.ones((60, 4)))


@pytest.mark.parametrize("pair", ["rows", "none"])
def test_equal_rows_on_one_side_are_a_different_space(pair):
    for old, new, constant in ((X, np.ones_like(X), "new"), (np.ones_like(X), X, "old")):
        found = same(old, new, pair=pair)
        assert (found.answer, found.decided_by) == ("different", f"{constant}_constant")
        assert f"All compared rows of {constant} are equal" in found.paragraph
    assert same(isoscope.sketch(X), isoscope.sketch(np.ones_like(X))).decided_by == "new_constant"


@pytest.mark.parametrize("factor", [1e2, 1e6, 1e30])
def test_one_broken_row_does_not_change_the_answer_for_unmatched_rows(factor):
    old, new = X[:200].astype(np.float64), X[200:].astype(np.float64)
    new[7] *= factor
    found = same(old, new)
    assert found.answer == "same"
    assert any("1 row of new was left out" in note and "(row 7)" in note for note in found.notes)
    turned = same(old, new[:, ::-1])
    assert turned.answer == "different"
    if factor < 1e30:
        summed = same(isoscope.sketch(old), isoscope.sketch(new))
        assert (summed.answer, summed.decided_by) == ("undecided", "broken_rows")
        assert any("A few rows hold most of the variance of new" in note for note in summed.notes)


@pytest.mark.parametrize("options", [{"pair": "rows"}, {"tolerance": 0.1}, {"groups": "g"}, {"new_ids": "id"}])
def test_within_rejects_options_that_it_does_not_use(options):
    with pytest.raises(InputError, match=f"{next(iter(options))} was passed with within"):
        same(X, within=True, **options)


def test_json_is_versioned_and_complete(tmp_path):
    for found in (same(X[:200], X[200:]), same(X, 2 * X, pair="rows"), same(X, X[:, :9])):
        found.to_json(tmp_path / "same.json")
        content = json.loads((tmp_path / "same.json").read_text(encoding="utf-8"))
        assert content["schema"] == "isoscope.same/1"
        assert content["answer"] == found.answer
        assert content["headline"] == found.headline


def test_dask_gives_the_same_answer(tmp_path):
    pytest.importorskip("dask", reason="dask is not installed")
    np.save(tmp_path / "old.npy", X[:200])
    np.save(tmp_path / "new.npy", X[200:])
    local, dask = (same(tmp_path / "old.npy", tmp_path / "new.npy", engine=e) for e in ("local", "dask"))
    assert local.to_dict() == dask.to_dict()


@pytest.mark.parametrize("factor", [1e2, 1e3, 1e6])
def test_one_huge_row_does_not_change_the_answer(factor):
    Y = X.copy()
    Y[7] *= factor
    found = same(X, Y, pair="rows")
    assert (found.answer, found.changed) == ("same", [7])
    other = topics(len(X), model=1).astype(X.dtype)
    other[7] = factor * X[7]
    assert same(X, other, pair="rows").answer == "different"


@pytest.mark.parametrize("factor", [1e300, 1e160, 1e-80, 1e-170])
@pytest.mark.parametrize("pair", ["rows", "none"])
def test_numbers_out_of_range_raise(factor, pair):
    Y = factor * X.astype(np.float64)
    with pytest.raises(InputError, match="largest vector norm in new"):
        same(X, Y, pair=pair)


def test_normalized_vectors_keep_their_directions():
    found = same(X * np.linspace(0.5, 2, len(X))[:, None], X, pair="rows")
    assert (found.answer, found.decided_by) == ("rescaled", "directions")
    assert found.headline == "new has the directions of old, but other lengths."
    assert "98% of the factors are between 0.50" in found.paragraph
    assert "Cosines are the same" in found.paragraph
    found.to_dict()
    assert "directions" in str(found)


def test_equal_rows_on_both_sides_are_noted():
    found = same(X, X[::-1], pair="none")
    assert any("400 compared rows of the old vectors are also among the new ones" in note for note in found.notes)
    assert not any("also among" in note for note in same(X[:200], X[200:]).notes)


@pytest.mark.parametrize(
    ("new", "answer"),
    [(np.float16(X), "same"), (X[:, ::-1], "different"), (np.round(X * 100).astype(np.int8), "rescaled")],
)
def test_sources_of_one_length_suggest_matching_by_row_number(new, answer):
    found = same(X, new)
    assert (found.answer, found.evidence) == (answer, "rows")
    assert "Both sources have 400 rows, but the rows were not matched" in found.paragraph
    for text in (" ".join(str(found).split()), json.dumps(found.to_dict())):
        assert "--pair rows" in text
    for other in (same(X, new, pair="rows"), same(X[:200], X[200:399])):
        assert "--pair rows" not in other.paragraph


def test_an_auc_below_chance_is_explained():
    assert "An AUC below 0.5 is typical of copies" in same(X, np.float16(X)).paragraph
    assert "An AUC below 0.5" not in same(X[:200], X[200:]).paragraph


@pytest.mark.parametrize("new", [X[:1], X[:10], X[:12]])
def test_too_few_rows_on_one_side_are_not_called_few_on_both(new):
    found = same(X, new)
    rows = f"{len(new)} row{'s' if len(new) > 1 else ''}"
    assert found.headline == (
        f"This cannot be decided with {rows} on the smaller side; about 32 on each side would be enough."
    )


def test_equal_rows_in_the_same_order_are_matched_by_row_number():
    found = same(X, X.copy())
    assert (found.answer, found.evidence, found.compared) == ("same", "pairs", len(X))
    assert f"All {len(X)} matched vectors agree" in found.paragraph
    assert any("matched by row number" in note for note in found.notes)
    moved = X.copy()
    moved[: len(X) // 2] += 1
    for other in (X[::-1], X[:-1], moved):
        assert same(X, other).evidence == "rows"


def test_different_rows_are_described_by_the_best_transformation():
    paragraph = same(X, np.random.default_rng(5).standard_normal(X.shape), pair="rows").paragraph
    assert (
        "0% of 400 matched vectors agree within the tolerance (5% of the median distance from the center)." in paragraph
    )
