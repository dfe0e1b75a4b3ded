"""The page of a fine-tuning run: the task first, with a plain verdict, then the shape of the layers."""

from __future__ import annotations

import math
import re

import pytest

from isoscope._report.finetuning_page import render_finetuning_page
from isoscope._report.narrate import describe_term, finetuning_headline
from isoscope.finetuning.result import FineTuning, SeedOutcome
from isoscope.finetuning.settings import Settings
from tests.report.chromium import NAMES as BROWSERS
from tests.report.chromium import Chromium, find
from tests.report.parsed import Parsed, allows_itself_alone, in_order
from tests.training.histories import made

STEPS = (10, 20, 30)
EVIL = "</script><img src=x onerror=alert(1)>"


def settings(**more) -> Settings:
    given = dict.fromkeys(Settings.__dataclass_fields__)
    given |= {"model": "models/tiny", "task": "sst2", "measure": "accuracy", "classes": 2, "regularizer": "none"}
    given |= {"train_rows": 960, "dev_rows": 400, "epochs": 1.0, "batch_size": 32, "accumulate": 1, "every": 10}
    given |= {"learning_rate": 1e-4, "warmup": 0.1, "schedule": "cosine", "select": True, "per_class": True}
    return Settings(**given | more)


def outcome(seed, accuracy, *, graded=False, term=False, ratio=0.4, **more) -> SeedOutcome:
    """A seed whose accuracy rises to the given value."""
    part = [0.5 + (accuracy - 0.5) * step / 30 for step in STEPS]
    scores = []
    for step, a in zip(STEPS, part, strict=True):
        named = {"spearman": 2 * a - 1} if graded else {"accuracy": a, "f1": a, "matthews": 2 * a - 1}
        scores.append({"step": step, **named, "loss": 1 - a})
    losses = [{"step": step, "loss": 1.2 - a} for step, a in zip(STEPS, part, strict=True)]
    values = {"term": 0.1, "gradient_share": 0.25} | ({} if ratio is None else {"gradient_ratio": ratio})
    terms = [{"step": step, **values} for step in STEPS] if term else []
    counts = {"clouds": 60, "too_small": 45, "rows": 960, "rows_with_gradient": 240} if term else {}
    layers = [dict(row) for row in made(seed=seed, **more)]
    return SeedOutcome(seed, 30, 1.0, 0, scores, losses, layers, term_counts=counts, terms=terms)


def result(folder, accuracies, *, term=False, flat=False, ratio=0.4, **given) -> FineTuning:
    given |= {"regularizer": "persistent-entropy", "weight": 1.0} if term else {}
    more = {"isoscore_unbiased": 0.0002, "silhouette": 0.0} if flat else {}
    seeds = []
    for seed, accuracy in enumerate(accuracies):
        seeds.append(outcome(seed, accuracy, graded=given.get("classes") == 0, term=term, ratio=ratio, **more))
        history = made(seed=seed, **more)
        history.path = folder / f"seed-{seed}" / "history.parquet"
        history.save()
    baseline = {"accuracy": 0.51, "f1": 0.66, "matthews": 0.0, "spearman": 0.0}
    return FineTuning(settings(**given), tuple(seeds), folder, ("24 texts truncated to 48 tokens",), {}, baseline)


KINDS = {
    "learned": ((0.85, 0.87, 0.86), {}),
    "one seed": ((0.85,), {"term": True}),
    "not learned": ((0.5, 0.51), {}),
    "some learned": ((0.85, 0.51), {"term": True}),
    "collapsed": ((0.5,), {"flat": True}),
    "graded": ((0.8,), {"measure": "spearman", "classes": 0}),
    "markup in names": ((0.8,), {"task": EVIL, "model": EVIL}),
}


@pytest.fixture(params=KINDS)
def run(request, tmp_path):
    accuracies, more = KINDS[request.param]
    return result(tmp_path, accuracies, **more)


def test_pages_are_valid_html_with_strict_csp(run):
    text = render_finetuning_page(run)
    in_order(text)
    parsed = allows_itself_alone(text)
    assert not parsed.all("script")
    assert not parsed.all("img")
    for drawing in re.findall(r"<svg.*?</svg>", text):
        assert not re.search(r"nan|inf\b", re.sub(r">[^<]*<", "><", re.sub(r'aria-label="[^"]*"', "", drawing)))


def test_headline_is_the_verdict_on_the_task(run):
    text = render_finetuning_page(run)
    heading = Parsed(re.search(r"<h1.*?</h1>", text)[0]).text
    assert heading == finetuning_headline(run)
    assert f"{run.final[run.settings.measure]}" in heading


