"""Attach a regularizer to a torch module with forward hooks."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

import torch
from torch import nn

from isoscope._core.errors import NotFoundError, ParameterError, ShapeError, plural, warn_data
from isoscope._core.random import check_seed
from isoscope.losses.istar import IStar
from isoscope.training.cached_losses import find_cached_loss, wrap_cached_loss
from isoscope.training.capture import (
    Capture,
    Hook,
    PooledRows,
    are_equal,
    check_finite_states,
    format_layer,
    row_text_ids,
    run_model,
)
from isoscope.training.gradient_accumulation import accumulation_share
from isoscope.training.gradient_ratio import gradient_ratio
from isoscope.training.layers import layer_places, plain_name, resolve_layers, unwrap_compiled
from isoscope.training.refresh import SHRINKAGE_STATES, shrinkage_sketch
from isoscope.training.trainers import (
    add_regularizer_callback,
    check_label_smoothing,
    find_calling_trainer,
    is_lightning,
    run_training_step,
)

if TYPE_CHECKING:
    from isoscope._core.types import Seed
    from isoscope.training.capture import Pool
    from isoscope.training.layers import Layer


class _TermInput(NamedTuple):
    """The rows from which a regularizer computes a term."""

    layer: Layer | None
    """The layer of the rows; None if they come from several layers."""
    rows: torch.Tensor
    labels: torch.Tensor | None
    groups: torch.Tensor | None


def _join_layers(inputs: list[_TermInput]) -> _TermInput:
    """Return the rows of all layers together."""
    widths = {each.rows.shape[1] for each in inputs}
    if len(widths) > 1:
        raise ShapeError(f"the layers have {sorted(widths)} dimensions: need equal dimensions to measure them together")
    if len(inputs) == 1:
        return inputs[0]._replace(groups=None)
    rows = torch.cat([each.rows.float() for each in inputs])
    return _TermInput(None, rows, _concat_labels([each.labels for each in inputs]), None)


_REVIEW_STEPS = 10
"""The number of steps after which skipped rows are reported."""
_MAX_SKIPPED_SHARE = 0.5
"""The share of skipped rows above which they are reported."""

_ATTACHED: WeakSet[Attachment] = WeakSet()
"""The attachments that have not been detached."""


def _row_counts(loss: Any) -> tuple[int, int]:
    """Return the numbers of rows that a regularizer has seen and skipped."""
    return getattr(loss, "rows_seen", 0), getattr(loss, "rows_skipped", 0)


def _options(loss: Any) -> dict[str, Any]:
    """Return the options of a regularizer, except its weight."""
    state = ("weight", "seen", "skipped", "rows_seen", "rows_skipped", "training")
    plain = {name: value for name, value in vars(loss).items() if isinstance(value, bool | int | float | str)}
    return {name: value for name, value in plain.items() if name not in state}


_LABELS = ("labels", "label", "targets", "target")


def attach(
    model: nn.Module,
    loss: nn.Module,
    layer: Layer | list[Layer] | None = None,
    pool: Pool | None = None,
    *,
    labels: str | Callable[..., Any] | None = None,
) -> Attachment:
    """Attach a regularizer to a torch module: in training mode, its term is added to the module's loss.

    The term is added to the `loss` in the output of a Hugging Face model, to the value of a Sentence Transformers loss
    (attach to the loss, which contains the model), or to the result of a Lightning module's `training_step`. If a
    module returns no loss, add the term in your own loop: ``loss = … + attachment.term``. Nothing is added in
    evaluation mode. Attaching uses forward hooks; no subclass is needed.

    Parameters
    ----------
    model : torch.nn.Module
        The outermost module that training calls, such as the PEFT model around a transformer.
    loss : torch.nn.Module
        `IStar`, `UnbiasedIsoScore`, `CosReg`, `PersistentEntropy`, or any module that maps (states, labels) to a
        scalar.
    layer : int, str or list, optional
        The hidden states to regularize: numbers as in Hugging Face's `hidden_states` (0 is the input of the first
        layer, −1 the last layer), "all", or names of modules. The default is that of the paper: "all" for `IStar`,
        otherwise −1.
    pool : {"cls", "mean", "last", "tokens"} or callable, optional
        How states of shape (texts, positions, d) become rows: the first token, the mean over tokens, the last token,
        all tokens, or a function of (states, mask). Padding is ignored. The default for `IStar` is "tokens". For the
        other regularizers, it is "last" if the model is causal (a decoder), otherwise "cls": in a causal model, the
        state of the first token does not depend on the text.
    labels : str or callable, optional
        The name of the module's argument that contains the classes, or a function of the module's arguments. By
        default, the argument named `labels`, `label`, `targets` or `target`.

    Returns
    -------
    Attachment
        Call `detach()` to remove it, or use it as a context manager. `follow(trainer)` refreshes `IStar`'s covariance.

    Examples
    --------
    >>> import torch, isoscope
    >>> from isoscope.losses import CosReg
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    >>> x, y = torch.randn(32, 8), torch.arange(32) % 2
    >>> with isoscope.attach(model, CosReg(weight=0.1), layer="1") as regularizer:
    ...     loss = torch.nn.functional.cross_entropy(model(x), y) + regularizer.term
    ...     loss.backward()
    >>> bool(model[0].weight.grad.isfinite().all())
    True
    """
    return Attachment(model, loss, layer, pool, labels)


class Attachment:
    """A regularizer attached to a model; see `attach`."""

    def __init__(self, model: nn.Module, loss: nn.Module, layer: Any, pool: Any, labels: Any) -> None:
        if not isinstance(model, nn.Module):
            raise ParameterError(f"model is a {type(model).__name__}: need a torch.nn.Module")
        if not callable(loss):
            raise ParameterError(
                f"loss is a {type(loss).__name__}: need a regularizer such as isoscope.losses.CosReg()"
            )
        if is_lightning(model) and not model.automatic_optimization:
            raise ParameterError(
                f"{type(model).__name__} uses manual optimization: attach to the inner module that it calls, and add "
                "attachment.term to the loss in its training_step"
            )
        self.model = model
        self.loss = loss
        self.layer = getattr(loss, "layer", -1) if layer is None else layer
        self.step = 0
        """The number of forward passes in training mode."""
        self.rows = 0
        """The number of rows that have taken part in a backward pass."""
        self.rows_with_gradient = 0
        """How many of them got a gradient from the term."""
        self.gradient_ratio = math.nan
        """The norm of the gradient of the last compared term, relative to that of the loss; see `compare_gradients`."""
        self.compared_at = 0
        """The step at which the gradients were last compared; 0 if never."""
        self._labels = labels
        called = model.training_step if is_lightning(model) else unwrap_compiled(model).forward
        self._names = list(inspect.signature(called).parameters)
        self._training = False
        self._arguments: tuple[Any, dict[str, Any]] = ((), {})
        self._pending: torch.Tensor | None = None
        self._taken = False
        self._last: torch.Tensor | None = None
        self._included: torch.Tensor | None = None
        self._compare_next = False
        self._comparing = False
        self._warned: set[str] = set()
        self._counts_before = _row_counts(loss)
        self._undo: list[Callable[[], Any]] = []
        self._places = layer_places(model, resolve_layers(model, self.layer))
        self._capture = Capture(
            model, self.layer, getattr(loss, "pool", None) if pool is None else pool, self._warn_bypass
        )
        self.pool = self._capture.pool
        self._undo.append(self._capture.remove)
        self._check_attached_once()
        _ATTACHED.add(self)
        cached = find_cached_loss(model)
        if cached is not None:
            self._wrap_cached_loss(cached)
        if is_lightning(model):
            self._wrap_training_step()
        else:
            before = model.register_forward_pre_hook(Hook(self._before), with_kwargs=True, prepend=True)
            after = model.register_forward_hook(Hook(self._forward_hook))
            self._undo += [before.remove, after.remove]

    @property
    def layers(self) -> list[Layer]:
        """The attached layers, as numbers from 0 or names."""
        return list(self._capture.layers)

    @property
    def term(self) -> torch.Tensor:
        """The term to add to the loss of this step; zero if the model's own loss already includes it."""
        self._taken = True
        return torch.zeros(()) if self._pending is None else self._pending

    @property
    def value(self) -> float:
        """The term of the last training step, for logging."""
        return float("nan") if self._last is None else float(self._last)

    @property
    def needs_refresh(self) -> bool:
        """Whether the regularizer uses a covariance that must be refreshed as the model changes."""
        return isinstance(self.loss, IStar) and self.loss.zeta > 0

    def refresh(self, batches: Iterable[Any], states: int = SHRINKAGE_STATES, *, seed: Seed = 0) -> int:
        """Recompute `IStar`'s covariance from the states of the current model.

        Parameters
        ----------
        batches : DataLoader or iterable
            The training set. A random subset of a loader's dataset is used, in batches of texts of equal length.
        states : int
            The minimum number of rows for the covariance; if there are fewer, all rows are used.
        seed : int
            Random seed for the subset.

        Returns
        -------
        int
            The number of rows used.
        """
        if not isinstance(self.loss, IStar):
            raise ParameterError(f"{type(self.loss).__name__} uses no covariance: there is nothing to refresh")
        sketch = shrinkage_sketch(self.model, self._capture, self._run_batch, batches, states, check_seed(seed))
        self.loss.refresh(sketch)
        return sketch.n

    def follow(self, trainer: Any, *, gradients: bool = False) -> Attachment:
        """Add a callback to a trainer to log the term and to refresh `IStar`'s covariance at each epoch.

        Parameters
        ----------
        trainer : Trainer
            A Hugging Face, Sentence Transformers or Lightning trainer.
        gradients : bool
            Whether to also log the gradient of the term relative to that of the loss, at each step that is logged. This
            takes two additional backward passes, and memory for one more set of gradients.
        """
        self._undo.append(add_regularizer_callback(trainer, self, gradients=gradients))
        return self

    def compare_gradients(self, loss: torch.Tensor) -> float:
        """Return the norm of the term's gradient divided by that of a loss, over the parameters that the term reaches.

        A ratio above 1 means that the regularizer outweighs the task. In your own training loop, call this between the
        forward pass and `backward()`, with the loss of the task alone.
        """
        if self._pending is None:
            raise ParameterError(
                "there is no term to compare with the loss: call compare_gradients after a forward pass in training "
                "mode; if the model returns its own loss, use follow(trainer, gradients=True)"
            )
        return self._compare(self._pending, loss)

    def compare_next_gradients(self) -> None:
        """Set `gradient_ratio` in the next training step of a model that returns its own loss."""
        self._compare_next = True

    def _compare(self, term: torch.Tensor, loss: torch.Tensor) -> float:
        self._compare_next, self._comparing, self.compared_at = False, True, self.step
        try:
            self.gradient_ratio = gradient_ratio(term, loss, self.model)
        finally:
            self._comparing = False
        return self.gradient_ratio

    def detach(self) -> None:
        """Remove all hooks and callbacks from the model and its trainers."""
        _ATTACHED.discard(self)
        while self._undo:
            self._undo.pop()()
        self._pending = None
        if self.step < _REVIEW_STEPS:
            self._warn_skipped_rows()

    def __enter__(self) -> Attachment:
        return self

    def __exit__(self, *_: Any) -> None:
        self.detach()

    def __repr__(self) -> str:
        return f"Attachment({self.loss!r} on {type(self.model).__name__}, layer={self.layer!r}, pool={self.pool!r})"

    def _check_attached_once(self) -> None:
        """Raise an error if the same regularizer is attached to the same states, because its term would count twice."""
        for other in list(_ATTACHED):
            same = type(other.loss) is type(self.loss) and other.pool == self.pool
            if same and other._places & self._places and _options(other.loss) == _options(self.loss):
                self.detach()
                raise ParameterError(
                    f"{type(self.loss).__name__} is already attached to {self._format_layers()} of "
                    f"{type(other.model).__name__}, so its term would count twice: call detach() on the first "
                    "attachment, or load the model again"
                )

    def _format_layers(self) -> str:
        return ", ".join(map(format_layer, self.layers[:3])) + (", …" if len(self.layers) > 3 else "")

    # while the model runs

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if getattr(module, "_is_replica", False):
            raise ParameterError(
                "torch.nn.DataParallel runs copies of the model, which share one regularizer: train with one process "
                "per device (torchrun, accelerate launch), or on one device (CUDA_VISIBLE_DEVICES=0)"
            )
        interrupted, self._training = self._training, module.training and torch.is_grad_enabled()
        if self._training:
            self._arguments, self._included = (args, kwargs), None
            self._capture.start()
        elif interrupted:  # the states of an interrupted run would stay in memory
            self._discard_run()

    def _discard_run(self) -> None:
        self._training = False
        self._capture.stop()
        self._arguments = ((), {})

    def _forward_hook(self, module: nn.Module, args: Any, output: Any) -> Any:
        training, self._training = self._training, False
        if training:
            return self._add_term_to_output(output)
        if not module.training and torch.is_grad_enabled():
            self._watch_evaluation(output)
        return None

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _watch_evaluation(self, output: Any) -> None:
        """Warn if gradients are computed from an output of the model in evaluation mode, which has no term."""
        result = _find_differentiable(output)
        if result is not None and "evaluation" not in self._warned:
            result.register_hook(self._warn_evaluation)

    def _warn_evaluation(self, _: torch.Tensor) -> None:
        if "evaluation" not in self._warned:
            self._warned.add("evaluation")
            warn_data(
                f"{type(self.model).__name__} is trained in evaluation mode, in which the term of "
                f"{type(self.loss).__name__} is not added: call train() on the module that you attached to"
            )

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _add_term_to_output(self, output: Any) -> Any:
        """Return the output of a training step with the term added to its loss."""
        seen = self._capture.stop()
        (args, kwargs), self._arguments = self._arguments, ((), {})
        if self._included is not None:
            self._last, self._included = self._included.detach(), None
            return None
        self.step += 1
        self._warn_unused_term()
        if not seen:
            raise NotFoundError(
                f"{self._format_layers()} did not run in {type(self.model).__name__} at step {self.step}: "
                "choose a layer that the model runs"
            )
        term = self._term(self._capture.rows(seen), self._find_labels(args, kwargs))
        term = term * accumulation_share(self.model, kwargs)
        self._last = term.detach()
        loss = _find_loss(output)
        if self._compare_next and loss is not None:
            self._compare(term, loss)
        finished = _add_term(output, term)
        if finished is None:
            check_label_smoothing(find_calling_trainer() if self.step == 1 else None)
            self._pending, self._taken = term, False
            return None
        return finished

    def _term(self, rows_by_layer: Mapping[Layer, list[PooledRows]], labels: Any) -> torch.Tensor:
        inputs = []
        needed, grouped = (getattr(self.loss, name, False) for name in ("needs_labels", "takes_groups"))
        for layer, runs in rows_by_layer.items():
            if runs:
                runs = _widest(runs)
                rows = torch.cat([each.states for each in runs]) if len(runs) > 1 else runs[0].states
                rows = rows.view_as(rows)  # its gradient is that of the term alone
                check_finite_states(rows, layer, f"at step {self.step}")
                groups = row_text_ids(runs) if grouped and runs[0].positions is not None else None
                inputs.append(_TermInput(layer, rows, _align_labels(runs, labels, needed), groups))
        if not any(each.rows.requires_grad for each in inputs):
            raise ParameterError(
                f"the states of {self._format_layers()} have no gradient: the layers below are frozen, or use "
                'reentrant checkpointing (set gradient_checkpointing_kwargs={"use_reentrant": False})'
            )
        if getattr(self.loss, "together", False):
            inputs = [_join_layers(inputs)]
        terms = [self._layer_term(each) for each in inputs]
        if self.step == _REVIEW_STEPS:
            self._warn_skipped_rows()
        return torch.stack([term.to(terms[0].device) for term in terms]).mean() if len(terms) > 1 else terms[0]

    def _layer_term(self, given: _TermInput) -> torch.Tensor:
        """Return the term of one layer, or of all layers together; warn if it has no gradient."""
        more = {} if given.groups is None else {"groups": given.groups}
        skipped = getattr(self.loss, "skipped", 0)
        term: torch.Tensor = self.loss(given.rows, given.labels, **more)
        where = self._format_layers() if given.layer is None else format_layer(given.layer)
        if are_equal(given.rows):
            self._warn_no_effect(where, f"its {len(given.rows)} states are all equal")
        elif given.rows.requires_grad and not term.requires_grad:
            self._warn_no_effect(where, "the term does not depend on the states")
        # A zero gradient is intended if the rows were skipped, the weight is 0 or the goal of the term is reached.
        wanted = getattr(self.loss, "skipped", 0) == skipped and bool(term.detach() != 0)
        if given.rows.requires_grad:
            given.rows.register_hook(functools.partial(self._look_at_gradient, where, wanted))
        return term

    def _look_at_gradient(self, where: str, wanted: bool, gradient: torch.Tensor) -> None:
        if self._comparing:
            return
        count = int((gradient != 0).any(dim=1).sum())
        self.rows += len(gradient)
        self.rows_with_gradient += count
        if wanted and not count:
            self._warn_no_effect(where, f"the gradient of the term is zero for all {len(gradient)} states")

    def _warn_skipped_rows(self) -> None:
        """Warn once if most rows of the first steps were skipped by the regularizer."""
        seen, skipped = (now - old for now, old in zip(_row_counts(self.loss), self._counts_before, strict=True))
        if skipped > _MAX_SKIPPED_SHARE * seen and self._warned.isdisjoint(("skipped", "effect")):
            self._warned.add("skipped")
            warn_data(
                f"{type(self.loss).__name__} skips {skipped / seen:.0%} of the rows in the first "
                f"{plural(self.step, 'step')}, because {self.loss.format_skipped()}"
            )

    def _warn_no_effect(self, where: str, reason: str) -> None:
        if "effect" not in self._warned:
            self._warned.add("effect")
            warn_data(
                f"{type(self.loss).__name__} has no effect on {where} at step {self.step}, because {reason}: choose "
                f"another pool (it is {self.pool!r}) or another layer"
            )

    def _warn_unused_term(self) -> None:
        if self._pending is not None and not self._taken and "pending" not in self._warned:
            self._warned.add("pending")
            warn_data(
                f"the term of step {self.step - 1} was not added to any loss, because {type(self.model).__name__} "
                "returns no loss: add attachment.term to your loss"
            )
        self._pending = None

    def _warn_bypass(self) -> None:
        if self.model.training and "outside" not in self._warned:
            self._warned.add("outside")
            warn_data(
                f"layers of {type(self.model).__name__} ran without a call to the model itself, so the "
                "regularizer was not applied: "
                "attach to the module that training calls, such as the PEFT model around a transformer"
            )

    def _find_labels(self, args: Any, kwargs: dict[str, Any]) -> Any:
        if callable(self._labels):
            return self._labels(*args, **kwargs)
        names = _LABELS if self._labels is None else (self._labels,)
        by_place = dict(zip(self._names, args, strict=False))
        for arguments in (by_place | kwargs, *(item for item in args if isinstance(item, Mapping))):
            for name in names:
                if name in arguments and arguments[name] is not None:
                    return arguments[name]
        if self._labels is not None:
            raise NotFoundError(
                f"labels is {self._labels!r}, but {type(self.model).__name__} received no argument with that name"
            )
        return None

    # Sentence Transformers

    def _wrap_cached_loss(self, cached: Any) -> None:
        names = {module: plain_name(path) for path, module in self.model.named_modules()}
        if self.layers != [names.get(cached.model)]:
            self.detach()
            raise ParameterError(
                f"{type(cached).__name__} computes gradients of the sentence embeddings only, not of layer "
                f'{self.layer!r}: set layer="{names.get(cached.model)}"'
            )
        self._undo.append(wrap_cached_loss(cached, self._cached_term))

    def _cached_term(self, columns: list[torch.Tensor]) -> torch.Tensor | None:
        """Return the term of the embeddings whose gradients a loss caches; None in evaluation mode."""
        if not self._training:
            return None
        self.step += 1
        args, kwargs = self._arguments
        runs = [PooledRows(rows, (len(rows),), torch.arange(len(rows), device=rows.device)) for rows in columns]
        self._included = self._term({self.layers[0]: runs}, self._find_labels(args, kwargs))
        return self._included

    # Lightning

    def _wrap_training_step(self) -> None:
        model, original = self.model, self.model.training_step

        @functools.wraps(original)
        def training_step(*args: Any, **kwargs: Any) -> Any:
            self._before(model, args, kwargs)
            output = original(*args, **kwargs)
            if output is None:  # Lightning skips the batch
                if self._training:
                    self._discard_run()
                return None
            finished = self._forward_hook(model, args, output)
            return output if finished is None else finished

        model.training_step = training_step
        self._undo.append(lambda: model.__dict__.pop("training_step", None))
        self._training_step = original

    def _run_batch(self, batch: Any) -> None:
        """Run the model on a batch from its trainer, to capture its states."""
        if not is_lightning(self.model):
            run_model(self.model, batch)
            return
        run_training_step(self.model, self._training_step, batch)


