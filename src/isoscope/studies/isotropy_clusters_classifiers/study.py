"""The study of "Isotropy, clusters, and classifiers" (Mickus et al., 2024): the isotropy of optimized embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from isoscope._core.errors import MissingValueError, ParameterError, TooFewRowsError
from isoscope.stores.open import open_store
from isoscope.studies.datasets.classified import GLUE, ClassifiedTexts, read_classified, read_word_classes
from isoscope.studies.isotropy_clusters_classifiers.measure import OptimizationSettings, optimize
from isoscope.studies.isotropy_clusters_classifiers.outcome import make_outcome
from isoscope.studies.states import embed_once
from isoscope.studies.study import Arm, Parameter, Study, read_published

if TYPE_CHECKING:
    from isoscope.studies.models import Model
    from isoscope.studies.study import ArmContext, Outcome, Results, Setting

_WORD_TASKS = {"supersense": 2275, "pos": 11462}
"""The word tasks, and the paper's number of words in each."""
_SENTENCE_TASKS = (*GLUE, "polarity", "snli")
_TASKS = (*_SENTENCE_TASKS, *_WORD_TASKS)
_WITHOUT_BIAS = ("polarity",)
_COSTS = {"cola": 22, "mrpc": 10, "rte": 5, "qnli": 200, "sst2": 120, "polarity": 130, "snli": 220, "pos": 120}


class IsotropyClustersClassifiers(Study):
    """A study of IsoScore and silhouette while embeddings are optimized for a linear classifier."""

    name = "isotropy-clusters-classifiers"
    about = (
        "Adam optimizes the embeddings themselves (not the model) together with a linear head. Each update uses all "
        "items of a dataset. IsoScore and the silhouette of the target labels are measured after every update. The "
        "objectives from the paper's theory are measured after some of the updates."
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
            "cola, mrpc, rte, qnli, sst2, polarity, snli for sentence models; supersense, pos for word vectors",
            widens=True,
            choices=_TASKS,
        ),
        "seeds": Parameter((0, 1, 2, 3, 4), (0, 1), "seeds for the initial weights of the head", widens=True),
        "updates": Parameter(
            0, 120, "number of updates; 0 means as published (250 for GLUE tasks, 1000 for others)", least=0
        ),
        "every": Parameter(1, 2, "number of updates between two measurements of the scores", least=1),
        "moments": Parameter(50, 20, "number of updates at which the objectives are measured", least=1),
        "sample": Parameter(
            20_000, 20_000, "maximum number of items to score; resampled for each measurement", least=10
        ),
        "rows": Parameter(0, 1000, "maximum number of items per task, sampled at random; 0 means all", least=0),
    }

    def data_sets(self, setting: Setting) -> Sequence[str]:
        """Return the datasets of the tasks that have a suitable model."""
        tasks = {task for task, _ in _task_model_pairs(setting)}
        return [each for each in _SENTENCE_TASKS if each in tasks] + (["wordnet"] if tasks & set(_WORD_TASKS) else [])

    def arms(self, setting: Setting) -> list[Arm]:
        """Return an arm for each task, model and seed; all tasks of a seed come before the next seed."""
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
        """Return tables of correlations, objectives and sizes, figures 2 to 4, and the verdicts on ten claims."""
        runs = {}
        for task, model in _task_model_pairs(setting):
            keys = [arm_key(task, model, seed) for seed in setting["seeds"]]
            done = [results[key] for key in keys if key in results]
            if done:
                runs[task, model.name] = done
        return make_outcome(self.published, setting, runs, _notes(setting))


def arm_key(task: str, model: Model, seed: int) -> str:
    """Return the key of an arm."""
    return f"{task}/{model.name}/seed-{seed}"


def published_updates(task: str) -> int:
    """Return the paper's number of updates: 250 for GLUE tasks, 1000 for the others."""
    return 250 if task in GLUE else 1000


def _task_model_pairs(setting: Setting) -> list[tuple[str, Model]]:
    """Return each task with each suitable model; raise an `InputError` if no model is suitable for any task."""
    tasks = setting["tasks"]
    pairs = [
        (task, model) for task in tasks for model in setting.models if model.holds_word_vectors == (task in _WORD_TASKS)
    ]
    if tasks and not pairs:
        words = [task for task in tasks if task in _WORD_TASKS]
        raise ParameterError(
            f"{', '.join(words)} needs word vectors; use --model to pass a GloVe, word2vec or fastText file, or a "
            "folder with vectors.npy and words.txt"
            if words
            else f"{setting.models[0].place} contains word vectors, but {', '.join(tasks)} needs a sentence model; "
            "pass one with --model"
        )
    if setting.data.folder is None and any(task in _WORD_TASKS for task, _ in pairs):
        raise ParameterError(
            f"{pairs[0][0]} reads WordNet from a file; use --data to pass the folder that contains wordnet30"
        )
    return pairs


