import html
import re

import numpy as np
import pytest

import isoscope
from isoscope._report.advice_page import render_advice_page, render_notebook_page
from isoscope._report.forest_chart import build_isotropy_scatter, draw_forest_plot
from isoscope._report.narrate import LABEL_FREE_WARNING, advice_headline, format_interval, format_signed
from isoscope.advising.advise import Advice
from isoscope.advising.task import AdviceSettings
from tests.report.advices import GAINS, KINDS, made
from tests.report.chromium import Chromium, require_browser
from tests.report.parsed import Parsed, allows_itself_alone, in_order

EVIL = "</script><img src=x onerror=alert(1)>\u2028<!--\"'&amp;"


@pytest.fixture(params=KINDS)
def advice(request) -> Advice:
    return KINDS[request.param]


def drawn_alone(text: str) -> str:
    """Return the markup without text and labels, which may contain any word."""
    return re.sub(r">[^<]*<", "><", re.sub(r'aria-label="[^"]*"', "", text))


# every page


def test_pages_are_valid_html_with_strict_csp(advice):
    text = render_advice_page(advice)
    in_order(text)
    assert allows_itself_alone(text).all("script") == [{}], "the script of the copy buttons, inline"


def test_drawings_contain_no_nan_or_inf(advice):
    for drawing in re.findall(r"<svg.*?</svg>", render_advice_page(advice)):
        assert not re.search(r"nan|inf\b", drawn_alone(drawing))


def test_advice_is_shown_completely_and_once(advice):
    text = Parsed(render_advice_page(advice)).text
    for sentence in (
        advice_headline(advice),
        advice.paragraph.removeprefix(advice_headline(advice)).removesuffix(LABEL_FREE_WARNING).strip(),
    ):
        assert text.count(sentence) == 1


def test_verdict_is_the_heading(advice):
    heading = html.unescape(re.search(r"<h1>(.*?)</h1>", render_advice_page(advice))[1])
    assert heading == advice_headline(advice)
    assert advice.leaves_vectors_unchanged == heading.startswith("Leave the vectors as they are:")
    assert heading.startswith("Use") == (not advice.leaves_vectors_unchanged and advice.measure != "stability")


def test_the_table_has_every_number(advice):
    table = Parsed(re.search(r"<table.*?</table>", render_advice_page(advice))[0])
    for trial in advice.trials:
        assert trial.name in table.text
        assert f"{trial.numbers:,}" in table.text
    for trial in advice.trials[1:]:
        for score in trial.scores.values():
            assert f"{score.value:.3f}" in table.text
            assert f"{format_signed(score.gain)} {format_interval(score)}" in table.text
    cells = len(table.all("td")) + len([a for a in table.all("th") if a["scope"] == "row"])
    columns = 2 + 2 * len(advice.measures) + len(advice.trials[0].shape)
    assert cells == len(advice.trials) * columns


def test_fragments_are_complete_without_scripts(advice):
    parsed = Parsed(render_notebook_page(advice))
    assert not parsed.all("script")
    assert not parsed.ids
    for trial in advice.trials:
        assert trial.name in parsed.text
    assert advice_headline(advice) in parsed.text


def test_notebooks_show_the_gains_and_the_isotropy(advice):
    images = Parsed(render_notebook_page(advice)).all("img")
    compared = len(advice.trials) > 1
    assert [image["alt"].split()[0] for image in images][:compared] == ["Gain"] * compared


# what comes from the data stays data


def test_data_text_is_escaped():
    hostile = made(
        [(EVIL, 0.2), ("plain", 0.1)],
        chosen=1,
        source=f"{EVIL}.npy",
        measures={"spearman": EVIL},
        notes=[EVIL],
        left_out={EVIL: EVIL},
    )
    for text, count in ((render_advice_page(hostile), 12), (render_notebook_page(hostile), 7)):
        parsed = Parsed(text)
        assert not parsed.foreign_images()
        assert parsed.all("script") == [{}] * text.startswith("<!doctype")  # the page's own script
        assert not parsed.comments
        assert not [key for _, attributes in parsed.elements for key in attributes if key.startswith("on")]
        assert parsed.text.count(EVIL) >= count


