"""Isotropic word representation in BERT (Rajaee and Sheikhi): the space repaired cluster by cluster."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from isoscope._core.errors import InputError
from isoscope.studies.finetuned import SPEEDUP_PARAMETERS, check_training
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
from isoscope.studies.reading.similarities import SIMILARITIES, source_data_set, train_data_set
from isoscope.studies.study import Arm, Parameter, Study

if TYPE_CHECKING:
    from isoscope.studies.datasets import Model
    from isoscope.studies.study import Outcome, Results, Setting

PARTS = ("layers", "sts", "sst2", "finetune")
TASKS = ("rte", "wic")
_READING = 6  # to read a set's sentences takes as long as some fits


class IsotropicWordRepresentation(Study):
    """The repair on similarity, on classification and inside fine-tuning."""

    name = "isotropic-word-representation-in-bert"
    about = (
        "The last layer's token states are clustered, and each cluster's mean and first directions are taken out. The "
        "cosine of two sentences' mean tokens is then compared with people's scores, a linear classifier learns SST-2 "
        "from them, and the same is done to the [CLS] vectors of each batch while a model is fine-tuned."
    )
    models = ("google-bert/bert-base-uncased",)
    quick_models = ("google-bert/bert-base-uncased",)
    extra = "train"
    parameters: ClassVar = {
        "parts": Parameter(PARTS, PARTS, f"what is done: {', '.join(PARTS)}", widens=True),
        "sets": Parameter(SIMILARITIES, ("sts15", "stsb"), "sets of pairs of sentences", widens=True),
        "variants": Parameter(tuple(VARIANTS), tuple(VARIANTS), "what is done to the tokens", widens=True),
        "fits": Parameter(tuple(FITS), tuple(FITS), "fitted on the same sentences, or on a train split", widens=True),
        "k": Parameter(27, 4, "clusters of tokens; fewer where there are few pairs, or a cluster holds few sentences"),
        "components": Parameter(12, 12, "directions taken out in each cluster, and of all tokens for Mean + PCA"),
        "draws": Parameter((0, 1, 2), (0,), "seeds of the clusters", widens=True),
        "pairs": Parameter(0, 200, "pairs of each set, 0 for all"),
        "sst2_rows": Parameter(0, 1000, "sentences of SST-2 to learn from, 0 for all"),
        "tasks": Parameter(TASKS, ("wic",), "tasks to fine-tune for", widens=True),
        "tuned": Parameter((), (), "models to fine-tune, by name; all unless told", widens=True),
        "seeds": Parameter((0, 1, 2, 3, 4), (0,), "seeds of fine-tuning", widens=True),
        "epochs": Parameter(2.0, 2.0, "epochs of fine-tuning"),
        "learning_rate": Parameter(5e-5, 5e-5, "learning rate of fine-tuning"),
        "tuning_rows": Parameter(0, 256, "rows to fine-tune with, 0 for all"),
        **SPEEDUP_PARAMETERS,
        "batch_clusters": Parameter(3, 3, "clusters of a batch's [CLS] vectors"),
        "batch_components": Parameter(1, 1, "directions taken out in each of them"),
    }

    def data_sets(self, setting: Setting) -> Sequence[str]:
        """The sets of pairs with those that repairs are fitted on, SST-2, and the tasks."""
        _check_setting(setting)
        parts, found = setting["parts"], []
        for name in setting["sets"] if {"sts", "layers"} & set(parts) else ():
            found += [source_data_set(name), *([train_data_set(name)] if "train" in setting["fits"] else [])]
        found += ["sst2"] if "sst2" in parts else []
        found += setting["tasks"] if "finetune" in parts else ()
        return list(dict.fromkeys(found))

    def arms(self, setting: Setting) -> list[Arm]:
        """Model by model: its layers, each set with every variant, SST-2; then fine-tuning, seed by seed."""
        parts, found = setting["parts"], []
        sets = PairSets(setting.data, setting["sets"], setting["fits"], setting["pairs"])
        for model in setting.models:
            found += _layer_arm(setting, model, sets) if "layers" in parts and sets.names else []
            found += _similarity_arms(setting, model, sets) if "sts" in parts else []
            found += _classification_arms(setting, model) if "sst2" in parts else []
        return found + (_tuning_arms(setting) if "finetune" in parts else [])

    def outcome(self, setting: Setting, results: Results) -> Outcome:
        """Published and ours."""
        return make_outcome(self.published, setting, results)


def _check_setting(setting: Setting) -> None:
    known = {"parts": PARTS, "variants": VARIANTS, "fits": FITS, "sets": SIMILARITIES, "tasks": TASKS}
    known["tuned"] = tuple(each.name for each in setting.models)
    for name, there in known.items():
        strange = [each for each in setting[name] if each not in there]
        if strange:
            raise InputError(f"{name} has {strange[0]}: there are {', '.join(there)}")
    least = {"k": 1, "components": 0, "pairs": 0, "sst2_rows": 0, "tuning_rows": 0, "batch_clusters": 1}
    for name, low in {**least, "batch_components": 0}.items():
        if setting[name] < low:
            raise InputError(f"{name} is {setting[name]}: need {low} at least")
    if "finetune" in setting["parts"]:
        check_training(setting)
    if 0 < setting["pairs"] < 3:
        raise InputError(f"pairs is {setting['pairs']}: need 3 at least for a correlation, or 0 for all")


def _trials(setting: Setting, *, fitted: Sequence[str]) -> list[tuple[str, str, int | None]]:
    """Variant, what it is fitted on, and the seed of its clusters where it has any."""
    found: list[tuple[str, str, int | None]] = []
    for variant in setting["variants"]:
        for fit in fitted if variant != "none" else ("",):
            found += [(variant, fit, seed) for seed in (setting["draws"] if uses_clusters(variant) else (None,))]
    return found


def _state_arm(setting: Setting, model: Model, variant: str, seed: int | None, leaves: str = "") -> StateArm:
    return StateArm(model, setting.data, variant, setting["k"], setting["components"], seed or 0, leaves)


def _layer_arm(setting: Setting, model: Model, sets: PairSets) -> list[Arm]:
    name = sets.names[-1]
    run = partial(measure_layers, _state_arm(setting, model, REPAIR, None), sets, name)
    return [Arm(arm_key("layers", model.name, name), f"{model.name}, layers", run, cost=2)]


def _similarity_arms(setting: Setting, model: Model, sets: PairSets) -> list[Arm]:
    found: list[Arm] = []
    trials = [(name, *trial) for name in sets.names for trial in _trials(setting, fitted=sets.fits)]
    for name, variant, fit, seed in trials:
        leaves = f"{SENTENCES_PREFIX}-*" if (name, variant, fit, seed) == trials[-1] else ""
        run = partial(measure_similarity, _state_arm(setting, model, variant, seed, leaves), sets, name, fit)
        words = f"{model.name}, {name}, {VARIANTS[variant]}{f', fitted on {FITS[fit]}' if fit else ''}"
        cost = 8 if variant.startswith("gmm") else 2 if uses_clusters(variant) else 1
        first = 0 if found else _READING * len(sets.names)
        found.append(Arm(arm_key("sts", model.name, name, variant, fit, seed=seed), words, run, cost=cost + first))
    return found


def _classification_arms(setting: Setting, model: Model) -> list[Arm]:
    limit, found = setting["sst2_rows"], []
    trials = _trials(setting, fitted=("",))
    for variant, _, seed in trials:
        leaves = f"{SST2_PREFIX}-*" if (variant, "", seed) == trials[-1] else ""
        run = partial(measure_classification, _state_arm(setting, model, variant, seed, leaves), limit)
        words = f"{model.name}, SST-2, {VARIANTS[variant]}"
        found.append(Arm(arm_key("sst2", model.name, variant, seed=seed), words, run, cost=3))
    return found


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
