"""Compute the hidden states of transformer encoders and decoders."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel

from isoscope._core.errors import FileFormatError, InputError, NotFoundError, ParameterError, ShapeError
from isoscope.embedding.embedder import FULL_DIGEST, WindowBatch
from isoscope.embedding.tokens import Tokens
from isoscope.training.capture import Capture, evaluation_mode
from isoscope.training.loading import (
    LOAD_ERRORS,
    format_load_error,
    longest_input,
    mute_transformers,
    resolve_model_path,
    shorten_load_error,
)

if TYPE_CHECKING:
    from isoscope.training.layers import Layer


_TASK = "used for embedding"
_NOTES = ("_name_or_path", "_model_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")
"""The keys of a configuration that change no hidden state; the checksum of the weights includes their data type."""
_SPACE = "▁"  # SentencePiece tokenizers have this token even without files
_CPU_TOKENS, _GPU_TOKENS = 2_048, 16_384  # tokens per batch


class HubTokenizer:
    """A Hugging Face tokenizer."""

    missed = 0

    def __init__(self, tokenizer: Any, name: str) -> None:
        self._tokenizer = tokenizer
        if not {*tokenizer.get_vocab()} - {*tokenizer.all_special_tokens, _SPACE}:
            raise NotFoundError(
                f"the tokenizer of {name} has no words in its vocabulary: its files, such as tokenizer.json, are "
                "missing or damaged; pass a model with its tokenizer files"
            )
        self.unknown = tokenizer.unk_token_id
        self._offsets = bool(getattr(tokenizer, "is_fast", False))
        self.before, self.after = _special(tokenizer)

    def read(self, texts: list[str]) -> list[Tokens]:
        """See `Tokenizer`."""
        read = self._tokenizer(
            texts,
            add_special_tokens=False,
            return_offsets_mapping=self._offsets,
            return_attention_mask=False,
            verbose=False,
        )
        found = []
        for i, ids in enumerate(read["input_ids"]):
            if self._offsets:
                places = np.asarray(read["offset_mapping"][i], np.int64).reshape(-1, 2)
            else:
                places = np.zeros((len(ids), 2), np.int64)
            found.append(Tokens(np.asarray(ids, np.int64), places[:, 0], places[:, 1]))
        return found

    def strings(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens as strings of the vocabulary."""
        return [str(token) for token in self._tokenizer.convert_ids_to_tokens([int(each) for each in ids])]