def test_lone_surrogate_can_be_written():
    assert "broken ?" in render_advice_page(made(source="broken \ud800.npy")).encode("utf-8").decode("utf-8")


# what is said


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("use", "2,552 vectors × 576 dimensions · 1,379 graded pairs, Spearman's correlation"),
        ("queries", "1,379 queries with judged documents, nDCG@10"),
        ("labels", "1,379 labeled rows, linear probe"),
        ("label free", "no task given, split-half stability on 1,379 rows"),
    ],
)
def test_source_size_and_task_are_shown(kind, words):
    text = Parsed(render_advice_page(KINDS[kind])).text
    assert words in text
    assert "vectors.parquet" in text


def test_advice_without_a_task_has_a_visible_caution():
    for kind, advice in KINDS.items():
        notes = [
            attributes
            for _, attributes in Parsed(render_advice_page(advice)).elements
            if attributes.get("role") == "note"
        ]
        assert len(notes) == (kind == "label free")
        assert render_advice_page(advice).count(LABEL_FREE_WARNING) == (kind == "label free")
    assert LABEL_FREE_WARNING in render_notebook_page(KINDS["label free"])


def test_method_is_described():
    settings = AdviceSettings(folds=7, seed=42, metric="euclidean", sample=2_000)
    advice = made(chosen=2, settings=settings, notes=["A note."], left_out={"Whiten(pca, 9)": "too few rows"})
    text = Parsed(render_advice_page(advice)).text
    for words in (
        "vectors compared by euclidean",
        "Repairs are fitted to all rows of the source, like the saved repair.",
        "Pairs that share a row",
        "The intervals of all 4 repairs and all deciding measures hold",
        "10% below the best significant gain",
        "+0.123. The pairs are split into 7 folds",
        "Standardize → AllButTheTop(6) 18, Whiten 2; 90% agree with the advice",
        "a random sample of 2,000 of 2,552",
        "Seed42",
        "NoteA note.",
        "Not tried: Whiten(pca, 9)too few rows",
    ):
        assert words in text, words


def test_new_rows_are_named_and_included_in_commands():
    text = Parsed(render_advice_page(made(settings=AdviceSettings(new_rows=True)))).text
    assert "Repairs are fitted without the rows of the pairs they are scored on." in text
    assert "isoscope advise vectors.parquet --pairs PAIRS --new-rows --html" in text


def test_commands_repeat_the_advice_and_apply_the_repair():
    text = Parsed(render_advice_page(made(chosen=2, source="my vectors.npy", settings=AdviceSettings(folds=3)))).text
    assert "advice = isoscope.advise('my vectors.npy', pairs=PAIRS, folds=3)" in text
    assert "isoscope advise 'my vectors.npy' --pairs PAIRS --folds 3 -o repair --html advice.html" in text
    assert "isoscope apply repair 'my vectors.npy' -o repaired.npy" in text


def test_requested_measure_is_in_the_command():
    text = Parsed(render_advice_page(made(task="labels", measure="knn", alone=True, given={"labels": "my topic"}))).text
    assert "labels='my topic', measure='knn')" in text
    assert "--labels 'my topic' --measure knn --html" in text
    assert "Replace " not in text


def test_no_apply_command_without_a_recommended_repair():
    assert "isoscope apply" not in render_advice_page(KINDS["leave"])
    assert "-o repair" not in render_advice_page(KINDS["leave"])


def test_array_source_has_no_shell_commands():
    text = Parsed(render_advice_page(KINDS["an array"])).text
    assert "isoscope.advise(vectors, pairs=PAIRS)" in text
    assert "advice.repair.transform(vectors)" in text
    assert "isoscope advise" not in text