def _widest(runs: list[PooledRows]) -> list[PooledRows]:
    """Return the runs with the most dimensions; a `MatryoshkaLoss` produces one run per number of dimensions."""
    widths = [each.states.shape[1] for each in runs]
    return [each for each, width in zip(runs, widths, strict=True) if width == max(widths)]


def _find_loss(output: Any) -> torch.Tensor | None:
    """Return the loss in a module's output, or None."""
    if isinstance(output, MutableMapping):
        output = output.get("loss")
    elif isinstance(output, tuple) and output:
        output = output[0]
    return output if _is_loss(output) else None


def _add_term(output: Any, term: torch.Tensor) -> Any:
    """Return the output with the term added to its loss, or None if it has no loss."""
    loss = _find_loss(output)
    if loss is None:
        return None
    total = loss + term.to(loss.device)
    if isinstance(output, MutableMapping):
        output["loss"] = total
        return output
    if isinstance(output, tuple):
        rest = (total, *output[1:])
        return type(output)(*rest) if hasattr(output, "_fields") else rest
    return total


def _find_differentiable(output: Any) -> torch.Tensor | None:
    """Return the first tensor with a gradient in a module's output, or None; a model's loss comes first."""
    if torch.is_tensor(output):
        return output if output.requires_grad else None
    items = output.values() if isinstance(output, Mapping) else output if isinstance(output, tuple | list) else ()
    return next((found for each in items if (found := _find_differentiable(each)) is not None), None)


