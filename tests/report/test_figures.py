import dataclasses
import sys

import numpy as np
import pytest

from isoscope._core.errors import InputError
from isoscope._report import figures
from isoscope._report.audit_charts import MAX_BARS
from isoscope.auditing.audit import Audit, audit
from tests.report.groupeds import layered, named, told

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

ALL = [figures.draw_spectrum, figures.draw_cosines, figures.draw_activations, figures.draw_points, figures.draw_barcode]


@pytest.fixture(scope="module")
def found() -> Audit:
    generator = np.random.default_rng(0)
    rows = generator.standard_normal((240, 6)) + 4 * np.repeat(generator.standard_normal((3, 6)), 80, axis=0)
    kinds = np.repeat(["_a", "$b$", "c"], 80)
    tokens = np.resize(["swim", "##ming", "[CLS]", ","], 240)
    return audit(rows, labels=kinds, types=tokens)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.mark.parametrize("draw", ALL)
def test_given_axes_are_used_and_returned(found, draw):
    before = dict(matplotlib.rcParams)
    figure, ax = plt.subplots()
    assert draw(found.pictures, ax) is ax
    assert plt.get_fignums() == [figure.number]
    assert ax.get_xlabel()
    assert ax.has_data()
    assert dict(matplotlib.rcParams) == before
    figure.canvas.draw()


@pytest.mark.parametrize("draw", ALL)
def test_axes_are_created_if_none_are_given(found, draw):
    ax = draw(found.pictures, None)
    assert [ax.figure.number] == plt.get_fignums()


def test_audit_plot_method(found):
    assert found.plot_spectrum().get_xscale() == "log"
    assert found.plot_points(color="lengths").has_data()


def test_spectrum_equals_that_of_the_audit(found):
    raw = figures.draw_spectrum(found.pictures).get_lines()[0]
    np.testing.assert_array_equal(raw.get_ydata(), found.pictures.spectrum_raw)
    np.testing.assert_array_equal(raw.get_xdata(), np.arange(6) + 1)


def test_values_below_rounding_error_are_not_drawn(found):
    thin = dataclasses.replace(found.pictures, spectrum_raw=np.array([1, 0.1, 1e-17, 0]))
    assert len(figures.draw_spectrum(thin).get_lines()[0].get_xdata()) == 2


def test_cosines_without_neighbors(found):
    ax = figures.draw_cosines(dataclasses.replace(found.pictures, nearest_cosines=None))
    assert "nearest neighbors" not in [text.get_text() for text in ax.get_legend().get_texts()]


def test_outlying_coordinates_are_numbered(found):
    ax = figures.draw_activations(found.pictures)
    assert [text.get_text() for text in ax.texts] == [str(index) for index in found.pictures.rogue_dimensions]


def test_longest_bars_are_drawn(found):
    many = dataclasses.replace(found.pictures, bars=np.linspace(2, 1, 400), n_significant_bars=3)
    lines = {line.get_label(): line.get_xdata()[1::3] for line in figures.draw_barcode(many).get_lines()}
    np.testing.assert_allclose(lines["stands out"], many.bars[:3])
    np.testing.assert_allclose(lines["noise"], many.bars[3:MAX_BARS])
    none = figures.draw_barcode(dataclasses.replace(many, bars=np.zeros(0), n_significant_bars=0))
    assert not any(len(line.get_xdata()) for line in none.get_lines())


@pytest.mark.parametrize("color", ["labels", "clusters", "kinds", "frequency", "lengths"])
@pytest.mark.parametrize("three", [False, True])
def test_points_are_drawn_in_two_or_three_dimensions(found, color, three):
    ax = plt.figure().add_subplot(projection="3d" if three else None)
    figures.draw_points(found.pictures, ax, color)
    assert sum(len(collection.get_offsets()) for collection in ax.collections) >= 240
    assert bool(getattr(ax, "get_zlabel", str)()) is three
    ax.figure.canvas.draw()


def test_names_are_drawn_unchanged(found):
    ax = figures.draw_points(found.pictures, None, "labels")
    ax.figure.canvas.draw()
    assert {text.get_text() for text in ax.get_legend().get_texts()} == {" _a", r"\$b\$", "c"}


def test_names_beyond_available_styles_are_grouped_as_others(found):
    many = dataclasses.replace(found.pictures, labels=np.arange(240) % 40, label_names=[f"n{i}" for i in range(40)])
    names = [text.get_text() for text in figures.draw_points(many, None, "labels").get_legend().get_texts()]
    assert len(names) == 22
    assert "others" in names


def test_unknown_color_raises_with_known_ones(found):
    bare = dataclasses.replace(found.pictures, labels=None, clusters=None, kinds=None)
    with pytest.raises(
        InputError,
        match='color is \'labels\', which is not available for this audit: choose from "frequency", "lengths"',
    ):
        figures.draw_points(bare, None, "labels")
    with pytest.raises(InputError, match="color is 'red'"):
        figures.draw_points(found.pictures, None, "red")


@pytest.mark.parametrize("make", [layered, named, lambda: layered(1)], ids=["layers", "names", "one"])
def test_finding_by_group_plots_the_series(make):
    grouped = make()
    ax = grouped.plot("isoscore")
    series = grouped.series("isoscore")
    drawn = next(line for line in ax.get_lines() if line.get_label() == grouped.source)
    np.testing.assert_array_equal(drawn.get_ydata(), series.estimates)
    np.testing.assert_array_equal(drawn.get_xdata(), np.arange(len(series.names)))
    assert drawn.get_linestyle() == ("-" if grouped.ordered else "None")
    if not grouped.ordered:
        assert [tick.get_text().strip() for tick in ax.get_xticklabels()] == list(grouped.groups)
    ax.figure.canvas.draw()


def test_finding_by_group_uses_given_axes():
    _, ax = plt.subplots()
    assert layered().plot("mean_cosine", ax) is ax
    with pytest.raises(InputError, match="isoscore could not be measured"):
        told([0.1, 0.2]).plot("isoscore")


@pytest.mark.parametrize("draw", ALL)
def test_missing_matplotlib_error_shows_install_command(found, draw, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(InputError, match=r"pip install 'isoscope\[plot\]'"):
        draw(found.pictures, None)
