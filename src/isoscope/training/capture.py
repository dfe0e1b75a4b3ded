"""Capture the hidden states of a model's layers with forward hooks, and pool them."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn

from isoscope._core.errors import MissingValueError, NotFoundError, ParameterError, ShapeError, warn_data
from isoscope.training.layers import default_pool, find_hidden_states, find_stack, module_path, resolve_layers

if TYPE_CHECKING:
    from isoscope.training.layers import Layer


Pool = str | Callable[..., torch.Tensor]
"""A pooling mode: one of `POOLS`, or a function of (states, mask) that returns a tensor of shape (n, d)."""

POOLS = ("cls", "mean", "last", "tokens")
"""The names of the pooling modes."""


class PooledRows(NamedTuple):
    """The pooled states of a batch, with the origin of each row."""

    states: torch.Tensor
    shape: tuple[int, ...]
    """The number of texts and the number of positions in the batch."""
    texts: torch.Tensor | None
    """The index of each row's text in the batch; None if a pooling function returned another number of rows."""
    positions: torch.Tensor | None = None
    """The position of each row in its text, if rows are tokens."""


def row_text_ids(runs: Sequence[PooledRows]) -> torch.Tensor | None:
    """Return the text number of each row, unique over several runs of a model; None if it is unknown."""
    ids, first = [], 0
    for rows in runs:
        if rows.texts is None:
            return None
        ids.append(rows.texts + first)
        first += rows.shape[0]
    return torch.cat(ids)


def check_pool(pool: Any) -> Pool:
    """Return `pool`; raise an error if it is neither the name of a pooling mode nor a function."""
    if callable(pool) or pool in POOLS:
        return pool  # type: ignore[no-any-return]
    named = ", ".join(f'"{name}"' for name in POOLS)
    raise ParameterError(
        f"pool is {pool!r}: need one of {named}, or a function of (states, mask) that returns a tensor of shape (n, d)"
    )


def pool_states(states: torch.Tensor, mask: torch.Tensor | None, pool: Pool, where: str) -> PooledRows:
    """Pool states of shape (texts, positions, d) into rows; `mask` is 1 for tokens and 0 for padding.

    States of shape (n, d) are returned unchanged. A text without tokens has no row.
    """
    if callable(pool):
        rows = pool(states, mask)
        if not torch.is_tensor(rows) or rows.ndim != 2:
            returned = f"shape {tuple(rows.shape)}" if torch.is_tensor(rows) else f"a {type(rows).__name__}"
            raise ShapeError(f"pool returned {returned} for {where}: need a tensor of shape (n, d)")
        texts = torch.arange(len(rows), device=rows.device) if len(rows) == len(states) else None
        return PooledRows(rows, tuple(states.shape[:2]), texts)
    shape = tuple(states.shape[:2])
    if states.ndim == 2:
        return PooledRows(states, shape, torch.arange(len(states), device=states.device))
    if states.ndim != 3:
        raise ShapeError(
            f"the states of {where} have shape {tuple(states.shape)}: need (texts, positions, d) or (n, d); "
            "otherwise, set pool to a function of (states, mask) that returns a tensor of shape (n, d)"
        )
    if mask is None:
        mask = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device)
    elif tuple(mask.shape) != tuple(states.shape[:2]):
        raise ShapeError(
            f"the attention mask has shape {tuple(mask.shape)}, but the states of {where} have shape "
            f"{tuple(states.shape)}: need a mask of shape {tuple(states.shape[:2])}, for the same texts and positions"
        )
    mask = mask.to(states.device) > 0
    if pool == "tokens":
        texts, positions = mask.nonzero(as_tuple=True)
        return PooledRows(states[texts, positions], shape, texts, positions)
    texts = mask.any(dim=1).nonzero()[:, 0]
    if len(texts) < len(states):
        states, mask = states[texts], mask[texts]
    if pool == "mean":
        wide = states if states.dtype == torch.float64 else states.float()
        total = wide.masked_fill(~mask.unsqueeze(2), 0).sum(dim=1)
        return PooledRows(total / mask.sum(dim=1, keepdim=True), shape, texts)
    return PooledRows(
        states[torch.arange(len(texts), device=states.device), pooled_positions(mask, pool)], shape, texts
    )


def pooled_positions(mask: torch.Tensor, pool: str) -> torch.Tensor:
    """Return the position of the first ("cls") or last token of each text.

    >>> mask = torch.tensor([[0, 1, 1], [1, 1, 0]])
    >>> pooled_positions(mask, "cls").tolist(), pooled_positions(mask, "last").tolist()
    ([1, 0], [2, 1])
    """
    if pool == "cls":
        return mask.int().argmax(dim=1)
    return mask.shape[1] - 1 - mask.flip(1).int().argmax(dim=1)