def test_without_a_task_the_task_options_are_shown():
    text = Parsed(render_advice_page(KINDS["label free"])).text
    for words in ("--pairs PAIRS", "--queries QUERIES --qrels QRELS", "--labels LABELS"):
        assert f"isoscope advise vectors.parquet {words}" in text


# what is drawn


def test_each_measure_has_a_figure_and_the_deciding_one_is_first():
    advice = made(task="labels", chosen=2, measure="knn")
    titles = re.findall(r"<figure><h3>(.*?)</h3>", render_advice_page(advice))
    assert titles == ["By 10 nearest (the deciding measure)", "By linear probe", "By V-measure"]
    assert "(the deciding measure)" not in render_advice_page(KINDS["use"]), "there is no other"


def rows_of(drawing: str) -> list[str]:
    return re.findall(r'<div class="trial(?: chosen)?">.*?</div>', drawing)


def test_marks_and_whiskers_are_at_the_gains():
    advice = made(half=0.03)
    rows = rows_of(draw_forest_plot(advice, "spearman")[0])
    assert len(rows) == len(advice.trials)
    zero = float(re.search(r'x1="([\d.]+)%"[^>]*class="zero"', rows[0])[1])
    ends, marks = [], [zero]
    for row in rows[1:]:
        low, high = re.search(r'class="whisker \w+" x1="([\d.]+)%" x2="([\d.]+)%"', row).groups()
        ends += [float(low), float(high)]
        marks.append(float(re.search(r'<svg x="([\d.]+)%"', row)[1]))
    scores = [trial["spearman"] for trial in advice.trials]
    told = [end for score in scores[1:] for end in (score.low, score.high)] + [score.gain for score in scores]
    # a scale is a straight line
    slope, start = np.polyfit(told, ends + marks, 1)
    np.testing.assert_allclose(np.polyval([slope, start], told), ends + marks, atol=0.1)
    assert slope > 0
    assert min(ends) > 0
    assert max(ends) < 100


def test_extreme_loss_does_not_compress_the_scale():
    advice = KINDS["far off"]
    (chart, caption), scatter = draw_forest_plot(advice, "spearman"), build_isotropy_scatter(advice)
    rows = rows_of(chart)
    assert ["beyond" in row for row in rows] == [False] * 11 + [True]
    places = [float(re.search(r'<svg x="([\d.]+)%"', row)[1]) for row in rows]
    assert places[-1] == 0
    assert max(places[:-1]) - min(places[:-1]) > 40
    assert "beyond the left edge" in caption
    assert scatter.to_svg().count("beyond") == 1
    assert "below the lower edge" in scatter.description
    assert "−0.400" in rows[-1]


def test_verdict_has_a_shape_a_color_and_a_sign():
    advice = made(GAINS, chosen=2)
    shapes, signs = {}, {}
    for row, trial in zip(rows_of(draw_forest_plot(advice, "spearman")[0]), advice.trials, strict=True):
        kind = re.search(r'overflow="visible" class="at ([\w-]+)"', row)[1]
        shapes[kind] = re.search(r'd="([^"]+)" class="mark"', row)[1]
        if trial is not advice.trials[0]:
            assert kind == trial["spearman"].verdict
            signs[kind] = re.search(r'class="gained \w+">(.)', row)[1]
    assert len(set(shapes.values())) == 4, "as it is has its own"
    assert signs == {"gain": "▲", "noise": "·", "loss": "▼"}


def test_only_the_chosen_candidate_is_marked():
    for kind, advice in KINDS.items():
        for measure in advice.measures:
            rows = rows_of(draw_forest_plot(advice, measure)[0])
            assert [i for i, row in enumerate(rows) if 'class="ring"' in row] == [advice.chosen], kind
            assert [i for i, row in enumerate(rows) if "<small>chosen</small>" in row] == [advice.chosen], kind


