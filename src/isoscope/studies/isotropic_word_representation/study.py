"""The study of "Isotropic word representation in BERT" (Rajaee and Sheikhi): repair token states in each cluster."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from isoscope._core.errors import ParameterError
from isoscope.studies.datasets.similarities import SIMILARITIES, source_data_set, train_data_set
from isoscope.studies.finetuned import SPEEDUP_PARAMETERS
from isoscope.studies.isotropic_word_representation.measure import (
    FITS,
    REPAIR,
    SENTENCES_PREFIX,
    SST2_PREFIX,
    VARIANTS,
    PairSets,
    StateArm,
    arm_key,
    measure_classification,
    measure_layers,
    measure_similarity,
    uses_clusters,
)
from isoscope.studies.isotropic_word_representation.outcome import make_outcome
from isoscope.studies.isotropic_word_representation.tuned import TUNINGS, tune
from isoscope.studies.study import Arm, Parameter, Study

if TYPE_CHECKING:
    from isoscope.studies.models import Model
    from isoscope.studies.study import Outcome, Results, Setting

PARTS = ("layers", "sts", "sst2", "finetune")
TASKS = ("rte", "wic")
_EMBEDDING_COST = 6  # cost of embedding a set, relative to an arm without clusters


class IsotropicWordRepresentation(Study):
    """A study of how a cluster-based repair affects sentence similarity, classification and fine-tuning."""

    name = "isotropic-word-representation-in-bert"
    about = (
        "The last layer's token states are clustered, and each cluster's mean and leading principal components are "
        "removed (K-means + Mean + PCA). Then the cosine between two sentences' mean token states is compared with "
        "human scores, and a linear classifier is trained on SST-2. In fine-tuning, the same repair is applied to the "
        "[CLS] vectors of each batch."
    )
    models = ("google-bert/bert-base-uncased",)
    quick_models = ("google-bert/bert-base-uncased",)
    extra = "train"
    parameters: ClassVar = {
        "parts": Parameter(PARTS, PARTS, f"parts to run: {', '.join(PARTS)}", widens=True, choices=PARTS),
        "sets": Parameter(SIMILARITIES, ("sts15", "stsb"), "sets of sentence pairs", widens=True, choices=SIMILARITIES),
        "variants": Parameter(
            tuple(VARIANTS), tuple(VARIANTS), "repairs of the token states", widens=True, choices=VARIANTS
        ),
        "fits": Parameter(
            tuple(FITS),
            tuple(FITS),
            'data for fitting repairs: "same" (the scored sentences) or "train" (a train split)',
            widens=True,
            choices=FITS,
        ),
        "k": Parameter(27, 4, "number of token clusters; use fewer if there are few pairs", least=1),
        "components": Parameter(
            12, 12, "number of principal components to remove from each cluster, and in Mean + PCA", least=0
        ),
        "draws": Parameter((0, 1, 2), (0,), "seeds for clustering", widens=True),
        "pairs": Parameter(0, 200, "number of pairs per set; 0 means all", least=0),
        "sst2_rows": Parameter(0, 1000, "number of training rows of SST-2; 0 means all", least=0),
        "tasks": Parameter(TASKS, ("wic",), "tasks to fine-tune on", widens=True, choices=TASKS),
        "tuned": Parameter((), (), "names of the models to fine-tune; all by default", widens=True),
        "seeds": Parameter((0, 1, 2, 3, 4), (0,), "seeds for fine-tuning", widens=True),
        "epochs": Parameter(2.0, 2.0, "number of epochs for fine-tuning", above=0),
        "learning_rate": Parameter(5e-5, 5e-5, "learning rate for fine-tuning"),
        "tuning_rows": Parameter(0, 256, "number of training rows for fine-tuning; 0 means all", least=0),
        **SPEEDUP_PARAMETERS,
        "batch_clusters": Parameter(3, 3, "number of clusters for the [CLS] vectors of a batch", least=1),
        "batch_components": Parameter(
            1, 1, "number of principal components to remove from each of these clusters", least=0
        ),
    }

    def data_sets(self, setting: Setting) -> Sequence[str]:
        """Return the datasets: the sets of pairs with their train splits, SST-2, and the tasks."""
        models = [each.name for each in setting.models]
        unknown = [each for each in setting["tuned"] if each not in models]
        if unknown:
            raise ParameterError(f"tuned contains {unknown[0]}: choose from {', '.join(models)}")
        if 0 < setting["pairs"] < 3:
            raise ParameterError(f"pairs is {setting['pairs']}: need at least 3 for a correlation, or 0 for all")
        parts, names = setting["parts"], []
        for name in setting["sets"] if {"sts", "layers"} & set(parts) else ():
            names += [source_data_set(name), *([train_data_set(name)] if "train" in setting["fits"] else [])]
        names += ["sst2"] if "sst2" in parts else []
        names += setting["tasks"] if "finetune" in parts else ()
        return list(dict.fromkeys(names))

    def arms(self, setting: Setting) -> list[Arm]:
        """Return each model's arms for layers, sets of pairs and SST-2, followed by the fine-tuning arms by seed."""
        parts, arms = setting["parts"], []
        sets = PairSets(setting.data, setting["sets"], setting["fits"], setting["pairs"])
        for model in setting.models:
            arms += _layer_arm(setting, model, sets) if "layers" in parts and sets.names else []
            arms += _similarity_arms(setting, model, sets) if "sts" in parts else []
            arms += _classification_arms(setting, model) if "sst2" in parts else []
        return arms + (_tuning_arms(setting) if "finetune" in parts else [])

    def outcome(self, setting: Setting, results: Results) -> Outcome:
        """Return the tables, figures and verdicts."""
        return make_outcome(self.published, setting, results)