def _special(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return the special tokens that a tokenizer adds before and after a text."""
    words = (word for word in tokenizer.get_vocab() if word not in tokenizer.all_special_tokens)
    for word in ("a", *islice(words, 100)):  # a tokenizer may skip unknown words
        bare = tokenizer(word, add_special_tokens=False)["input_ids"]
        if bare:
            break
    full = tokenizer(word)["input_ids"]
    for start in range(len(full) - len(bare) + 1):
        if full[start : start + len(bare)] == bare:
            return full[:start], full[start + len(bare) :]
    return [], []


class TransformerEmbedder:
    """An embedder that captures the hidden states of a transformer's layers."""

    prompt: str | None = None

    def __init__(
        self,
        model: Any,
        *,
        tokenizer: Any = None,
        layers: Any = "all",
        device: str | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        if isinstance(model, str):
            self.name = model
            self._model, tokenizer, config, self.part = _load(model, trust_remote_code)
        else:
            if not isinstance(model, nn.Module):
                raise ParameterError(
                    f"model is a {type(model).__name__}: need a model folder, a model name or a torch module"
                )
            if hasattr(model, "tokenizer") and hasattr(model, "encode"):  # a SentenceTransformer
                inner = next((each for each in model.modules() if hasattr(each, "auto_model")), None)
                tokenizer = tokenizer or model.tokenizer
                model = model if inner is None else inner.auto_model
            if tokenizer is None:
                raise ParameterError(f"model is a {type(model).__name__}: pass its tokenizer too, with tokenizer=…")
            self.name, self._model = type(model).__name__, model
            self.part = self.name
            config = getattr(model, "config", None)
        if getattr(config, "is_encoder_decoder", False):
            self._model = self._model.get_encoder()
            self.part = f"the encoder of {self.part}"
        self.reader = HubTokenizer(tokenizer, self.name)
        self.max_length = longest_input(config, tokenizer)
        self._pad = _padding(self._model, tokenizer)
        self._capture = Capture(self._model, layers, "tokens")
        self.layers = sorted(each for each in self._capture.layers if isinstance(each, int))
        if len(self.layers) < len(self._capture.layers):
            self.close()
            raise ParameterError(
                f'layers is {layers!r}: need "all" or layer numbers (0 is the embedding layer), not module names'
            )
        self.device = choose_device(device, self._model, moved=isinstance(model, str))
        if isinstance(model, str):
            self._model.to(self.device)
        takes = inspect.signature(self._model.forward).parameters
        self._more = {"use_cache": False} if "use_cache" in takes else {}
        any_name = any(each.kind is each.VAR_KEYWORD for each in takes.values())
        self._takes_mask = any_name or "attention_mask" in takes  # FNet's forward does not before transformers 5
        try:
            self.dim = self._width()
            self.can_pad = self._check_padding()
        except BaseException:
            self.close()
            raise

    @cached_property
    def digest(self) -> str:
        """See `Embedder`."""
        return compute_digest(self._model)

    @property
    def batch_tokens(self) -> int:
        """See `Embedder`."""
        return _CPU_TOKENS if self.device.type == "cpu" else _GPU_TOKENS

    @property
    def uses_accelerator(self) -> bool:
        """See `Embedder`."""
        return bool(self.device.type != "cpu")

    def causal(self) -> bool:
        """See `Embedder`; determined by changing the last of four tokens."""
        words = self._some_words()
        ids = np.full((2, 4), words[0])
        ids[1, 3] = next((each for each in words if each != words[0]), self._pad)
        with self.evaluation_mode():
            *_, (_, states) = self.states(_make_batch(ids))
        return bool(np.allclose(states[0, :3], states[1, :3], atol=1e-5, rtol=1e-4))

    def _check_padding(self) -> bool:
        """Return whether padding leaves states unchanged, which is not the case in FNet and ConvBERT."""
        ids = np.resize(self._some_words(), (2, 6))
        with self.evaluation_mode():
            *_, (_, alone) = self.states(_make_batch(ids[:1, :3]))
            *_, (_, padded) = self.states(_make_batch(ids)._replace(lengths=np.array([3, 6])))
        difference = np.abs(alone[0] - padded[0, :3]).max()
        return not difference > 4 * self._precision() ** 0.5 * np.abs(alone).max()

    def _precision(self) -> float:
        kinds = [weight.dtype for weight in self._model.parameters() if weight.is_floating_point()]
        return float(max(torch.finfo(kind).eps for kind in [*kinds, torch.float32]))

    def _some_words(self) -> list[int]:
        return self.reader.read(["the of and in to a"])[0].ids.tolist() or [self._pad]

    def evaluation_mode(self) -> AbstractContextManager[None]:
        """See `Embedder`."""
        return evaluation_mode(self._model)

    def prepare(self, ids: np.ndarray) -> None:
        """See `Embedder`; nothing to prepare."""

    def states(self, given: WindowBatch) -> Iterator[tuple[int, np.ndarray]]:
        """See `Embedder`; padding is on the right."""
        mask = np.arange(given.ids.shape[1]) < given.lengths[:, None]
        batch = {"input_ids": torch.from_numpy(np.where(mask, given.ids, self._pad)).to(self.device)}
        if self._takes_mask:
            batch["attention_mask"] = torch.from_numpy(mask.astype(np.int64)).to(self.device)
        self._capture.start()
        try:
            output = self._model(**batch, **self._more)
        except (IndexError, RuntimeError, TypeError, ValueError) as error:
            why = " ".join(str(error).split())[:200]
            raise ParameterError(
                f"{self.name} cannot read {mask.shape[0]} windows of {mask.shape[1]} tokens: {why}; try a smaller "
                "window, or fewer tokens per batch"
            ) from error
        finally:
            seen = self._capture.stop()
        found: dict[Layer, torch.Tensor] = {each.layer: each.states for each in seen}
        if "output_hidden_states" in self._more:
            found = dict(enumerate(getattr(output, "hidden_states", None) or ()))
        for layer in self.layers:
            if layer not in found:
                raise ParameterError(f"layer {layer} of {self.name} did not run: choose other layers")
            if found[layer].shape[:2] != mask.shape:
                shape = tuple(found[layer].shape)
                raise ShapeError(
                    f"layer {layer} of {self.name} returns states of shape {shape} for {mask.shape[0]} windows of "
                    f"{mask.shape[1]} tokens, not one state per token: choose other layers"
                )
            yield layer, found[layer].float().cpu().numpy()

    def strings(self, ids: Sequence[int]) -> list[str]:
        """See `Embedder`."""
        return self.reader.strings(ids)

    def close(self) -> None:
        """See `Embedder`."""
        self._capture.remove()

    def _width(self) -> int:
        probe = _make_batch(np.full((1, 3), self._pad))
        with self.evaluation_mode():
            try:
                widths = {layer: states.shape[-1] for layer, states in self.states(probe)}
            except InputError:  # Longformer and XLNet pad or transpose states internally
                if "output_hidden_states" in self._more or not hasattr(self._model, "config"):
                    raise
                self._more["output_hidden_states"] = True
                widths = {layer: states.shape[-1] for layer, states in self.states(probe)}
        if len(set(widths.values())) > 1:
            raise ShapeError(
                f"the layers of {self.name} have {sorted(set(widths.values()))} dimensions: choose layers of equal "
                "width"
            )
        return int(next(iter(widths.values())))


def compute_digest(model: nn.Module, more: str = "") -> str:
    """Return a checksum of a model's weights and configuration, without the poolers, and of a text.

    No row depends on a pooler. A checkpoint often lacks its weights, which are then different in each process.
    """
    found = hashlib.blake2b(more.encode(), digest_size=16)
    for part in model.modules():
        if isinstance(part, PreTrainedModel):
            config = {key: value for key, value in part.config.to_diff_dict().items() if key not in _NOTES}
            found.update(json.dumps(config, sort_keys=True, default=str).encode())
    for name, weight in model.state_dict().items():
        if isinstance(weight, torch.Tensor) and not _is_pooler(name):
            found.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
            found.update(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return f"{FULL_DIGEST}{found.hexdigest()}"


def _is_pooler(name: str) -> bool:
    return "pooler" in name


def _padding(model: nn.Module, tokenizer: Any) -> int:
    """Return a padding token that has an embedding in the model; the default token of some tokenizers has none."""
    try:
        known = int(model.get_input_embeddings().num_embeddings)
    except (AttributeError, NotImplementedError):
        known = len(tokenizer)
    wanted = (tokenizer.pad_token_id, tokenizer.eos_token_id)
    return next((each for each in wanted if each is not None and each < known), 0)


def _make_batch(ids: np.ndarray) -> WindowBatch:
    """Return a batch of windows of equal length that do not belong to texts."""
    return WindowBatch(ids, np.full(len(ids), ids.shape[1]), np.zeros(len(ids), int), str)


def _load(name: str, trust: bool) -> tuple[nn.Module, Any, Any, str]:
    """Return a model, its tokenizer, its configuration, and which part of the saved model it is."""
    place = transformer_folder(resolve_model_path(name))
    with mute_transformers():
        try:
            config = AutoConfig.from_pretrained(place, trust_remote_code=trust)
            model, found = AutoModel.from_pretrained(
                place, dtype=torch.float32, trust_remote_code=trust, output_loading_info=True
            )
        except LOAD_ERRORS as error:
            needed = "trust_remote_code" in str(error)
            why = format_trust_error(name) if needed else format_load_error(name, error, _TASK)
            raise FileFormatError(why) from error
        try:
            tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=trust)
            tokenizer("a")  # some damage shows only in use
        except LOAD_ERRORS as error:
            why = shorten_load_error(error)
            raise NotFoundError(
                f"the tokenizer of {name} cannot be loaded: {why}; need its files, such as tokenizer.json"
            ) from error
    missing = sorted(weight for weight in found["missing_keys"] if not _is_pooler(weight))  # often untrained
    if missing:
        raise FileFormatError(
            f"{name} lacks {len(missing)} weights that its config.json requires, such as {missing[0]}; they would be "
            "initialized randomly: copy the model again, or fix config.json"
        )
    return model, tokenizer, config, _describe_part(model, config, found["unexpected_keys"], place)


def _describe_part(model: nn.Module, config: Any, unused: Any, place: str) -> str:
    """Return which part of a saved model was loaded, and which parts were not: its head, or its own pooling."""
    own, classes = type(model).__name__, getattr(config, "architectures", None)
    saved = classes[0] if isinstance(classes, list) and classes and isinstance(classes[0], str) else ""
    weights = sorted(weight for weight in unused if not weight.endswith("position_ids"))  # saved by old versions
    without = []
    if saved and saved != own:
        without.append(f"the head of {saved}")
    elif weights:
        without.append(f"{len(weights)} other weights, such as {weights[0]}")
    if (Path(place) / "modules.json").exists() or (Path(place).parent / "modules.json").exists():
        without.append("the pooling of Sentence Transformers")
    return f"{own}, without {' and '.join(without)}" if without else own


def transformer_folder(place: str) -> str:
    """Return the subfolder with the transformer of a Sentence Transformers model, or the folder itself."""
    folder = Path(place)
    if folder.is_dir() and not (folder / "config.json").exists() and (folder / "modules.json").exists():
        inner = sorted(path.parent for path in folder.glob("*/config.json") if path.parent.name.endswith("Transformer"))
        return str(inner[0]) if inner else place
    return place


def format_trust_error(name: str, where: str = "") -> str:
    """Return the error message for a model that comes with its own code; `where` states what names that code."""
    return (
        f"{name} comes with its own code{where and f' ({where})'}, which runs only if you allow it: read that code, "
        "then pass trust_remote_code=True (on the command line: --trust-remote-code)"
    )


def choose_device(wanted: str | None, model: nn.Module, *, moved: bool) -> torch.device:
    """Return the device to use: the requested one, the device of a loaded model, or a GPU if there is one."""
    own = next((each.device for each in model.parameters()), torch.device("cpu"))
    if wanted is None:
        if not moved:
            return own
        accelerator = getattr(torch, "accelerator", None)
        found = accelerator.current_accelerator() if accelerator is not None and accelerator.is_available() else None
        return torch.device("cpu") if found is None else torch.device(found)
    try:
        device = torch.device(wanted)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0][:150]
        raise ParameterError(f'device is {wanted!r}, which is not available: {why}; try device="cpu"') from error
    if not moved and device.type != own.type:
        raise ParameterError(
            f"device is {wanted!r}, but the model is on {own}: move the model, or pass its folder instead"
        )
    return device