class LayerOutput(NamedTuple):
    """The output of a layer in one forward pass."""

    layer: Layer
    states: torch.Tensor
    mask: torch.Tensor | None


class Hook:
    """A hook that does nothing in copies of the model and in models loaded from a file."""

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        """Call the hook's function."""
        return None if self.function is None else self.function(*arguments)

    def __deepcopy__(self, memo: Any) -> Hook:
        return Hook()

    def __reduce__(self) -> Any:
        return Hook, ()


class Capture:
    """Capture the states of a model's layers with forward hooks while `on` is true; `remove()` removes the hooks.

    If `pool` is None, the pooling mode is that of `default_pool`.
    The last layer is the model's `last_hidden_state`, after its final norm; layer 0 is the input of the first layer. If
    a loss runs the model several times, every run is captured.
    """

    def __init__(self, model: nn.Module, layer: Any, pool: Any, outside: Callable[[], None] | None = None) -> None:
        self.layers = resolve_layers(model, layer)
        self._outside = outside
        self.pool: Pool = check_pool(default_pool(model, self.layers) if pool is None else pool)
        self.on = False
        self.seen: list[LayerOutput] = []
        self._mask: torch.Tensor | None = None
        self._decoder_mask: torch.Tensor | None = None
        self._warned = False
        self._calls: dict[str, int] = {}
        self._handles: list[Any] = []
        self._tokens = self.pool == "tokens"
        names = [layer for layer in self.layers if isinstance(layer, str)]
        numbers = [layer for layer in self.layers if isinstance(layer, int)]
        around: dict[str, None] = {}
        for name in names:
            around.update(dict.fromkeys(_enclosing_modules(module_path(model, name))))
        if numbers:
            around.update(dict.fromkeys(_enclosing_modules(find_stack(model).owner)))
        for name in sorted(around, key=len):
            self._watch_mask(model, name)
        self._watch_decoders(model, sorted(around, key=len))
        if numbers:
            self._watch_stack(model, numbers)
        for name in names:
            self._watch_name(model, name)

    def start(self) -> None:
        """Discard captured states and start capturing."""
        self.seen = []
        self._mask = None
        self._calls = {}
        self.on = True

    def stop(self) -> list[LayerOutput]:
        """Stop capturing and return the captured states."""
        seen, self.seen, self.on = self.seen, [], False
        return seen

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _watch_mask(self, model: nn.Module, name: str) -> None:
        module = model.get_submodule(name)
        parameters = _forward_parameters(module)
        place = parameters.index("attention_mask") if "attention_mask" in parameters else None

        def look(_: nn.Module, args: Any, kwargs: Any) -> None:
            if self.on:
                mask = _find_mask(args, kwargs, place)
                if mask is not None:
                    self._mask = mask
                elif not name and torch.is_tensor(kwargs.get("attention_mask")):
                    self._warn_mask_shape(kwargs["attention_mask"])

        self._handles.append(module.register_forward_pre_hook(Hook(look), with_kwargs=True))

    def _watch_decoders(self, model: nn.Module, around: list[str]) -> None:
        """Use the decoder's own mask for its layers; the mask passed to an encoder-decoder model is for the encoder."""
        both = [name for name in around if "decoder_attention_mask" in _forward_parameters(model.get_submodule(name))]
        decoders = [name for name in around if both and name.rpartition(".")[2] == "decoder"]

        def look(_: nn.Module, __: Any, kwargs: Any) -> None:
            if self.on:
                self._decoder_mask = _find_decoder_mask(kwargs)

        def enter(_: nn.Module, __: Any, kwargs: Any) -> None:
            if self.on and self._decoder_mask is not None and _find_mask((), kwargs, None) is None:
                self._mask = self._decoder_mask

        for name, hook in [*((name, look) for name in both[:1] if decoders), *((name, enter) for name in decoders)]:
            self._handles.append(model.get_submodule(name).register_forward_pre_hook(Hook(hook), with_kwargs=True))

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _warn_mask_shape(self, mask: torch.Tensor) -> None:
        if not self._warned:
            self._warned = True
            warn_data(
                f"the attention mask has shape {tuple(mask.shape)}, from which the padding cannot be determined, "
                "so padding is counted as tokens: pass a mask of shape (texts, positions), or set pool to a function"
            )

    def _watch_stack(self, model: nn.Module, numbers: list[int]) -> None:
        stack = find_stack(model)
        repeats = stack.depth > len(stack.names)

        def begin(_: nn.Module, __: Any) -> None:
            if self.on:
                self._calls = {}

        def keep_input(_: nn.Module, args: Any, kwargs: Any) -> None:
            if self.on and not (repeats and self._calls):
                states = args[0] if args else kwargs.get("hidden_states")
                if torch.is_tensor(states):
                    self.seen.append(LayerOutput(0, states, self._mask))

        def make_hook(place: int, name: str) -> Any:
            def keep(_: nn.Module, __: Any, output: Any) -> None:
                if not self.on:
                    self._report_bypass()
                    return
                number = place + 1
                if repeats:
                    number += len(stack.names) * self._calls.get(name, 0)
                    self._calls[name] = self._calls.get(name, 0) + 1
                states = find_hidden_states(output)
                if states is not None and number in numbers:
                    self.seen.append(LayerOutput(number, states, self._mask))

            return keep

        def replace_last(_: nn.Module, __: Any, output: Any) -> None:
            if not self.on:
                return
            states = output.get("last_hidden_state") if isinstance(output, Mapping) else None
            if torch.is_tensor(states):
                for place in range(len(self.seen) - 1, -1, -1):
                    if self.seen[place].layer == stack.depth:
                        self.seen[place] = self.seen[place]._replace(states=states)
                        break

        if repeats:
            self._handles.append(model.get_submodule(stack.owner).register_forward_pre_hook(Hook(begin)))
        if 0 in numbers:
            self._handles.append(
                model.get_submodule(stack.names[0]).register_forward_pre_hook(Hook(keep_input), with_kwargs=True)
            )
        for place, name in enumerate(stack.names):
            if repeats or place + 1 in numbers:
                self._handles.append(model.get_submodule(name).register_forward_hook(Hook(make_hook(place, name))))
        if stack.depth in numbers:
            for name in reversed(_enclosing_modules(stack.owner)):
                self._handles.append(model.get_submodule(name).register_forward_hook(Hook(replace_last)))

    def _watch_name(self, model: nn.Module, name: str) -> None:
        def keep(_: nn.Module, __: Any, output: Any) -> None:
            if not self.on:
                self._report_bypass()
                return
            states = find_hidden_states(output, tokens=self._tokens)
            if states is None:
                raise NotFoundError(
                    f"{name} returns a {type(output).__name__} without hidden states: choose another layer"
                )
            self.seen.append(LayerOutput(name, states, self._mask))

        self._handles.append(model.get_submodule(module_path(model, name)).register_forward_hook(Hook(keep)))

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _report_bypass(self) -> None:
        """Report a layer that ran with gradients but was not captured, except in the backward pass of a checkpoint."""
        if self._outside and torch.is_grad_enabled() and torch._C._current_graph_task_id() == -1:
            self._outside()

    def rows(self, seen: list[LayerOutput]) -> dict[Layer, list[PooledRows]]:
        """Return the rows of each layer, one item per run of the model."""
        rows: dict[Layer, list[PooledRows]] = {layer: [] for layer in self.layers}
        for layer, states, mask in seen:
            rows[layer].append(pool_states(states, mask, self.pool, format_layer(layer)))
        return rows


