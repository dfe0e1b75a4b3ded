"""The study of "Clusters and manifolds" (Cai et al., 2021): layers are isotropic inside their clusters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from isoscope._core.errors import FileFormatError, InputError, ParameterError, TooFewRowsError
from isoscope._io.files import atomic_replace, remove_folder
from isoscope.stores.open import open_store
from isoscope.studies.clusters_and_manifolds.measure import LayerTokens, MeasureOptions, local_dimensions, measure_layer
from isoscope.studies.clusters_and_manifolds.outcome import make_outcome
from isoscope.studies.datasets.running_text import SETS, SPLITS, read_text
from isoscope.studies.states import embed_once
from isoscope.studies.study import Arm, Parameter, Study

if TYPE_CHECKING:
    from isoscope.stores.store import Store
    from isoscope.studies.models import Model
    from isoscope.studies.study import ArmContext, Outcome, Results, Setting


_CORPORA = tuple(each.name for each in SETS)


class ClustersAndManifolds(Study):
    """A study of the similarity, clusters and local dimension of token states in every layer."""

    name = "clusters-and-manifolds"
    about = (
        "Each model reads running text in windows. For the token states of every layer, the study measures how "
        "similar tokens of different types (S_inter) and of one type (S_intra) are, overall and inside clusters. It "
        "also determines the number of clusters, and compares the local dimension with that of static word vectors. "
        "Figures show the leading principal components of each model."
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
        "corpora": Parameter(_CORPORA, _CORPORA, "corpora of running text", widens=True, choices=_CORPORA),
        "seeds": Parameter((0,), (0,), "seeds for choosing windows, for k-means and for sampling", widens=True),
        "part": Parameter("train", "valid", "split of each corpus: train or valid", choices=SPLITS),
        "tokens": Parameter(
            16_000, 4_000, "number of tokens per corpus, in random windows; the paper uses all (a million)"
        ),
        "window": Parameter(512, 512, "number of tokens in a window", least=8),
        "k": Parameter(100, 100, "number of nearest neighbors for the local dimension", least=2),
        "lid_sample": Parameter(
            4_000, 1_000, "number of rows for which to find the nearest neighbors among all rows", least=1
        ),
        "cluster_sample": Parameter(8_000, 1_500, "number of rows for k-means and the silhouette", least=20),
        "restarts": Parameter(2, 1, "number of k-means initializations for each number of clusters", least=1),
        "points": Parameter(800, 500, "number of points to draw for each layer", least=0),
    }

    def data_sets(self, setting: Setting) -> Sequence[str]:
        """Return the names of the corpora, or an empty list if all models are word vectors."""
        if setting["tokens"] <= max(setting["k"], 20):
            raise ParameterError(
                f"tokens is {setting['tokens']} and k is {setting['k']}: tokens must be greater than k and greater "
                "than 20"
            )
        return [] if all(each.holds_word_vectors for each in setting.models) else list(setting["corpora"])

    def arms(self, setting: Setting) -> list[Arm]:
        """Return an arm per set of word vectors and, per model and corpus, an embedding arm and an arm per layer."""
        arms = [
            _word_arm(model, setting, seed)
            for model in setting.models
            if model.holds_word_vectors
            for seed in setting["seeds"]
        ]
        for model in setting.models:
            if not model.holds_word_vectors:
                architecture = Architecture.of(model)
                for corpus in setting["corpora"]:
                    for seed in setting["seeds"]:
                        arms += CorpusStates(model, architecture, corpus, seed, setting).arms()
        return arms

    def outcome(self, setting: Setting, results: Results) -> Outcome:
        """Return tables and figures of similarities, clusters and local dimensions, and the verdict on each claim."""
        return make_outcome(self.published, setting, results)


def _measure_options(setting: Setting, seed: int, points: int) -> MeasureOptions:
    return MeasureOptions(
        setting["k"], setting["lid_sample"], setting["cluster_sample"], setting["restarts"], points=points, seed=seed
    )


# word vectors


def _word_arm(model: Model, setting: Setting, seed: int) -> Arm:
    return Arm(
        f"words/{model.name}/seed-{seed}",
        f"{model.name}  local dimension of its word vectors",
        partial(_measure_words, model, _measure_options(setting, seed, 0)),
    )


def _measure_words(model: Model, asked: MeasureOptions, bench: ArmContext) -> dict[str, Any]:
    place = Path(model.place)
    store = open_store(place if place.is_file() else place / "vectors.npy")
    if len(store) <= asked.k:
        raise TooFewRowsError(f"{model.place} has {len(store)} vectors: need more than k={asked.k}; pass a smaller k")
    bench.tell(0.1, f"{len(store):,} vectors")
    X = np.concatenate([each.astype(np.float32, copy=False) for each in store])
    facts = {"what": "words", "model": model.name, "seed": asked.seed, "rows": len(X), "width": X.shape[1]}
    return facts | local_dimensions(X, asked)


# token states


@dataclass(frozen=True)
class Architecture:
    """The number of layers of a model, and whether it is a decoder."""

    layers: int
    decoder: bool

    @classmethod
    def of(cls, model: Model) -> Architecture:
        """Return the architecture that the model's configuration describes."""
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
            raise FileFormatError(f"config.json of {model.place} has no num_hidden_layers: add the number of layers")
        kind = str(config.model_type)
        return cls(layers, kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and kind not in MODEL_FOR_MASKED_LM_MAPPING_NAMES)

    @property
    def drawn_layers(self) -> list[int]:
        """The layers to draw, counted from 0, such as layers 2, 6 and 11 for a model with twelve layers."""
        return sorted({self.layers // 6, self.layers // 2, self.layers - 1})


@dataclass(frozen=True)
class CorpusStates:
    """The token states of a model on a corpus, and the arms that compute and measure them."""

    model: Model
    architecture: Architecture
    corpus: str
    seed: int
    setting: Setting

    def arms(self) -> list[Arm]:
        """Return an arm that computes the states, followed by one for each layer; the last arm deletes the states."""
        key = f"{self.corpus}/{self.model.name}/seed-{self.seed}"
        words = f"{self.model.name}  {self.corpus}"
        states = Arm(f"{key}/states", f"{words}  states", self.embed_corpus, cost=1 + self.architecture.layers / 3)
        layers = [
            Arm(f"{key}/layer-{layer}", f"{words}  layer {layer}", partial(self.measure, layer))
            for layer in range(self.architecture.layers)
        ]
        return [states, *layers]

    def embed_corpus(self, bench: ArmContext) -> dict[str, Any]:
        """Embed the corpus for the layer arms, and return its token counts."""
        folder = self._embed(bench)
        kept = json.loads((folder / "_embedding.json").read_text(encoding="utf-8"))
        return {
            "what": "states",
            **self._facts(),
            "layers": self.architecture.layers,
            "room": self._room(),
            "tokens": kept["counts"]["tokens"],
            "unknown": kept["counts"]["unknown"],
        }

    def measure(self, layer: int, bench: ArmContext) -> dict[str, Any]:
        """Return the measurements of a layer; as in the paper, layer 0 is the output of the first block."""
        place = self._embed(bench)
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
        result = measure_layer(tokens, _measure_options(self.setting, self.seed, points), bench.tell)
        if layer == self.architecture.layers - 1:
            remove_folder(place)  # no later arm needs these gigabytes
        return {"what": "layer", **self._facts(), "layer": layer, **result}

    def _facts(self) -> dict[str, Any]:
        kind = "decoder" if self.architecture.decoder else "encoder"
        return {"corpus": self.corpus, "model": self.model.name, "seed": self.seed, "kind": kind}

    def _embed(self, bench: ArmContext) -> Path:
        """Return the folder that contains the states; its room.txt contains the number of text tokens in a window."""

        def finish(store: Store, folder: Path) -> None:
            tokens = len(store) // self.architecture.layers
            if tokens <= self.setting["k"]:
                raise TooFewRowsError(
                    f"{self.corpus} has {tokens} tokens: need more than k={self.setting['k']}; pass more text or a "
                    "smaller k"
                )
            with atomic_replace(folder / "room.txt") as path:
                path.write_text(f"{self._room()}", encoding="utf-8")

        return embed_once(
            bench,
            f"{self.corpus}-{self.model.name}-seed-{self.seed}",
            self.model,
            lambda: read_text(self.corpus, self.setting["part"], self.setting.data),
            finish=finish,
            layers=list(range(1, self.architecture.layers + 1)),
            pool="tokens",
            window=self.setting["window"],
            max_tokens=self.setting["tokens"],
            seed=self.seed,
        )

    def _room(self) -> int:
        """Return the number of text tokens in a window, without the special tokens that the tokenizer adds."""
        from transformers import AutoConfig, AutoTokenizer

        from isoscope.embedding.transformer import transformer_folder
        from isoscope.training.loading import longest_input, mute_transformers, resolve_model_path

        place = transformer_folder(resolve_model_path(self.model.place))
        with mute_transformers():
            tokenizer = AutoTokenizer.from_pretrained(place)
            longest = longest_input(AutoConfig.from_pretrained(place), tokenizer)
        window = min(self.setting["window"], longest or self.setting["window"])
        return int(window - tokenizer.num_special_tokens_to_add(pair=False))
