import json
import pickle
import re
import sys
from functools import cache

import numpy as np
import pytest

import isoscope
from isoscope import _render
from isoscope.errors import MissingExtra, ParameterError
from tests.report.chromium import Chromium, require_browser
from tests.report.parsed import Parsed

widget = pytest.importorskip("isoscope._report.widget")

RNG = np.random.default_rng(0)
CLOUD = RNG.standard_normal((120, 6)) + np.repeat(RNG.standard_normal((3, 6)) * 5, 40, axis=0)
KINDS = np.repeat(["first", "second", "third"], 40)


@pytest.fixture(scope="module")
def found():
    return isoscope.audit(CLOUD, labels=KINDS, ids=np.arange(120) + 1000)


MAKERS = {
    "audit": lambda: isoscope.audit(CLOUD),
    "comparison": lambda: isoscope.audit(CLOUD, CLOUD[::-1] + 1),
    "groups": lambda: isoscope.audit(np.vstack([CLOUD] * 2), by=np.repeat(["a", "b"], 120)),
    "advice": lambda: isoscope.advise(CLOUD, labels=KINDS, candidates=[isoscope.Center()]),
    "threshold": lambda: isoscope.threshold(CLOUD, labels=KINDS),
    "sameness": lambda: isoscope.same(CLOUD, CLOUD * 2, pair="rows"),
    "compression": lambda: isoscope.compress(CLOUD, precisions=["float16"]),
    "store": lambda: isoscope.open_store(CLOUD, labels=KINDS),
}


@cache
def make(kind):
    return MAKERS[kind]()


@pytest.mark.parametrize("kind", MAKERS)
def test_page_is_the_content_of_the_widget(kind):
    result = make(kind)
    content, style = result.widget._content, result.widget._style
    assert Parsed(content).all("main")
    assert Parsed(content).all("h1")
    assert not re.search(r"<(script(?! type=\"application/json\")|style|meta|body|footer)", content)
    assert not re.search(r"(?<![\w.-])(:root|html|body)\b", re.sub(r"/\*.*?\*/", "", style))
    assert "prefers-color-scheme" not in style
    assert "@media (max-width" not in style
    assert ":host(.dark) {" in style
    assert result.widget is result.widget
    assert result.__getstate__().keys() == result.__dict__.keys() - {"_widget", "_sampled"}


@pytest.mark.parametrize("kind", MAKERS)
def test_notebook_output_without_widgets_needs_no_scripts(kind):
    result = make(kind)
    content = result._repr_mimebundle_()
    assert content["text/plain"] == repr(result)
    assert "\n" not in repr(result)
    parsed = Parsed(content["text/html"])
    assert not parsed.all("script")
    assert not parsed.all("style")
    assert not parsed.foreign_images()
    assert all(each["alt"] for each in parsed.all("img"))
    for drawing in parsed.drawings():  # the same light colors on every screen
        assert "prefers-color-scheme" not in "".join(drawing.itertext())


def test_selection_is_a_list_of_row_numbers(found):
    found.widget.selected = np.array([14, 3, 14])
    assert found.widget.selected == [3, 14]
    assert found.widget.selected_ids == [1003, 1014]
    assert pickle.loads(pickle.dumps(found)).widget.selected == []


def test_ids_of_a_source_without_ids():
    result = isoscope.audit(CLOUD)
    result.widget.selected = [0]
    with pytest.raises(ParameterError, match=r"array has no ids.*ids="):
        _ = result.widget.selected_ids


def test_ids_of_groups_are_those_of_the_source():
    by = np.tile(["a", "b"], 60)
    grouped = isoscope.audit(CLOUD, by=by, ids=np.arange(120) + 1000)
    rows = np.flatnonzero(by == "b")
    drawn = grouped["b"].pictures
    np.testing.assert_array_equal(drawn.rows, rows)
    np.testing.assert_array_equal(drawn.ids, rows + 1000)
    grouped.widget.selected = [0, 1]
    assert grouped.widget.selected_ids == [1000, 1001]


def test_only_clouds_of_the_same_rows_are_linked():
    assert isoscope.audit(CLOUD, CLOUD + 1).widget._linked
    assert not isoscope.audit(CLOUD, CLOUD[:100]).widget._linked


