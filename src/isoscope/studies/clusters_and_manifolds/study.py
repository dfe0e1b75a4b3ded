"""Cai et al., 2021: the layers of language models are anisotropic as a whole, and isotropic inside their clusters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from isoscope._core.errors import InputError
from isoscope._io.files import atomic_replace, remove_folder
from isoscope.embedding.embed import embed
from isoscope.stores.open import open_store
from isoscope.studies.clusters_and_manifolds.measure import LayerTokens, MeasureOptions, local_dimensions, measure_layer
from isoscope.studies.clusters_and_manifolds.outcome import make_outcome
from isoscope.studies.reading.running_text import SETS, read_text
from isoscope.studies.study import Arm, Parameter, Study

if TYPE_CHECKING:
    from isoscope.studies.datasets import Model
    from isoscope.studies.study import ArmContext, Outcome, Results, Setting


class ClustersAndManifolds(Study):
    """Token states of every layer: similarities as they are and inside clusters, local dimension, pictures."""

    name = "clusters-and-manifolds"
    about = (
        "Gives running text to each model in windows, and takes the token states of every layer. Measures how alike "
        "tokens are (S_inter, S_intra) as they are and inside clusters, the number of clusters, and the local "
        "dimension, beside that of static word vectors; draws each model's first principal directions."
    )
    models: ClassVar[tuple[str, ...]] = (
        "google-bert/bert-base-uncased",
        "distilbert/distilbert-base-uncased",
        "openai-community/openai-gpt",
        "openai-community/gpt2",
    )
    quick_models: ClassVar[tuple[str, ...]] = ("distilbert/distilbert-base-uncased",)
    extra = "embed"
    parameters: ClassVar[dict[str, Parameter]] = {
        "corpora": Parameter(("ptb", "wikitext2"), ("ptb", "wikitext2"), "of running text", widens=True),
        "seeds": Parameter((0,), (0,), "for the choice of windows, K-means and samples", widens=True),
        "part": Parameter("train", "valid", "of each corpus: train or valid"),
        "tokens": Parameter(16_000, 4_000, "of each corpus, in windows chosen at random; the paper has all, a million"),
        "window": Parameter(512, 512, "tokens that a model reads at once"),
        "k": Parameter(100, 100, "neighbours for the local dimension"),
        "lid_sample": Parameter(4_000, 1_000, "rows whose neighbours are sought, among all"),
        "cluster_sample": Parameter(8_000, 1_500, "rows that K-means and the silhouette see"),
        "restarts": Parameter(2, 1, "of K-means for each number of clusters"),
        "points": Parameter(800, 500, "drawn of a layer"),
    }

    def data_sets(self, setting: Setting) -> Sequence[str]:
        """The corpora; none if there are word vectors alone."""
        _check_setting(setting)
        return [] if all(_is_word_vectors(each) for each in setting.models) else list(setting["corpora"])

    def arms(self, setting: Setting) -> list[Arm]:
        """Word vectors first; then for each model and corpus its states, and a layer at a time."""
        found = [
            _word_arm(model, setting, seed)
            for model in setting.models
            if _is_word_vectors(model)
            for seed in _seeds(setting)
        ]
        for model in setting.models:
            if not _is_word_vectors(model):
                build = Architecture.of(model)
                for corpus in setting["corpora"]:
                    for seed in _seeds(setting):
                        found += CorpusStates(model, build, corpus, seed, setting).arms()
        return found

    def outcome(self, setting: Setting, results: Results) -> Outcome:
        """Similarities, clusters and local dimensions by layer, and what the claims come to."""
        return make_outcome(self.published, setting, results)


def _check_setting(setting: Setting) -> None:
    known = [each.name for each in SETS]
    unknown = [each for each in setting["corpora"] if each not in known]
    if unknown:
        raise InputError(f"corpora has {unknown[0]}: need {' or '.join(known)}")
    if setting["part"] not in ("train", "valid"):
        raise InputError(f"part is {setting['part']}: need train or valid")
    if setting["k"] < 2:
        raise InputError(f"k is {setting['k']}: need 2 neighbours at least")
    for name, least in (("window", 8), ("lid_sample", 1), ("cluster_sample", 20), ("restarts", 1), ("points", 0)):
        if setting[name] < least:
            raise InputError(f"{name} is {setting[name]}: need {least} at least")
    if setting["tokens"] <= max(setting["k"], 20):
        raise InputError(
            f"tokens is {setting['tokens']} and k is {setting['k']}: need more tokens than neighbours, and than 20"
        )


def _seeds(setting: Setting) -> tuple[int, ...]:
    return tuple(setting["seeds"])


def _measure_options(setting: Setting, seed: int, points: int) -> MeasureOptions:
    return MeasureOptions(
        setting["k"], setting["lid_sample"], setting["cluster_sample"], setting["restarts"], points=points, seed=seed
    )


# word vectors


def _is_word_vectors(model: Model) -> bool:
    place = Path(model.place)
    return place.is_file() or (place / "vectors.npy").is_file()


def _word_arm(model: Model, setting: Setting, seed: int) -> Arm:
    return Arm(
        f"words/{model.name}/seed-{seed}",
        f"{model.name}  local dimension of its words",
        partial(_measure_words, model, _measure_options(setting, seed, 0)),
    )


def _measure_words(model: Model, asked: MeasureOptions, bench: ArmContext) -> dict[str, Any]:
    place = Path(model.place)
    store = open_store(place if place.is_file() else place / "vectors.npy")
    if len(store) <= asked.k:
        raise InputError(f"{model.place} has {len(store)} vectors: need more than {asked.k}, as many as neighbours")
    bench.tell(0.1, f"{len(store):,} vectors")
    X = np.concatenate([each.astype(np.float32, copy=False) for each in store])
    told = {"what": "words", "model": model.name, "seed": asked.seed, "rows": len(X), "width": X.shape[1]}
    return told | local_dimensions(X, asked)


# token states


@dataclass(frozen=True)
class Architecture:
    """How a model is made: its layers, and whether each token sees only those before it."""

    layers: int
    decoder: bool

    @classmethod
    def of(cls, model: Model) -> Architecture:
        """As its configuration says."""
        from transformers import AutoConfig
        from transformers.models.auto.modeling_auto import (
            MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
            MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        )

        from isoscope.embedding.transformer import transformer_folder
        from isoscope.training.loading import LOAD_ERRORS, format_load_error, mute_transformers, resolve_model_path

        place = transformer_folder(resolve_model_path(model.place))
        with mute_transformers():
            try:
                config = AutoConfig.from_pretrained(place)
            except LOAD_ERRORS as error:
                raise InputError(format_load_error(model.place, error, "used for embedding")) from error
        layers = getattr(config.get_text_config(), "num_hidden_layers", None)
        if not isinstance(layers, int) or layers < 1:
            raise InputError(f"the config.json of {model.place} does not say how many layers it has: num_hidden_layers")
        kind = str(config.model_type)
        return cls(layers, kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and kind not in MODEL_FOR_MASKED_LM_MAPPING_NAMES)

    @property
    def drawn_layers(self) -> list[int]:
        """The layers that are drawn, by the paper's numbers: of twelve its 2 and 6, and the last."""
        return sorted({self.layers // 6, self.layers // 2, self.layers - 1})


@dataclass(frozen=True)
class CorpusStates:
    """One model's states of one corpus: an arm to make them, then an arm for each layer."""

    model: Model
    architecture: Architecture
    corpus: str
    seed: int
    setting: Setting

    def arms(self) -> list[Arm]:
        """The states, then layer by layer; the last of them takes the states away."""
        key = f"{self.corpus}/{self.model.name}/seed-{self.seed}"
        words = f"{self.model.name}  {self.corpus}"
        states = Arm(f"{key}/states", f"{words}  states", self.embed_corpus, cost=1 + self.architecture.layers / 3)
        layers = [
            Arm(f"{key}/layer-{layer}", f"{words}  layer {layer}", partial(self.measured, layer))
            for layer in range(self.architecture.layers)
        ]
        return [states, *layers]

    def embed_corpus(self, bench: ArmContext) -> dict[str, Any]:
        """Make the states and keep them for the layers' arms."""
        self._ensure_states(bench)
        kept = json.loads((self._folder(bench) / "_embedding.json").read_text(encoding="utf-8"))
        return {
            "what": "states",
            **self._told(),
            "layers": self.architecture.layers,
            "room": self._room(),
            "tokens": kept["counts"]["tokens"],
            "unknown": kept["counts"]["unknown"],
        }

    def measured(self, layer: int, bench: ArmContext) -> dict[str, Any]:
        """What is measured of a layer, by the paper's number: 0 is what comes out of the first block."""
        place = self._ensure_states(bench)
        store = open_store(f"{place}/layer-{layer + 1:02d}-*", by="position")
        types, frequency, position = (store.column(role) for role in ("types", "frequency", "by"))
        assert types is not None
        assert frequency is not None
        assert position is not None
        room = int((place / "room.txt").read_text(encoding="utf-8"))
        tokens = LayerTokens(
            np.concatenate([each.astype(np.float32, copy=False) for each in store]),
            types,
            frequency.astype(np.float64),
            (position.astype(np.int64) % room) / room,
        )
        points = self.setting["points"] if layer in self.architecture.drawn_layers else 0
        found = measure_layer(tokens, _measure_options(self.setting, self.seed, points), bench.tell)
        if layer == self.architecture.layers - 1:
            remove_folder(place)  # gigabytes, and no arm needs them any more
        return {"what": "layer", **self._told(), "layer": layer, **found}

    def _told(self) -> dict[str, Any]:
        kind = "decoder" if self.architecture.decoder else "encoder"
        return {"corpus": self.corpus, "model": self.model.name, "seed": self.seed, "kind": kind}

    def _folder(self, bench: ArmContext) -> Path:
        return bench.shared / f"{self.corpus}-{self.model.name}-seed-{self.seed}"

    def _ensure_states(self, bench: ArmContext) -> Path:
        """The folder of the states, made if it is not there; an interrupted making is gone on with."""
        folder = self._folder(bench)
        if not folder.is_dir():
            unfinished = folder.with_name(folder.name + ".unfinished")
            bench.tell(0.0, "reading")
            store = embed(
                self.model.place,
                read_text(self.corpus, self.setting["part"], self.setting.data),
                unfinished,
                layers=list(range(1, self.architecture.layers + 1)),
                window=self.setting["window"],
                max_tokens=self.setting["tokens"],
                seed=self.seed,
                progress=lambda stage, done, share, note="": bench.tell(share, stage),
            )
            if len(store) // self.architecture.layers <= self.setting["k"]:
                raise InputError(
                    f"{self.corpus} gives {len(store) // self.architecture.layers} tokens: need more than k, "
                    f"{self.setting['k']}; take more text, or a smaller k"
                )
            with atomic_replace(unfinished / "room.txt") as path:
                path.write_text(f"{self._room()}", encoding="utf-8")
            unfinished.rename(folder)
        return folder

    def _room(self) -> int:
        """Tokens of the text in a window: those that the tokenizer puts around it are read, and are no rows."""
        from transformers import AutoConfig, AutoTokenizer

        from isoscope.embedding.transformer import transformer_folder
        from isoscope.training.loading import longest_input, mute_transformers, resolve_model_path

        place = transformer_folder(resolve_model_path(self.model.place))
        with mute_transformers():
            tokenizer = AutoTokenizer.from_pretrained(place)
            longest = longest_input(AutoConfig.from_pretrained(place), tokenizer)
        window = min(self.setting["window"], longest or self.setting["window"])
        return int(window - tokenizer.num_special_tokens_to_add(pair=False))