def format_layer(layer: Layer) -> str:
    """Return the name of a layer for messages."""
    return f"layer {layer}" if isinstance(layer, int) else layer


def are_equal(rows: torch.Tensor) -> bool:
    """Return whether all rows are equal up to rounding; False for fewer than two rows."""
    if len(rows) < 2:
        return False
    with torch.no_grad():
        eps = torch.finfo(torch.float64 if rows.dtype == torch.float64 else torch.float32).eps
        return bool((rows - rows[:1]).abs().max() <= 8 * eps * rows.abs().max())


def check_finite_states(rows: torch.Tensor, layer: Layer, when: str) -> None:
    """Raise an error that names the layer if its rows contain NaN or infinity; a single sum usually rules this out."""
    with torch.no_grad():
        if bool(rows.sum(dtype=torch.float64).isfinite()):
            return
        bad = int((~rows.isfinite().all(dim=1)).sum())
        if bad:
            raise MissingValueError(
                f"the hidden states of {format_layer(layer)} contain NaN or infinity in {bad} of {len(rows)} rows "
                f"{when}: the model has diverged; lower the learning rate or the regularizer's weight, or check the "
                "inputs"
            )


def probe_states(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    layer: Any = "all",
    pool: Any = None,
    calling: Callable[[Any, Any], Any] | None = None,
) -> dict[Layer, np.ndarray]:
    """Return the rows of each layer for these batches, computed in evaluation mode and without gradients.

    The model is unchanged afterward. `calling` runs the model on a batch; by default a dict is passed as keyword
    arguments and a tuple as positional arguments.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    >>> {name: rows.shape for name, rows in probe_states(model, [torch.ones(5, 4), torch.ones(2, 4)]).items()}
    {0: (7, 4), 1: (7, 3), 2: (7, 3), 3: (7, 2)}
    """
    return {name: rows.states for name, rows in probe_rows(model, batches, layer, pool, calling).items()}


