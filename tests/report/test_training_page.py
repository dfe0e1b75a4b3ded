import math
import re

import pytest

from isoscope._report.line_chart import render_layer_legend
from isoscope._report.narrate import MEASUREMENT_LABELS, format_layer_name, training_headline
from isoscope._report.training_page import render_training_page
from isoscope.training.history import Runs
from tests.report.chromium import Chromium, require_browser
from tests.report.parsed import Parsed, allows_itself_alone, in_order
from tests.training.histories import made

EVIL = "</script><img src=x onerror=alert(1)>\u2028<!--\"'&amp;"
FLAT = {"isoscore_unbiased": 0.0002, "silhouette": 0.0}

KINDS = {
    "one": made(),
    "one step": made(steps=(0,)),
    "one layer": made(layers=1),
    "many layers": made(layers=31),
    "collapsed": made(**FLAT),
    "seeds": [made(seed=seed) for seed in range(3)],
    "arms": {"none": [made(seed=s) for s in range(2)], "entropy": [made(seed=s, end=0.3) for s in range(2)]},
    "uneven arms": {"none": made(layers=2), "entropy": [made(steps=(0, 10)), made(**FLAT)]},
    "many arms": {f"arm {i}": made(end=0.3 + i / 20) for i in range(9)},
    "no labels": made(silhouette=math.nan),
}


@pytest.fixture(params=KINDS)
def runs(request):
    return KINDS[request.param]


# every page


def test_pages_are_valid_html_with_strict_csp(runs):
    text = render_training_page(runs, {"model": "tiny"})
    in_order(text)
    assert not allows_itself_alone(text).all("script")


def test_drawings_contain_no_nan_or_inf(runs):
    for drawing in re.findall(r"<svg.*?</svg>", render_training_page(runs)):
        assert not re.search(r"nan|inf\b", re.sub(r">[^<]*<", "><", re.sub(r'aria-label="[^"]*"', "", drawing)))


def test_headline_describes_the_result(runs):
    text = Parsed(render_training_page(runs)).text
    assert text.count(training_headline(Runs(runs))) == 1


def test_table_has_a_row_per_layer_or_arm_and_every_measurement(runs):
    table = Parsed(re.search(r"<table.*?</table>", render_training_page(runs))[0])
    drawn = Runs(runs)
    rows = list(map(format_layer_name, drawn.layers)) if drawn.alone else [arm or "all runs" for arm in drawn.arms]
    assert len(table.all("td")) == len(rows) * len(MEASUREMENT_LABELS)
    assert all(each in table.text for each in [*rows, *MEASUREMENT_LABELS.values()])


def test_data_text_is_escaped():
    for given in ({EVIL: made(), "other": made()}, made()):
        parsed = Parsed(render_training_page(given, {"model": EVIL, EVIL: EVIL}))
        assert not parsed.all("img")
        assert not parsed.all("script")
        assert not parsed.comments
        assert parsed.text.count(EVIL) >= 3


# what is drawn


def charts(text: str) -> dict[str, str]:
    found = re.findall(r"<h[34]>(?:<bdi>)?([^<]*)(?:</bdi>)?</h[34]>(<div class=\"chart.*?</div>)", text)
    return dict(found)


def test_each_measurement_has_a_chart_with_a_line_per_layer():
    drawn = charts(render_training_page(made(layers=5)))
    assert set(drawn) == set(MEASUREMENT_LABELS.values())
    assert drawn["anisotropy_1"].count('class="line depth-') == 5
    assert drawn["anisotropy_1, centered"].count('class="line depth-') == 4, "those of layer 0 are all equal"
    assert drawn["mean cosine"].count(" thick") == 1


def test_seeds_are_thin_and_their_mean_is_thick():
    drawn = charts(render_training_page(KINDS["arms"]))["anisotropy_1"]
    assert drawn.count(" faint") == 4
    assert drawn.count(" thick") == 2
    assert "none: 0.200 at the start, 0.500 at the end. entropy: 0.200 at the start, 0.300 at the end." in drawn


