"""Summarize the JSON of a command in three sentences, and name the next command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isoscope._core.errors import plural
from isoscope._report.narrate import is_label_free_measure, join_words
from isoscope.advising.task import PLURALS
from isoscope.auditing.audit import Audit
from isoscope.stores.databases.address import redact_source_name

if TYPE_CHECKING:
    from isoscope.auditing.finding import Finding

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_TASK_OPTIONS = ("pairs", "queries", "qrels", "labels", "query_ids", "ids", "layer")
_SHAPE_ONLY = (
    "An audit describes the shape of the space; only a task (advise with pairs, queries or labels) tells whether a "
    "repair helps."
)


@dataclass(frozen=True)
class Summary:
    """A result in three sentences, and the command to run next."""

    found: str
    """The answer."""
    basis: str
    """What the answer is based on, and how certain it is."""
    limits: str
    """What the result does not show."""
    next: str
    """A command line; it contains no secrets."""

    @property
    def sentences(self) -> list[str]:
        """The three sentences: the answer, its basis and its limits."""
        return [self.found, self.basis, self.limits]


def summarize(content: Mapping[str, Any], arguments: Mapping[str, Any]) -> Summary:
    """Return the summary of a command's JSON, given the arguments of the command by name.

    >>> content = {"schema": "isoscope.similarity/1", "of": {"source": "a.npy"}, "notes": []}
    >>> content["cosines"] = [{"sentence": "0.8 is above 99% of the pairs in a.npy"}]
    >>> summarize(content, {"source": "a.npy"}).next
    'isoscope threshold a.npy'
    """
    given = {name: _redact(value) for name, value in arguments.items() if value not in (None, False, [], "")}
    return _SUMMARIES[content["schema"]](content, given)


def _redact(value: Any) -> Any:
    if isinstance(value, list):
        return [_redact(each) for each in value]
    return redact_source_name(value) if isinstance(value, str) else value


def _command(name: str, *words: str, **options: Any) -> str:
    """Return a command line, quoted for the shell."""
    parts = ["isoscope", name, *(f"./{word}" if word.startswith("-") else word for word in words)]
    for option, value in options.items():
        flag = f"--{option.replace('_', '-')}"
        parts += [flag] if value is True else [flag, str(value)]
    return shlex.join(parts)


def _pick(given: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: given[name] for name in names if name in given}


def _basis_from(content: Mapping[str, Any]) -> str:
    """Return the sentence of the paragraph, after the headline, that contains most digits: the measured evidence."""
    sentences = _SENTENCE_END.split(content["paragraph"].removeprefix(content["headline"]).strip())
    return max(sentences, key=lambda sentence: sum(mark.isdigit() for mark in sentence))


# audits


def _describe_finding(finding: Finding) -> str:
    interval = f" (95% interval {finding.interval})" if finding.interval else ""
    rows = f"{'a sample of ' if finding.sampled else ''}{plural(finding.rows, 'row')}"
    return f"{finding.title} is {finding.shown}{interval}, {finding.range}; measured on {rows}"


def _count_verdicts(findings: Sequence[Finding]) -> str:
    bad, look = (sum(finding.verdict == verdict for finding in findings) for verdict in ("bad", "look"))
    return f"{plural(len(findings), 'finding')}, {bad} bad and {look} worth a look"


def _summarize_audit(content: Mapping[str, Any], given: Mapping[str, Any]) -> Summary:
    audit = Audit.from_dict({**content}, "the result")
    worst = audit.findings[0] if audit.findings else None
    counts = _count_verdicts(audit.findings)
    basis = f"{counts}; the first one: {_describe_finding(worst)}." if worst else f"{counts}."
    found = audit.headline
    worse = [change["name"] for change in content.get("changes", []) if change["direction"] == "worse"]
    if "changes" in content:
        changed = "no finding is worse than in the baseline"
        if worse:
            changed = f"worse than in the baseline: {join_words(worse)}"
        found = f"{found.rstrip('.')}; {changed}."
    (source,) = given["sources"]
    if audit.verdict == "ok" and not worse:
        return Summary(found, basis, _SHAPE_ONLY, _command("audit", source, json="baseline.json"))
    options = _pick(given, ("queries", "layer"))
    return Summary(found, basis, _SHAPE_ONLY, _command("advise", source, **options))


def _summarize_groups(content: Mapping[str, Any], given: Mapping[str, Any]) -> Summary:
    groups = content["groups"]
    bad = [group["name"] for group in groups if group["audit"]["verdict"] == "bad"]
    shown = join_words([str(name) for name in bad[:5]]) + (" and others" if len(bad) > 5 else "")
    found = f"{len(bad)} of {len(groups)} groups by {content['by']} have a bad finding"
    found += f": {shown}." if bad else "."
    counts: dict[str, int] = {}
    for finding in (finding for group in groups for finding in group["audit"]["findings"]):
        counts[finding["name"]] = counts.get(finding["name"], 0) + (finding["verdict"] == "bad")
    name, most = max(counts.items(), key=lambda item: item[1], default=("", 0))
    often = f"; the most frequent bad finding is {name}, in {plural(most, 'group')}" if most else ""
    skipped = f"; {plural(len(content['skipped']), 'group')} could not be measured" if content["skipped"] else ""
    basis = f"Each group was measured separately{often}{skipped}."
    source, *others = given["sources"]
    if content["by"] == "layer":
        return Summary(found, basis, _SHAPE_ONLY, _command("advise", source, layer=-1))
    return Summary(
        found, basis, _SHAPE_ONLY, _command("same", source, *others) if others else _command("audit", source)
    )


def _summarize_comparison(content: Mapping[str, Any], given: Mapping[str, Any]) -> Summary:
    audits = content["audits"]
    names = [each["source"]["name"] if isinstance(each["source"], dict) else each["source"] for each in audits]
    found = "Verdicts: " + join_words(
        [f"{name} is {each['verdict']}" for name, each in zip(names, audits, strict=True)]
    )
    agreement = content.get("agreement")
    shares = agreement if isinstance(agreement, list) else [agreement]
    shared = [
        f"{10 * share:.1f} of 10 nearest neighbors with {name}"
        for name, share in zip(names[1:], shares, strict=False)
        if share is not None
    ]
    basis = (
        f"{names[0]} shares on average {join_words(shared)}."
        if shared
        else "The sources do not have the same rows, so their neighbors were not compared."
    )
    limits = "A source with a better shape is not better at a task; compare them with advise and the same judgments."
    return Summary(f"{found}.", basis, limits, _command("same", *given["sources"][:2]))


# tasks


def _summarize_advice(content: Mapping[str, Any], given: Mapping[str, Any]) -> Summary:
    task, source = content["task"], given["source"]
    is_label_free = is_label_free_measure(task["measure"])
    if is_label_free:
        limits = "Without pairs, queries or labels this evidence is weak: it does not show that search gets better."
    else:
        listed = join_words(list(task["measures"].values()))
        examples = f"{task['examples']:,} {PLURALS[task['example']]}"
        limits = f"It holds for {listed} on {examples} like these, and not for other tasks or models."
    options = _pick(given, (*_TASK_OPTIONS, "measure", "metric"))
    if is_label_free:
        following = _command("advise", source, **options, pairs="PAIRS")
    elif content["choice"] == content["trials"][0]["name"]:
        task_options = _pick(given, _TASK_OPTIONS)
        following = _command("threshold", source, **task_options)
    elif "output" in given:
        options = _pick(given, ("ids", "layer"))
        following = _command("apply", given["output"], source, output="repaired.parquet", **options)
    else:
        following = _command("advise", source, **options, output="repair")
    return Summary(content["headline"], _basis_from(content), limits, following)


def _summarize_threshold(content: Mapping[str, Any], given: Mapping[str, Any]) -> Summary:
    source, cut = given["source"], content["cut"]
    if content["population"]["matches"] is None:
        limits = "It is a rate among random pairs: without judged pairs, precision and recall are unknown."
    else:
        limits = "It holds for pairs like the judged ones; a changed model or corpus needs a new threshold."
    if cut is None:
        following = _command("advise", source, **_pick(given, _TASK_OPTIONS))
    else:
        following = _command("similarity", source, f"{cut:.6g}", **_pick(given, ("queries", "layer")))
    return Summary(content["headline"], _basis_from(content), limits, following)


def _summarize_same(content: Mapping[str, Any], given: Mapping[str, Any]) -> Summary:
    limits = {
        "pairs": f"Only the {content['compared']:,} matched rows were compared.",
        "rows": "Tests on unmatched rows cannot tell a changed model from changed content.",
        "sketches": "Sketches contain moments only; rows with the same ids would give a stronger answer.",
        "dimensions": "The vectors were not compared, because they have different numbers of dimensions.",
        "within": "A small group of rows from a similar model can go unnoticed.",
    }[content["evidence"]]
    basis = _basis_from(content) or f"{content['compared']:,} rows were compared."
    sources = given["sources"]
    if content["answer"] == "same":
        following = _command("canary", sources[-1], output="canary.parquet")
    elif content["evidence"] == "within":
        following = _command("same", sources[0], within=True, json="mixed.json")
    elif content["evidence"] == "dimensions":
        following = _command("audit", sources[-1])
    else:
        following = _command("audit", *sources)
    return Summary(content["headline"], basis, limits, following)


def _summarize_compression(content: Mapping[str, Any], given: Mapping[str, Any]) -> Summary:
    source, options = given["source"], _pick(given, (*_TASK_OPTIONS, "measure", "metric", "keep", "rescore"))
    limits = "Exact search was measured; the index of a database loses some more, so test it there before you switch."
    if content["choice"] is None:
        wider = {"rescore": True} if "rescore" not in given else {"keep": round(0.95 * given.get("keep", 0.99), 3)}
        following = _command("compress", source, **{**options, **wider})
    elif "output" in given:
        options = _pick(given, ("ids", "layer"))
        following = _command("apply", given["output"], source, output="compressed.parquet", **options)
    else:
        following = _command("compress", source, **options, output="quantizer")
    return Summary(content["headline"], _basis_from(content), limits, following)


def _summarize_similarity(content: Mapping[str, Any], given: Mapping[str, Any]) -> Summary:
    found = "; ".join(each["sentence"] for each in content["cosines"])
    of = content["of"]
    if "model" in of:
        basis = content["notes"][0]
        following = _command("threshold", "VECTORS")
    else:
        where = (
            f"queries in {of['queries']} and rows in {of['source']}" if "queries" in of else f"rows in {of['source']}"
        )
        basis = f"The cosine was ranked among pairs of {where}."
        following = _command("threshold", given["source"], **_pick(given, ("queries", "layer")))
    limits = "A percentile tells how rare a cosine is, but not whether two texts mean the same."
    return Summary(f"{found}.", basis, limits, following)


# repairs


def _summarize_fit(content: Mapping[str, Any], given: Mapping[str, Any]) -> Summary:
    source = content["source"]
    return Summary(
        f"{content['repair']} was fitted and saved in {content['folder']}.",
        f"It was fitted to {source['rows']:,} vectors of {source['dimensions']:,} dimensions from {source['name']}.",
        "Nothing was tested: advise tells whether this repair helps a task.",
        _command("apply", content["folder"], given["source"], output="repaired.parquet", **_pick(given, ("layer",))),
    )


def _summarize_apply(content: Mapping[str, Any], given: Mapping[str, Any]) -> Summary:
    dropped = content["source"]["rows"] - content["rows"]
    return Summary(
        f"{content['rows']:,} repaired vectors were written to {content['output']}.",
        f"{content['repair']} was applied to {content['source']['name']}; {plural(dropped, 'row')} were dropped.",
        "Queries need the same repair before they search these vectors, and the effect on a task was not measured.",
        _command("audit", given["source"], content["output"]),
    )


_SUMMARIES: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Summary]] = {
    "isoscope.audit/1": _summarize_audit,
    "isoscope.grouped-audit/1": _summarize_groups,
    "isoscope.comparison/1": _summarize_comparison,
    "isoscope.advice/2": _summarize_advice,
    "isoscope.threshold/1": _summarize_threshold,
    "isoscope.same/1": _summarize_same,
    "isoscope.compress/1": _summarize_compression,
    "isoscope.similarity/1": _summarize_similarity,
    "isoscope.fit/1": _summarize_fit,
    "isoscope.apply/1": _summarize_apply,
}
"""The function that summarizes each kind of result."""
