"""Mickus et al., Isotropy, clusters, and classifiers: IsoScore and silhouette while embeddings learn a linear task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from isoscope._core.errors import InputError
from isoscope._io.files import atomic_replace
from isoscope.embedding.embed import embed
from isoscope.studies.isotropy_clusters_classifiers.measure import OptimizationSettings, optimize
from isoscope.studies.isotropy_clusters_classifiers.outcome import make_outcome
from isoscope.studies.reading.classified import GLUE, ClassifiedTexts, read_classified, read_word_classes
from isoscope.studies.study import Arm, Parameter, Study, read_published

if TYPE_CHECKING:
    from isoscope.studies.datasets import Model
    from isoscope.studies.study import ArmContext, Outcome, Results, Setting

_WORD_TASKS = {"supersense": 2275, "pos": 11462}
"""Tasks of words, with the paper's number of them."""
_SENTENCE_TASKS = (*GLUE, "polarity", "snli")
_WITHOUT_BIAS = ("polarity",)
_COSTS = {"cola": 22, "mrpc": 10, "rte": 5, "qnli": 200, "sst2": 120, "polarity": 130, "snli": 220, "pos": 120}


class IsotropyClustersClassifiers(Study):
    """Embeddings themselves are optimised for a linear classifier; both scores after every update."""

    name = "isotropy-clusters-classifiers"
    about = (
        "The embeddings themselves, not the model, are optimized by Adam together with a linear head, on a whole data "
        "set at once. After every update IsoScore and the silhouette of the target labels are taken, and along the way "
        "the objectives of the paper's theory."
    )
    models = (
        "sentence-transformers/all-MiniLM-L6-v2",
        "sentence-transformers/all-mpnet-base-v2",
        "sentence-transformers/all-distilroberta-v1",
    )
    quick_models = ("sentence-transformers/all-MiniLM-L6-v2",)
    extra = "embed"
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "tasks": Parameter(
            ("cola", "mrpc", "rte", "polarity", "snli", "supersense", "pos"),
            ("mrpc", "rte", "polarity", "snli", "supersense"),
            "of cola, mrpc, rte, qnli, sst2, polarity, snli with each model; supersense, pos with each of word vectors",
            widens=True,
        ),
        "seeds": Parameter((0, 1, 2, 3, 4), (0, 1), "of the head's first weights", widens=True),
        "updates": Parameter(0, 120, "how many; 0 is as published: 250 for a task of GLUE, 1000 for the others"),
        "every": Parameter(1, 2, "scores are taken at every so many updates"),
        "moments": Parameter(50, 20, "at how many updates the objectives of the theory are taken"),
        "sample": Parameter(20_000, 20_000, "of more items than this so many are scored, drawn anew at each update"),
        "rows": Parameter(0, 1000, "at most so many items of a task, drawn at random; 0 takes all"),
    }

    def data_sets(self, setting: Setting) -> Sequence[str]:
        """Those of the tasks for which there is a model."""
        tasks = {task for task, _ in _task_model_pairs(setting)}
        return [each for each in _SENTENCE_TASKS if each in tasks] + (["wordnet"] if tasks & set(_WORD_TASKS) else [])

    def arms(self, setting: Setting) -> list[Arm]:
        """One for each task, model and seed; all tasks once before the next seed."""
        return [
            Arm(
                arm_key(task, model, seed),
                f"{task}, {model.name}, seed {seed}",
                partial(_run_arm, task, model, seed, setting),
                _COSTS.get(task, 10),
            )
            for seed in setting["seeds"]
            for task, model in _task_model_pairs(setting)
        ]

    def outcome(self, setting: Setting, results: Results) -> Outcome:
        """Correlations, sizes, objectives; figures 2, 3 and 4; ten claims."""
        runs = {}
        for task, model in _task_model_pairs(setting):
            keys = [arm_key(task, model, seed) for seed in setting["seeds"]]
            done = [results[key] for key in keys if key in results]
            if done:
                runs[task, model.name] = done
        return make_outcome(self.published, setting, runs, _notes(setting))


def arm_key(task: str, model: Model, seed: int) -> str:
    """What an arm is kept under."""
    return f"{task}/{model.name}/seed-{seed}"


def published_updates(task: str) -> int:
    """How long the paper optimises: its first four tasks longer than those of GLUE."""
    return 250 if task in GLUE else 1000


def _task_model_pairs(setting: Setting) -> list[tuple[str, Model]]:
    """Each task with each model that can do it; an `InputError` if there is no model for any."""
    tasks, known = setting["tasks"], (*_SENTENCE_TASKS, *_WORD_TASKS)
    for task in tasks:
        if task not in known:
            raise InputError(f"tasks has {task}: need some of {', '.join(known)}")
    for name, least in (("updates", 0), ("every", 1), ("moments", 1), ("sample", 10), ("rows", 0)):
        if setting[name] < least:
            raise InputError(f"{name} is {setting[name]}: need {least} at least")
    found = [
        (task, model) for task in tasks for model in setting.models if _is_word_vectors(model) == (task in _WORD_TASKS)
    ]
    if tasks and not found:
        words = [task for task in tasks if task in _WORD_TASKS]
        raise InputError(
            f"{', '.join(words)} needs word vectors: name them with --model, a file of GloVe, word2vec or fastText, or "
            f"a folder with vectors.npy and words.txt"
            if words
            else f"{setting.models[0].place} holds word vectors, and {', '.join(tasks)} needs a model for sentences"
        )
    if setting.data.folder is None and any(task in _WORD_TASKS for task, _ in found):
        raise InputError(f"{found[0][0]} reads WordNet from a file: name the folder of wordnet30 with --data")
    return found