def test_a_jupyter_kernel_gets_the_widget_and_a_fallback(found, monkeypatch):
    monkeypatch.setattr(_render, "find_front_end", lambda: "jupyter")
    content, _ = found._repr_mimebundle_()
    assert content["application/vnd.jupyter.widget-view+json"]["model_id"] == found.widget.model_id
    assert content["text/plain"] == repr(found)
    assert content["text/html"] == found._repr_html_()
    assert found._display_() is found.widget


def test_without_anywidget_there_is_the_fallback(monkeypatch):
    result = isoscope.audit(CLOUD)
    monkeypatch.setitem(sys.modules, "anywidget", None)
    monkeypatch.delitem(sys.modules, "isoscope._report.widget")
    monkeypatch.setattr(_render, "find_front_end", lambda: "jupyter")
    assert set(result._repr_mimebundle_()) == {"text/plain", "text/html"}
    assert result._display_()._repr_html_() == result._repr_html_()
    with pytest.raises(MissingExtra, match=r"anywidget: pip install \"isoscope\[notebook\]\""):
        _ = result.widget


@pytest.mark.parametrize(
    ("rows", "drawn"),
    [(np.ones((2, 3)), False), (np.ones((4, 3)), True), (np.full((5, 3), np.nan), False)],
    ids=["few", "equal", "missing"],
)
def test_every_store_can_be_shown(rows, drawn):
    store = isoscope.open_store(rows)
    assert bool(Parsed(store._repr_html_()).all("img")) is drawn
    assert store.widget._content.count("data-cloud") == drawn


def test_large_store_is_not_read(monkeypatch):
    store = isoscope.open_store(np.broadcast_to(np.float32(1), (10**6, 100)))
    monkeypatch.setattr(store, "batches", lambda **_: pytest.fail("the store was read"))
    assert "1,000,000 vectors of 100 dimensions" in Parsed(store._repr_html_()).text


# in a browser

PAGE = """<!doctype html><meta charset="utf-8"><body style="background: white; color: black">
<p class="hint">notebook</p>
<script>
  const wanted = %s;
  for (const _ of wanted.states) document.body.append(document.createElement("article"));
  const makeModel = (state) => {
    const listeners = {};
    return {
      state,
      saved: 0,
      get: (name) => state[name],
      set(name, value) { state[name] = value; (listeners[`change:${name}`] || []).forEach((each) => each()); },
      save_changes() { this.saved += 1; },
      on(name, act) { (listeners[name] ||= []).push(act); },
      off(name, act) { listeners[name] = (listeners[name] || []).filter((each) => each !== act); },
    };
  };
  const ready = import(URL.createObjectURL(new Blob([wanted.module], { type: "text/javascript" }))).then((module) => {
    window.models = wanted.states.map(makeModel);
    const cells = document.querySelectorAll("article");
    window.ends = models.map((model, i) => module.default.render({ model, el: cells[i] }));
    window.roots = [...document.querySelectorAll("article > *")].map((host) => host.shadowRoot);
  });
</script>"""

STATE = ("_content", "_style", "_open", "_linked", "_sources", "selected", "pinned", "clicked", "source")


@pytest.fixture(scope="module")
def browser():
    with Chromium(require_browser()) as running:
        yield running


@pytest.fixture
def show(browser, tmp_path):
    """Show results as widgets in one page; at the end, check that no error was logged."""
    tabs = []

    def open_widgets(*results):
        states = [{name: getattr(each.widget, name) for name in STATE} for each in results]
        content = json.dumps({"module": widget.PageWidget._esm, "states": states}).replace("<", "\\u003c")
        path = tmp_path / "notebook.html"
        path.write_text(PAGE % content, encoding="utf-8")
        tabs.append(browser.open(path.as_uri()))
        tabs[-1].run("ready.then(() => 1)")
        tabs[-1].finish()
        return tabs[-1]

    yield open_widgets
    for tab in tabs:
        assert tab.complaints == []
        tab.close()