def test_arms_are_shown_side_by_side_on_one_scale():
    text = render_training_page(KINDS["arms"])
    part = text[text.index('id="layers"') :]
    sides = re.findall(r'<text x="-8".*?>(.*?)</text>', part[: part.index("IsoScore")])
    half = len(sides) // 2
    assert half
    assert sides[:half] == sides[half:]


def test_missing_measurement_is_a_gap():
    history = made(steps=(0, 10), layers=2)
    for step, value in ((20, math.nan), (30, 0.4), (40, 0.5), (50, math.nan), (60, 0.3)):
        history.append(
            [row | {"step": step, "two_nn": value} for row in list(history)[:2] if row["layer"] == "layer_1"]
        )
    drawn = charts(render_training_page(history))["TwoNN dimension"]
    path = re.search(r'd="([^"]+)" class="line depth-15', drawn)[1]
    assert path.count("M") == 2
    assert drawn.count("<circle") == 1


def test_missing_measurement_has_no_chart():
    assert "silhouette of the classes" not in charts(
        render_training_page(made(layers=1, steps=(0,), silhouette=math.nan))
    )


@pytest.mark.parametrize(("layers", "entries"), [(2, 2), (8, 8), (9, 2), (31, 2)])
def test_legend_names_few_layers_and_shows_a_range_for_many(layers, entries):
    drawn = Parsed(render_layer_legend([f"layer_{i}" for i in range(layers)]))
    assert len(drawn.all("li")) == entries
    assert f"layer {layers - 1}, the last" in drawn.text
    assert len(drawn.all("rect")) == (layers if layers > 8 else 0)


def test_colors_range_from_first_to_last_layer():
    drawn = charts(render_training_page(made(layers=31)))["anisotropy_1"]
    shades = [int(each) for each in re.findall(r"line depth-(\d+)", drawn)]
    assert shades == sorted(shades)
    assert (shades[0], shades[-1]) == (0, 15)


# what is said


def test_collapse_is_reported_first_and_only_if_there_was_one():
    for kind, runs in KINDS.items():
        notes = [a for _, a in Parsed(render_training_page(runs)).elements if a.get("role") == "note"]
        assert len(notes) == (kind in ("collapsed", "uneven arms"))
    said = Parsed(render_training_page(KINDS["collapsed"])).text
    assert "A layer has collapsed." in said
    assert "layer 2, by step 30: its effective dimensions fell from 62.3 to 1.08 of 384." in said
    assert "lower learning rate" in said


def test_facts_are_shown():
    said = Parsed(
        render_training_page(made(), {"model": "tiny", "task": "CoLA", "weight": 0.5, "score": "0.51 ± 0.02"})
    ).text
    assert "tiny on CoLA" in said
    for words in ("Weight0.5", "Score0.51 ± 0.02", "64 rows with 384 dimensions", "3 layers", "measured 4 times"):
        assert words in said


def test_several_runs_are_averaged_over_the_end_of_training():
    table = Parsed(re.search(r"<table.*?</table>", render_training_page(KINDS["arms"]))[0]).text
    assert re.search(r"entropy0\.300 ± 0\.000", table)


# in a browser


def test_pages_fit_a_phone_without_console_errors(tmp_path):
    with Chromium(require_browser()) as browser:
        for name in ("many layers", "arms", "collapsed"):
            path = tmp_path / "page.html"
            path.write_text(render_training_page(KINDS[name], {"model": "m" * 90}), encoding="utf-8")
            for width in (360, 1280):
                tab = browser.open(path.as_uri(), width=width, dark=width == 360)
                tab.finish()
                over = tab.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                assert (name, width, over) == (name, width, 0)
                assert tab.complaints == []
                assert tab.requests == [path.as_uri()]
                tab.close()
