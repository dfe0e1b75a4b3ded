import sys

import pytest

from isoscope._core.errors import InputError
from isoscope._report.figures import draw_profile, save_profile
from tests.training.histories import made


def test_six_panels_with_a_line_per_layer():
    axes = draw_profile(made(layers=4)).axes
    assert [ax.get_title() for ax in axes][:4] == [
        "anisotropy_1",
        "anisotropy_2",
        "anisotropy_3",
        "anisotropy_1, centered",
    ]
    steps, values = made(layers=4).series("layer_3", "anisotropy_1")
    line = axes[0].get_lines()[3]
    assert line.get_xdata().tolist() == steps.tolist()
    assert line.get_ydata().tolist() == values.tolist()
    assert line.get_label() == "layer 3"


def test_many_layers_have_a_color_bar_instead_of_a_legend():
    figure = draw_profile(made(layers=31))
    assert len(figure.axes) == 7
    assert not figure.legends
    assert [label.get_text() for label in figure.axes[-1].get_yticklabels()] == ["layer 0", "layer 30"]


def test_arms_have_thin_runs_and_a_thick_mean():
    figure = draw_profile({"none": [made(), made(seed=1)], "_entropy$": made()})
    lines = figure.axes[0].get_lines()
    assert sorted(line.get_linewidth() for line in lines) == [0.7, 0.7, 2.2, 2.2]
    assert [text.get_text().strip() for text in figure.legends[0].get_texts()] == ["none", r"_entropy\$"]


@pytest.mark.parametrize(("name", "first"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.PDF", b"%PDF")])
def test_file_name_determines_the_format(tmp_path, name, first):
    save_profile(made(), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(first)


def test_unknown_file_formats_raise(tmp_path):
    with pytest.raises(InputError, match=r"need a file name that ends in .png, .svg or .pdf"):
        save_profile(made(), tmp_path / "profile.gif")
    assert not list(tmp_path.iterdir())


def test_missing_matplotlib_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'isoscope\[plot\]'"):
        draw_profile(made())