def lasso(tab, index=0):
    """Drag a lasso around the whole cloud of a widget."""
    tab.run(f"roots[{index}].querySelector('[data-lasso]').click()")
    tab.run(f"roots[{index}].querySelector('canvas').scrollIntoView({{block: 'center'}})")
    box = f"(r => [r.left, r.top, r.width, r.height])(roots[{index}].querySelector('canvas').getBoundingClientRect())"
    left, top, width, height = tab.run(box)
    corners = [(0.02, 0.02), (0.98, 0.02), (0.98, 0.98), (0.02, 0.98)]
    at = [(left + x * width, top + y * height) for x, y in corners]
    tab.mouse("mouseMoved", *at[0])
    tab.mouse("mousePressed", *at[0], button="left", buttons=1, clickCount=1)
    for each in at[1:]:
        tab.mouse("mouseMoved", *each, button="left", buttons=1)
    tab.mouse("mouseReleased", *at[-1], button="left", clickCount=1)
    tab.finish()


def test_lasso_and_keys_reach_the_model(show):
    tab = show(isoscope.audit(CLOUD, labels=KINDS))
    lasso(tab)
    assert tab.run("models[0].state.selected") == list(range(120))
    assert tab.run("models[0].saved") > 0
    tab.run("roots[0].querySelector('[aria-label=\"Clear the selection\"]').click()")
    assert tab.run("models[0].state.selected") == []
    tab.run("roots[0].querySelector('canvas').focus()")
    tab.press("n")
    tab.press("s")
    tab.press("Enter")
    chosen = tab.run("models[0].state.selected")
    assert len(chosen) == 1
    assert tab.run("models[0].state.clicked") == chosen[0]
    tab.run("[...roots[0].querySelectorAll('[data-picked] button')].find(b => b.textContent === 'Pin').click()")
    assert tab.run("models[0].state.pinned") == chosen


def test_selection_in_python_appears_in_the_cloud(show):
    tab = show(isoscope.audit(CLOUD))
    tab.run("models[0].set('selected', [3, 7])")
    assert tab.run("roots[0].querySelector('[data-selection] b').textContent") == "2 points selected"
    assert tab.run("roots[0].querySelector('textarea').value") == "3\n7\n"


def test_a_selection_appears_in_every_cloud_of_the_same_rows(show):
    tab = show(isoscope.audit(CLOUD, CLOUD + 1))
    lasso(tab)
    said = "[...roots[0].querySelectorAll('[data-selection]')].map(each => each.hidden)"
    assert tab.run(said) == [False, False]
    other = show(isoscope.audit(CLOUD, CLOUD[:100]))
    lasso(other)
    assert other.run(said) == [False, True]
    assert other.run("models[0].state.source") == "A: array"


def test_two_widgets_do_not_disturb_each_other_or_the_notebook(show, found):
    tab = show(isoscope.audit(CLOUD), found)
    lasso(tab, 1)
    assert tab.run("models[0].state.selected") == []
    assert len(tab.run("models[1].state.selected")) == 120
    assert tab.run("document.getElementById('pictures')") is None
    assert tab.run("getComputedStyle(document.querySelector('p.hint')).color") == "rgb(0, 0, 0)"
    assert tab.run("window.isoscope") is None


def test_theme_follows_the_notebook(show):
    tab = show(isoscope.audit(CLOUD))
    paper = "getComputedStyle(roots[0].querySelector('.page')).backgroundColor"
    assert tab.run(paper) == "rgb(251, 250, 247)"
    tab.run("document.body.setAttribute('style', 'background: black; color: white')")
    tab.run("new Promise((done) => setTimeout(done, 50))")
    tab.finish()
    assert tab.run(paper) == "rgb(19, 20, 22)"


def test_sections_fold_and_links_open_them(show):
    tab = show(isoscope.audit(CLOUD + 9))
    assert tab.run("roots[0].querySelector('main > section').id") == "pictures"
    assert tab.run("[...roots[0].querySelectorAll('.folded > summary')].every(each => each.innerText.trim())")
    assert not tab.run("roots[0].querySelector('#findings .folded').open")
    tab.run("roots[0].querySelector('.tally a').click()")
    assert tab.run("roots[0].querySelector('#findings .folded').open")
    assert tab.run("location.hash") == ""


def test_a_removed_widget_stops_listening(show):
    tab = show(isoscope.audit(CLOUD))
    tab.run("ends[0]()")
    tab.run("models[0].set('selected', [3, 7])")
    assert tab.run("roots[0].querySelector('[data-selection]').hidden")


@pytest.mark.parametrize("width", [600, 1200])
def test_page_fits_the_cell(show, width):
    tab = show(*map(make, MAKERS))
    tab.resize(width)
    tab.finish()
    assert tab.run("document.documentElement.scrollWidth") <= width