class ProbeRows(NamedTuple):
    """The rows of a layer for a list of batches."""

    states: np.ndarray
    texts: np.ndarray | None
    """The index of each row's text if rows are tokens; None if each row is one text, or if its text is unknown."""


def probe_rows(
    model: nn.Module, batches: Iterable[Any], layer: Any, pool: Any, calling: Callable[[Any, Any], Any] | None
) -> dict[Layer, ProbeRows]:
    """Return the rows of each layer as `probe_states` does, with the text of each token."""
    capture = Capture(model, layer, pool)
    parts: dict[Layer, list[np.ndarray]] = {layer: [] for layer in capture.layers}
    texts: dict[Layer, list[np.ndarray | None]] = {layer: [] for layer in capture.layers}
    try:
        with evaluation_mode(model):
            for batch in batches:
                capture.start()
                (calling or run_model)(model, batch)
                for name, runs in capture.rows(capture.stop()).items():
                    parts[name].extend(rows.states.float().cpu().numpy() for rows in runs)
                    tokens = bool(runs) and runs[0].positions is not None
                    own = row_text_ids(runs) if tokens else None
                    texts[name].append(None if own is None else own.cpu().numpy())
    finally:
        capture.remove()
    for name, arrays in parts.items():
        if not arrays:
            raise NotFoundError(f"{format_layer(name)} of {type(model).__name__} did not run: choose another layer")
    return {name: ProbeRows(np.concatenate(arrays), _offset_text_ids(texts[name])) for name, arrays in parts.items()}


def _offset_text_ids(texts: list[np.ndarray | None]) -> np.ndarray | None:
    """Return text numbers that are unique over all batches; each batch numbers its texts from 0."""
    ids, first = [], 0
    for own in texts:
        if own is None:
            return None
        ids.append(own + first)
        first = int(ids[-1].max(initial=first - 1)) + 1
    return np.concatenate(ids)


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Switch to evaluation mode without gradients; on exit, restore the modules' modes and the random states."""
    modes = [(module, module.training) for module in model.modules()]
    others = random.getstate(), np.random.get_state()  # noqa: NPY002 - datasets and collators may draw from these
    device = _device(model)
    model.eval()
    try:
        with torch.random.fork_rng([device] if device is not None and device.type == "cuda" else []), torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training
        random.setstate(others[0])
        np.random.set_state(others[1])  # noqa: NPY002


def run_model(model: Any, batch: Any) -> Any:
    """Call a model with a batch on its device; pass a dict as keyword arguments and a tuple as positional arguments."""
    batch = _move_to_device(batch, _device(model))
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple | list) else model(batch)


def _device(model: nn.Module) -> torch.device | None:
    first = next(model.parameters(), None)
    return None if first is None else first.device


def _move_to_device(batch: Any, device: torch.device | None) -> Any:
    if torch.is_tensor(batch):
        return batch if device is None else batch.to(device)
    if isinstance(batch, Mapping):
        return {key: _move_to_device(batch[key], device) for key in batch}
    if isinstance(batch, tuple | list):
        return type(batch)(_move_to_device(item, device) for item in batch)
    return batch


def _enclosing_modules(name: str) -> list[str]:
    """Return the names of a module and the modules around it, outermost first: "", "a", "a.b"."""
    parts = name.split(".") if name else []
    return [".".join(parts[:end]) for end in range(len(parts) + 1)]


def _forward_parameters(module: nn.Module) -> list[str]:
    return list(inspect.signature(module.forward).parameters)


def _find_decoder_mask(kwargs: dict[str, Any]) -> torch.Tensor | None:
    """Return the decoder's mask: the one that was passed, else the positions that have a label, else all positions."""
    names = ("decoder_attention_mask", "labels", "decoder_input_ids")
    values: list[Any] = [kwargs.get(name) for name in names]
    mask, labels, ids = values
    if torch.is_tensor(mask) and mask.ndim == 2:
        return mask
    if torch.is_tensor(labels) and labels.ndim == 2:
        return labels != -100
    return torch.ones_like(ids) if torch.is_tensor(ids) and ids.ndim == 2 else None


def _find_mask(args: Any, kwargs: dict[str, Any], place: int | None) -> torch.Tensor | None:
    """Return the (texts, positions) mask among a module's arguments; masks of other shapes are ignored."""
    mask: Any = kwargs.get("attention_mask")
    if mask is None and place is not None and place < len(args):
        mask = args[place]
    if mask is None and args and isinstance(args[0], Mapping):
        mask = args[0].get("attention_mask")
    if mask is None and kwargs.get("src_key_padding_mask") is not None:
        mask = ~kwargs["src_key_padding_mask"]
    return mask if torch.is_tensor(mask) and mask.ndim == 2 else None