@pytest.mark.parametrize(
    ("gains", "words"),
    [
        ([], "No repair was tried."),
        ([0.1], "The only repair gains significantly."),
        ([0.1, 0.2], "All 2 repairs gain significantly."),
        (
            [0.1, 0.0, 0.0, -0.2],
            "Of 4 repairs, 1 gains significantly, 1 loses significantly and 2 make no significant difference.",
        ),
    ],
)
def test_verdicts_are_counted_in_words(gains, words):
    chart, caption = draw_forest_plot(made([(f"r{i}", gain) for i, gain in enumerate(gains)]), "spearman")
    assert words in caption
    assert caption in Parsed(chart).elements[0][1]["aria-label"]


@pytest.mark.parametrize(("candidates", "has_trend"), [(4, False), (5, True)])
def test_five_candidates_show_a_trend(candidates, has_trend):
    gains = [(f"r{i}", 0.1 * i) for i in range(1, candidates)]  # beside the vectors as they are
    description = build_isotropy_scatter(made(gains)).description
    assert ("more isotropic spaces mostly score higher (rank correlation 1.00)" in description) == has_trend


def test_isotropy_is_plotted_against_the_deciding_score():
    advice = made(chosen=2)
    markup = build_isotropy_scatter(advice).to_svg()
    titles = re.findall(r"<title>(.*?)</title>", markup)
    assert sorted(titles) == sorted(
        f"{trial.name}: IsoScore {trial.shape['isoscore']:.3f}, Spearman&#x27;s correlation "
        f"{trial['spearman'].value:.3f}"
        for trial in advice.trials
    )
    assert markup.count('class="at as-is"') == 1
    assert markup.count('class="ring"') == 1


@pytest.mark.parametrize(
    ("sign", "words"), [(1, "score higher"), (-1, "score lower"), (0, "All candidates score the same")]
)
def test_effect_of_isotropy_is_described(sign, words):
    chart = build_isotropy_scatter(made([(f"r{i}", sign * 0.01 * i) for i in range(1, 8)]))
    assert words in chart.description


def test_weak_effect_of_isotropy_is_described():
    gains = [("a", 0.1), ("b", -0.1), ("c", 0.1), ("d", -0.1), ("e", 0.1)]
    assert "says little" in build_isotropy_scatter(made(gains)).description


def test_isotropy_plot_is_omitted_for_one_space():
    assert build_isotropy_scatter(KINDS["alone"]) is None
    assert 'id="evenness"' not in render_advice_page(KINDS["alone"])
    unmeasured = made(isoscores=[float("nan")] * 5)
    assert build_isotropy_scatter(unmeasured) is None


def test_original_vectors_may_be_unmeasured_or_most_isotropic():
    assert "as-is" not in build_isotropy_scatter(KINDS["odd"]).to_svg()
    even = build_isotropy_scatter(made(isoscores=[0.9, 0.1, 0.2, 0.3, 0.4]))
    assert "The original vectors are the most isotropic" in even.description


# how it is kept