def _is_loss(value: Any) -> bool:
    return torch.is_tensor(value) and bool(value.ndim == 0 and value.is_floating_point() and value.requires_grad)


def _align_labels(runs: list[PooledRows], labels: Any, needed: bool) -> torch.Tensor | None:
    """Return the label of each row, given labels per text or per token; None if their shape does not match."""
    if labels is None:
        return None
    try:
        labels = torch.as_tensor(labels, device=runs[0].states.device)
    except (TypeError, ValueError, RuntimeError) as error:
        if not needed:
            return None
        raise ParameterError(
            f"labels has type {type(labels).__name__}: need a numeric tensor with one class per text; "
            "set labels= to the name of the argument that contains them, or use PersistentEntropy(per_class=False)"
        ) from error
    aligned = []
    for rows in runs:
        place = (rows.texts,) if labels.ndim == 1 else (rows.texts, rows.positions)
        known = all(index is not None for index in place)
        fits = known and labels.ndim <= len(place) and tuple(labels.shape) == rows.shape[: labels.ndim]
        if not fits and not needed:
            return None
        if not fits:
            raise ShapeError(
                f"labels has shape {tuple(labels.shape)}, but the batch has {rows.shape[0]} texts: need one class "
                'per text, or per token with pool="tokens"; without classes, use PersistentEntropy(per_class=False)'
            )
        aligned.append(labels[place])
    return torch.cat(aligned)


def _concat_labels(labels: list[torch.Tensor | None]) -> torch.Tensor | None:
    known = [each for each in labels if each is not None]
    return torch.cat(known) if len(known) == len(labels) else None
