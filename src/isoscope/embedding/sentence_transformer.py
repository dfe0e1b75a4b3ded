"""Embed texts with a Sentence Transformers model, including its own pooling and normalization."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import FileFormatError, InputError, MissingExtra, NotFoundError, ParameterError
from isoscope.embedding.model_files import download_settings, find_foreign_code
from isoscope.embedding.texts import replace_surrogates
from isoscope.embedding.tokens import Tokens
from isoscope.embedding.transformer import HubTokenizer, compute_digest, format_trust_error
from isoscope.training.capture import evaluation_mode
from isoscope.training.layers import find_stack
from isoscope.training.loading import LOAD_ERRORS, format_load_error, mute_transformers, resolve_model_path

if TYPE_CHECKING:
    from isoscope.embedding.embedder import WindowBatch
    from isoscope.embedding.tokens import Tokenizer


class PlainTokenizer:
    """A tokenizer from the `tokenizers` package, which static models use."""

    before: Sequence[int] = ()
    after: Sequence[int] = ()
    unknown: int | None = None
    missed = 0

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def read(self, texts: list[str]) -> list[Tokens]:
        """See `Tokenizer`."""
        found = []
        for each in self._tokenizer.encode_batch(texts, add_special_tokens=False):
            places = np.asarray(each.offsets, np.int64).reshape(-1, 2)
            found.append(Tokens(np.asarray(each.ids, np.int64), places[:, 0], places[:, 1]))
        return found


class SentenceEmbedder:
    """A Sentence Transformers model, which returns one vector per text."""

    batch_tokens = 2_048
    can_pad = True
    uses_accelerator = False

    def __init__(
        self,
        model: Any,
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
        device: str | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        if isinstance(model, str):
            self.name, self._model = model, _load(model, device, trust_remote_code)
        elif hasattr(model, "encode") and hasattr(model, "get_max_seq_length"):
            self.name, self._model = type(model).__name__, model
        else:
            raise ParameterError(
                f'model is a {type(model).__name__}, but pool is "sentence-transformers": need a SentenceTransformer, '
                "or its folder or name"
            )
        tokenizer = self._model.tokenizer
        hub = hasattr(tokenizer, "convert_ids_to_tokens")
        self.reader: Tokenizer = HubTokenizer(tokenizer, self.name) if hub else PlainTokenizer(tokenizer)
        self.prompt = self._choose_prompt(prompt, prompt_name)
        self.part = ", ".join(type(module).__name__ for module in self._model)
        longest = self._model.get_max_seq_length()
        self.max_length = None if longest is None or longest > 10**9 else self._room(int(longest))
        self.dim = self._encode(["a"]).shape[1]
        try:
            self.layers = [find_stack(self._model).depth]
        except InputError:  # a static model has no layers
            self.layers = [0]

    @cached_property
    def digest(self) -> str:
        """See `Embedder`; includes the settings of the modules and the default prompt."""
        return compute_digest(self._model, f"{self._model}{self._default_prompt()!r}")

    def causal(self) -> bool:
        """See `Embedder`; never used, because a text is one window."""
        return False

    def evaluation_mode(self) -> AbstractContextManager[None]:
        """See `Embedder`."""
        return evaluation_mode(self._model)

    def prepare(self, ids: np.ndarray) -> None:
        """See `Embedder`; nothing to prepare."""

    def states(self, given: WindowBatch) -> Iterator[tuple[int, np.ndarray]]:
        """See `Embedder`; yields the text's vector as the state of a single token."""
        texts = [replace_surrogates(given.text(document)) for document in given.documents.tolist()]
        yield self.layers[0], self._encode(texts)[:, None, :]

    def strings(self, ids: Sequence[int]) -> list[str]:
        """See `Embedder`; rows are not tokens."""
        raise NotImplementedError

    def close(self) -> None:
        """See `Embedder`."""

    def _choose_prompt(self, prompt: str | None, name: str | None) -> str | None:
        """Return the requested prompt, given as text or by its name in the model."""
        if prompt is not None and name is not None:
            raise ParameterError("prompt and prompt_name are both set: pass only one of them")
        if name is None:
            return prompt
        prompts = self._model.prompts
        if name not in prompts:
            has = f"its prompts are {', '.join(prompts)}" if prompts else "it has no prompts"
            raise NotFoundError(f"{self.name} has no prompt named {name!r}: {has}; to pass a text, use prompt")
        return prompts[name] or ""

    def _default_prompt(self) -> str | None:
        """Return the prompt that the model uses by default."""
        prompt: str | None = self._model.prompts.get(self._model.default_prompt_name)
        return prompt

    def _room(self, longest: int) -> int:
        """Return the number of tokens of a text, including special tokens, that the model reads after the prompt."""
        used = self._default_prompt() if self.prompt is None else self.prompt
        length = len(self.reader.read([used])[0].ids) if used else 0
        if longest - length <= len(self.reader.before) + len(self.reader.after):
            raise ParameterError(
                f"the prompt has {length} tokens, but {self.name} reads only {longest}: pass a shorter prompt"
            )
        return longest - length

    def _encode(self, texts: list[str]) -> np.ndarray:
        options: dict[str, Any] = {} if self.prompt is None else {"prompt": self.prompt}
        with self.evaluation_mode():  # restores the model's mode afterward
            made = self._model.encode(
                texts, batch_size=len(texts), show_progress_bar=False, convert_to_numpy=True, **options
            )
        return np.asarray(made)


def _load(name: str, device: str | None, trust: bool) -> Any:
    try:
        with mute_transformers():
            from sentence_transformers import SentenceTransformer
    except ModuleNotFoundError as error:
        raise MissingExtra(
            'pool="sentence-transformers" needs the package sentence-transformers: pip install '
            '"isoscope[sentence-transformers]"'
        ) from error
    place, revision = resolve_model_path(name), None
    folder = Path(place)
    if folder.is_dir() and not (folder / "modules.json").is_file():
        raise FileFormatError(
            f"{name} is not a Sentence Transformers model because it has no modules.json: "
            'use pool="mean", "cls" or "last"'
        )
    with mute_transformers():
        try:
            if not folder.is_dir():
                folder = download_settings(place)
                revision = folder.name  # the settings that are checked are those that are loaded
            if not trust and (found := find_foreign_code(folder)):
                raise ParameterError(format_trust_error(name, found))
            return SentenceTransformer(place, device=device, trust_remote_code=trust, revision=revision)
        except InputError:
            raise
        except LOAD_ERRORS as error:
            needed = "trust_remote_code" in str(error)
            why = (
                format_trust_error(name)
                if needed
                else format_load_error(name, error, "loaded by Sentence Transformers")
            )
            raise FileFormatError(why) from error