def _is_word_vectors(model: Model) -> bool:
    place = Path(model.place)
    return place.is_file() or (place / "vectors.npy").is_file()


def _has_no_pooling(model: Model) -> bool:
    """Whether it is a folder of a model that does not say how it makes one vector of a text."""
    return Path(model.place).is_dir() and not (Path(model.place) / "modules.json").is_file()


def _notes(setting: Setting) -> list[str]:
    left_out = [task for task in setting["tasks"] if task not in {done for done, _ in _task_model_pairs(setting)}]
    told = read_published("isotropy-clusters-classifiers")
    lacking = [task for key in ("correlations", "glue") for task in told.rows(key) if task not in setting["tasks"]]
    words = [model.name for model in setting.models if _is_word_vectors(model)]
    plain = [model.name for model in setting.models if _has_no_pooling(model) and not _is_word_vectors(model)]
    shorter = setting["updates"] and any(setting["updates"] != published_updates(task) for task in setting["tasks"])
    return [
        *([f"{', '.join(left_out)}: not run, since no model for it was named."] if left_out else []),
        *(
            [f"Of the paper's tasks {', '.join(lacking)} were not asked for{_format_unsupported(lacking)}."]
            if lacking
            else []
        ),
        *([f"{setting['updates']} updates; the paper has 250 for GLUE and 1000 for the others."] if shorter else []),
        *([f"At most {setting['rows']} items of each task; the paper takes all."] if setting["rows"] else []),
        *([f"Scores at every {setting['every']} updates; the paper's at each."] if setting["every"] > 1 else []),
        *(
            [
                f"Words: {', '.join(words)} in place of word2vec trained on Wikipedia, and WordNet's most often tagged "
                f"words with all their supersenses or parts of speech, as many as the paper has, in place of its lists."
            ]
            if words
            else []
        ),
        *([f"{', '.join(plain)}: the mean of the last layer, as it is no sentence encoder."] if plain else []),
        "Updates and scores in float32 (sums in float64), which is within 1e-5 of float64; objectives in float64.",
        "Correlations are of each seed's two series, then averaged. IsoScore and O_I are of the unpaired vectors, each "
        "once; silhouette, O_S, O_C and O_T of what is classified, two vectors side by side for a pair.",
        "O_C leaves out the head's bias, as the paper's formula does. Where an item has several classes there is no "
        "O_C, and items with the same classes are one cluster.",
    ]


def _format_unsupported(tasks: Sequence[str]) -> str:
    unread = [task for task in tasks if task not in (*_SENTENCE_TASKS, *_WORD_TASKS)]
    return f" ({', '.join(unread)} cannot be: this study does not read them)" if unread else ""


def _run_arm(task: str, model: Model, seed: int, setting: Setting, bench: ArmContext) -> dict[str, Any]:
    vectors, data = _embed_task(task, model, setting, bench)
    recipe = OptimizationSettings(
        setting["updates"] or published_updates(task),
        setting["every"],
        setting["moments"],
        setting["sample"],
        task not in _WITHOUT_BIAS,
        seed,
    )
    return optimize(vectors, data, recipe, bench.tell)


def _embed_task(task: str, model: Model, setting: Setting, bench: ArmContext) -> tuple[np.ndarray, ClassifiedTexts]:
    """A task's items and the vectors of its texts, which are made once and kept for the other seeds."""
    data = (read_word_classes if task in _WORD_TASKS else read_classified)(task, setting.data).part(
        0 if task in _WORD_TASKS else setting["rows"]
    )
    kept = bench.shared / f"{task}-{model.name}.npz"
    if not kept.exists():
        bench.tell(0.0, "embedding")
        store = embed(
            model.place,
            data.texts,
            bench.folder / "vectors",
            pool="mean" if task in _WORD_TASKS or _has_no_pooling(model) else "sentence-transformers",
            layers=-1,
            say=_ignore_message if task in _WORD_TASKS else None,  # a word without a vector is not taken
            labels=range(len(data.texts)),
            progress=lambda stage, done, share, note="": bench.tell(0.0, f"embedding {share:.0%}"),
        )
        most = min(_WORD_TASKS.get(task, len(store)), len(store))
        documents, vectors = np.asarray(store.labels, np.int64)[:most], store.take(np.arange(most))
        with atomic_replace(kept) as path, path.open("wb") as file:
            np.savez(file, documents=documents, vectors=vectors)
    with np.load(kept) as file:
        documents, vectors = file["documents"], file["vectors"]
    if task in _WORD_TASKS:
        most = min(_WORD_TASKS[task], setting["rows"] or _WORD_TASKS[task])
        return _select_known_words(task, data, documents[:most], vectors[:most])
    if len(documents) != len(data.texts):
        raise InputError(f"{model.place} reads no token in {len(data.texts) - len(documents)} of {task}'s texts")
    return vectors, data


def _ignore_message(words: str) -> None:
    """Say nothing."""


def _select_known_words(
    task: str, data: ClassifiedTexts, documents: np.ndarray, vectors: np.ndarray
) -> tuple[np.ndarray, ClassifiedTexts]:
    if len(documents) < 3:
        raise InputError(f"{len(documents)} words of {task} have a vector: need 3 at least; are they English ones?")
    words = [data.texts[i] for i in documents]
    return vectors, ClassifiedTexts(words, np.arange(len(words))[:, None], data.targets[documents], data.classes)