def _has_no_pooling(model: Model) -> bool:
    """Return whether a local model is a plain transformer, without a sentence encoder's pooling."""
    return Path(model.place).is_dir() and not (Path(model.place) / "modules.json").is_file()


def _notes(setting: Setting) -> list[str]:
    left_out = [task for task in setting["tasks"] if task not in {done for done, _ in _task_model_pairs(setting)}]
    published = read_published("isotropy-clusters-classifiers")
    missing = [task for key in ("correlations", "glue") for task in published.rows(key) if task not in setting["tasks"]]
    words = [model.name for model in setting.models if model.holds_word_vectors]
    plain = [model.name for model in setting.models if _has_no_pooling(model) and not model.holds_word_vectors]
    shorter = setting["updates"] and any(setting["updates"] != published_updates(task) for task in setting["tasks"])
    return [
        *(
            [f"These tasks were not run, because no suitable model was given: {', '.join(left_out)}."]
            if left_out
            else []
        ),
        *(
            [f"Tasks of the paper that were not run: {', '.join(missing)}{_format_unsupported(missing)}."]
            if missing
            else []
        ),
        *(
            [f"This run uses {setting['updates']} updates; the paper uses 250 for GLUE and 1000 for the other tasks."]
            if shorter
            else []
        ),
        *(
            [f"This run uses at most {setting['rows']} items of each task; the paper uses all items."]
            if setting["rows"]
            else []
        ),
        *(
            [f"Scores are measured after every {setting['every']} updates; the paper measures them after each update."]
            if setting["every"] > 1
            else []
        ),
        *(
            [
                f"The word vectors are {', '.join(words)} instead of word2vec trained on Wikipedia. The study uses "
                "the words that WordNet tags most often, with all their supersenses or parts of speech. It uses the "
                "same number of words as the paper, but not the paper's word lists."
            ]
            if words
            else []
        ),
        *(
            [
                "These models are not sentence encoders, so each text is embedded as the mean of its last-layer token "
                f"states: {', '.join(plain)}."
            ]
            if plain
            else []
        ),
        "Updates and scores are computed in float32 with sums in float64; the results are within 1e-5 of float64. "
        "Objectives are computed in float64.",
        "The correlation between the two series is computed for each seed and then averaged. IsoScore and O_I use "
        "the distinct unpaired vectors. Silhouette, O_S, O_C and O_T use the classified items; a pair is represented "
        "by the concatenation of its two vectors.",
        "O_C ignores the head's bias, as in the paper's formula. O_C is not defined for items with several classes. "
        "In such tasks, items with the same set of classes form one cluster.",
    ]


def _format_unsupported(tasks: Sequence[str]) -> str:
    unsupported = [task for task in tasks if task not in _TASKS]
    return f" ({', '.join(unsupported)}: not supported by this study)" if unsupported else ""


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
    """Return the vectors of a task's texts, which all seeds share, and its items."""
    is_word_task = task in _WORD_TASKS
    data = (read_word_classes if is_word_task else read_classified)(task, setting.data)
    data = data if is_word_task else data.part(setting["rows"])
    folder = embed_once(
        bench,
        f"{task}-{model.name}",
        model,
        lambda: data.texts,
        weight=0.0,
        pool="mean" if is_word_task or _has_no_pooling(model) else "sentence-transformers",
        layers=-1,
        say=_ignore_message if is_word_task else None,  # words without a vector are expected
        labels=range(len(data.texts)),
    )
    store = open_store(folder)
    most = len(store)
    if is_word_task:
        most = min(most, _WORD_TASKS[task], setting["rows"] or _WORD_TASKS[task])
    documents, vectors = np.asarray(store.labels, np.int64)[:most], store.take(np.arange(most))
    if is_word_task:
        return _select_known_words(task, data, documents, vectors)
    if len(documents) != len(data.texts):
        raise MissingValueError(
            f"{len(data.texts) - len(documents)} texts of {task} have no tokens in {model.place}; remove these texts"
        )
    return vectors, data


def _ignore_message(message: str) -> None:
    """Ignore a message."""


def _select_known_words(
    task: str, data: ClassifiedTexts, documents: np.ndarray, vectors: np.ndarray
) -> tuple[np.ndarray, ClassifiedTexts]:
    if len(documents) < 3:
        raise TooFewRowsError(
            f"only {len(documents)} words of {task} have a vector: need at least 3; pass English word vectors"
        )
    words = [data.texts[i] for i in documents]
    return vectors, ClassifiedTexts(words, np.arange(len(words))[:, None], data.targets[documents], data.classes)