def _trials(setting: Setting, *, fitted: Sequence[str]) -> list[tuple[str, str, int | None]]:
    """Return each variant with its fitting data and a clustering seed (None for variants without clusters)."""
    trials: list[tuple[str, str, int | None]] = []
    for variant in setting["variants"]:
        for fit in fitted if variant != "none" else ("",):
            trials += [(variant, fit, seed) for seed in (setting["draws"] if uses_clusters(variant) else (None,))]
    return trials


def _state_arm(setting: Setting, model: Model, variant: str, seed: int | None, cleanup: str = "") -> StateArm:
    return StateArm(model, setting.data, variant, setting["k"], setting["components"], seed or 0, cleanup)


def _layer_arm(setting: Setting, model: Model, sets: PairSets) -> list[Arm]:
    name = sets.names[-1]
    run = partial(measure_layers, _state_arm(setting, model, REPAIR, None), sets, name)
    return [Arm(arm_key("layers", model.name, name), f"{model.name}, layers", run, cost=2)]


def _similarity_arms(setting: Setting, model: Model, sets: PairSets) -> list[Arm]:
    arms: list[Arm] = []
    trials = [(name, *trial) for name in sets.names for trial in _trials(setting, fitted=sets.fits)]
    for name, variant, fit, seed in trials:
        cleanup = f"{SENTENCES_PREFIX}-*" if (name, variant, fit, seed) == trials[-1] else ""
        run = partial(measure_similarity, _state_arm(setting, model, variant, seed, cleanup), sets, name, fit)
        words = f"{model.name}, {name}, {VARIANTS[variant]}{f', fitted on {FITS[fit]}' if fit else ''}"
        cost = 8 if variant.startswith("gmm") else 2 if uses_clusters(variant) else 1
        first = 0 if arms else _EMBEDDING_COST * len(sets.names)
        arms.append(Arm(arm_key("sts", model.name, name, variant, fit, seed=seed), words, run, cost=cost + first))
    return arms


def _classification_arms(setting: Setting, model: Model) -> list[Arm]:
    limit, arms = setting["sst2_rows"], []
    trials = _trials(setting, fitted=("",))
    for variant, _, seed in trials:
        cleanup = f"{SST2_PREFIX}-*" if (variant, "", seed) == trials[-1] else ""
        run = partial(measure_classification, _state_arm(setting, model, variant, seed, cleanup), limit)
        words = f"{model.name}, SST-2, {VARIANTS[variant]}"
        arms.append(Arm(arm_key("sst2", model.name, variant, seed=seed), words, run, cost=3))
    return arms


def _tuning_arms(setting: Setting) -> list[Arm]:
    tuned = [each for each in setting.models if not setting["tuned"] or each.name in setting["tuned"]]
    return [
        Arm(
            arm_key("finetune", task, model.name, how, seed=seed),
            f"{task}, {model.name}, {TUNINGS[how]}, seed {seed}",
            partial(tune, setting, model, task, how, seed),
            cost=10,
        )
        for seed in setting["seeds"]
        for model in tuned
        for task in setting["tasks"]
        for how in TUNINGS
    ]