def test_score_and_loss_come_before_the_shape(run):
    text = render_finetuning_page(run)
    sections = re.findall(r'<section id="([a-z]+)"', text)
    assert sections[0] == "task"
    assert sections.index("space") < sections.index("profile")
    assert ("term" in sections) == (run.settings.regularizer != "none")
    task = re.search(r'<section id="task".*?</section>', text)[0]
    assert re.findall(r"<h3>(.*?)</h3>", task)[1] == "Loss by step"
    assert task.count('role="img"') == 2
    for score in run.scores:
        assert f"{run.final[score]}" in task


VERDICTS = {
    "learned": "Accuracy 0.860 ± 0.010 on the dev set of sst2, compared with 0.510 for the most common class: "
    "the model learned the task.",
    "not learned": "Accuracy 0.505 ± 0.007 on the dev set of sst2 is not above chance (0.510 for the most common "
    "class): the model has not learned the task.",
    "some learned": "Accuracy 0.680 ± 0.240 on the dev set of sst2, compared with 0.510 for the most common class: "
    "1 of 2 seeds learned the task.",
    "graded": "Spearman correlation 0.600 on the dev set of sst2, compared with 0.000 for a constant prediction: the "
    "model learned the task.",
}


@pytest.mark.parametrize("kind", VERDICTS)
def test_verdicts(kind, tmp_path):
    accuracies, more = KINDS[kind]
    assert finetuning_headline(result(tmp_path, accuracies, **more)) == VERDICTS[kind]


def test_advice_is_given_only_if_a_seed_failed(tmp_path):
    said = {
        kind: Parsed(render_finetuning_page(result(tmp_path / kind, accuracies, **more))).text
        for kind, (accuracies, more) in KINDS.items()
    }
    failed = {kind for kind, text in said.items() if "Do not compare the shape of a model" in text}
    assert failed == {"not learned", "some learned", "collapsed"}
    assert "Seed 1 failed." in said["some learned"]
    assert "smaller regularizer weight" in said["some learned"]
    assert "A layer has collapsed." in said["collapsed"]


def test_regularizer_section_names_the_rows_with_a_gradient(tmp_path):
    run = result(tmp_path, (0.85,), term=True)
    assert run.gradient_share.mean == 0.25
    first, rest = describe_term(run)[0].split("; ")
    assert first == "25% of the rows got a gradient from the regularizer"
    assert rest == "75% of the batches (or of the classes in them) were too small to use"
    section = re.search(r'<section id="term".*?</section>', render_finetuning_page(run))[0]
    assert "25% of the rows got a gradient" in section
    assert describe_term(result(tmp_path, (0.85,))) == []
    assert math.isnan(result(tmp_path, (0.85,)).gradient_share.mean)


def test_regularizer_section_names_the_ratio_of_gradients(tmp_path):
    run = result(tmp_path, (0.85, 0.86), term=True)
    assert run.gradient_ratio.values == (0.4, 0.4)
    assert describe_term(run)[1] == "the gradient of the regularizer is 0.4 times that of the task"
    section = re.search(r'<section id="term".*?</section>', render_finetuning_page(run))[0]
    assert "0.4 times that of the task." in section
    assert re.findall(r"<h3>(.*?)</h3>", section) == ["Term by step", "Gradient ratio by step"]
    assert section.count('role="img"') == 2
    strong = result(tmp_path, (0.85,), term=True, ratio=3.0)
    assert describe_term(strong)[1].endswith("3 times that of the task: it outweighs the task, so try a smaller weight")
    unknown = result(tmp_path, (0.85,), term=True, ratio=None)
    assert len(describe_term(unknown)) == 1
    section = re.search(r'<section id="term".*?</section>', render_finetuning_page(unknown))[0]
    assert re.findall(r"<h3>(.*?)</h3>", section) == ["Term by step"]


@pytest.mark.skipif(find() is None, reason=f"no browser: none of {', '.join(BROWSERS)} is on the path")
def test_pages_fit_a_phone_without_console_errors(tmp_path):
    with Chromium(find()) as browser:
        for kind in ("learned", "some learned"):
            accuracies, more = KINDS[kind]
            path = tmp_path / "page.html"
            run = result(tmp_path / kind, accuracies, **more, model="m" * 90)
            path.write_text(render_finetuning_page(run), encoding="utf-8")
            for width in (360, 1280):
                tab = browser.open(path.as_uri(), width=width, dark=width == 360)
                tab.finish()
                over = tab.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                assert (kind, width, over) == (kind, width, 0)
                assert tab.complaints == []
                tab.close()