def test_page_is_written_atomically(tmp_path, monkeypatch):
    path = tmp_path / "advice.html"
    advice = KINDS["use"]
    advice.to_html(path)
    assert path.read_text("utf-8") == render_advice_page(advice)
    assert advice._repr_html_() == render_notebook_page(advice)
    monkeypatch.setattr("isoscope._report.advice_page.render_advice_page", lambda advice: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        advice.to_html(path)
    assert path.read_text("utf-8").startswith("<!doctype html>")
    assert list(tmp_path.iterdir()) == [path]


def test_real_advice_renders_a_page():
    rng = np.random.default_rng(0)
    topic = rng.integers(0, 4, 240)
    X = np.eye(12)[topic] + 0.3 * rng.standard_normal((240, 12))
    X[:, 9] += 40 * rng.standard_normal(240)
    advice = isoscope.advise(X, labels=topic, measure="v_measure", candidates=[isoscope.AllButTheTop(1)])
    parsed = in_order(render_advice_page(advice))
    assert "Use AllButTheTop(1): expect" in parsed.text
    assert "By adjusted V-measure (the deciding measure)" in parsed.text
    assert "silhouette" in parsed.text


# in a browser

OVERLAPS = """(() => {
  const boxes = (root, which) => [...root.querySelectorAll(which)].filter((e) => e.textContent).map((e) => {
    const range = document.createRange();
    range.selectNodeContents(e);
    return e instanceof SVGElement ? e.getBoundingClientRect() : range.getBoundingClientRect();
  });
  const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const roots = [...document.querySelectorAll('.trial')].map((row) => boxes(row, '.name, .score, .gained, .track'));
  roots.push(boxes(document, '.spot'));
  return roots.flatMap((all) => all.flatMap((a, i) => all.slice(i + 1).filter((b) => meet(a, b)))).length;
})()"""


@pytest.fixture(scope="module")
def browser():
    with Chromium(require_browser()) as running:
        yield running


@pytest.fixture
def address(advice, tmp_path) -> str:
    advice.to_html(tmp_path / "advice.html")
    return (tmp_path / "advice.html").as_uri()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_nothing_overflows_and_no_text_overlaps(browser, advice, address, dark):
    tab = browser.open(address, width=390, height=800, dark=dark)
    for width in (390, 320, 768, 1280):
        tab.resize(width, 800)
        tab.finish()
        assert tab.run("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0, width
        assert tab.run(OVERLAPS) == 0, width
        inside = "(r => r.left >= 0 && r.right <= innerWidth)(e.getBoundingClientRect())"
        assert tab.run(f"[...document.querySelectorAll('.plot text, .forest text')].every(e => {inside})"), width
    assert tab.complaints == []
    assert tab.requests == [address]
    tab.close()


def test_browser_parses_the_written_elements(browser, advice, address):
    tab = browser.open(address)
    written = [name for name, _ in Parsed(render_advice_page(advice)).elements]
    assert tab.run("[...document.querySelectorAll('*')].map(e => e.localName)") == written
    tab.close()


def test_colors_follow_the_color_scheme(browser, tmp_path):
    KINDS["use"].to_html(tmp_path / "advice.html")
    seen = []
    for dark in (False, True):
        tab = browser.open((tmp_path / "advice.html").as_uri(), dark=dark)
        kinds = ("gain", "noise", "loss")
        color = "getComputedStyle(document.querySelector('.trial .{} .mark')).fill"
        seen.append([tab.run(color.format(kind)) for kind in kinds])
        assert len(set(seen[-1])) == len(kinds)
        tab.close()
    assert not set(seen[0]) & set(seen[1])


def test_table_scrolls_within_itself_and_by_keyboard(browser, tmp_path):
    KINDS["labels"].to_html(tmp_path / "advice.html")
    tab = browser.open((tmp_path / "advice.html").as_uri(), width=390)
    assert tab.run("(s => s.scrollWidth > s.clientWidth)(document.querySelector('.scroll'))")
    tab.run("document.querySelector('.scroll').focus()")
    before = tab.run("document.querySelector('.trials th[scope=row]').getBoundingClientRect().left")
    tab.press("ArrowRight")
    tab.run("new Promise(done => setTimeout(done, 400))")
    assert tab.run("document.querySelector('.scroll').scrollLeft") > 0
    after = tab.run("document.querySelector('.trials th[scope=row]').getBoundingClientRect().left")
    assert after == before, "names stay in sight"
    tab.close()


def test_print_truncates_nothing(browser, tmp_path):
    KINDS["labels"].to_html(tmp_path / "advice.html")
    tab = browser.open((tmp_path / "advice.html").as_uri(), width=720)
    tab.send("Emulation.setEmulatedMedia", media="print")
    assert tab.run("(s => s.scrollWidth - s.clientWidth)(document.querySelector('.scroll'))") == 0
    assert tab.pdf().startswith(b"%PDF")
    tab.close()
