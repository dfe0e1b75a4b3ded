"""Find the layers of a model, and the hidden states in their outputs."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from isoscope._core.errors import NotFoundError, ParameterError

Layer = int | str
"""A hidden state: a number (0 is the input of the first layer, i the output of the i-th), or a module's name."""


class Stack(NamedTuple):
    """The stack of layers of a model."""

    names: list[str]
    """The names of the modules, first to last."""
    depth: int
    """The number of layers; larger than the number of modules if the model reuses modules, as ALBERT does."""
    owner: str
    """The name of the module that runs the layers."""


def find_stack(model: nn.Module) -> Stack:
    """Return the outermost list of layers in a model; if there are several, return the longest."""
    lists = _outermost({name: m for name, m in model.named_modules() if isinstance(m, nn.ModuleList) and len(m)})
    if not lists:
        lists = _outermost({name: m for name, m in model.named_modules() if type(m) is nn.Sequential and len(m) > 1})
        if not lists:
            raise NotFoundError(f"{type(model).__name__} has no list of layers to number: {format_module_names(model)}")
    longest = max(len(layers) for layers in lists.values())
    names = [name for name, layers in lists.items() if len(layers) == longest]
    if len(names) > 1:
        named = " or ".join(f'"{plain_name(name)}.{longest - 1}"' for name in names[:3])
        raise ParameterError(
            f"{type(model).__name__} has {len(names)} stacks of {longest} layers: pass a module's name, such as {named}"
        )
    name = names[0]
    blocks = [f"{name}.{i}" if name else str(i) for i in range(longest)]
    owner = name if isinstance(lists[name], nn.Sequential) else name.rpartition(".")[0]
    return Stack(blocks, max(longest, _configured_depth(model, name)), owner)


def _outermost(lists: dict[str, Any]) -> dict[str, Any]:
    """Return the lists that are not inside another list: layers, but not the experts or heads within them."""
    return {
        name: layers
        for name, layers in lists.items()
        if not any(other != name and (name.startswith(f"{other}.") or other == "") for other in lists)
    }


def _configured_depth(model: nn.Module, name: str) -> int:
    """Return the number of layers in the model's configuration if it shares layers, else 0."""
    parts = name.split(".")
    for end in range(len(parts), -1, -1):
        config = getattr(model.get_submodule(".".join(parts[:end])), "config", None)
        depth = getattr(config, "num_hidden_layers", None)
        if isinstance(depth, int) and getattr(config, "num_hidden_groups", None) is not None:
            return depth
    return 0


def default_pool(model: nn.Module, layers: Sequence[Layer]) -> str:
    """Return the pooling mode that suits a model: "last" if its layers attend only to earlier tokens, else "cls".

    In a causal model (a decoder), the state of the first token does not depend on the rest of the text.
    """
    names = [module_path(model, each) if isinstance(each, str) else find_stack(model).names[-1] for each in layers]
    return "last" if any(_is_causal(model, name) for name in names) else "cls"


def _is_causal(model: nn.Module, name: str) -> bool:
    """Return whether attention is causal in a module or, if it has none, in the innermost module around it that has."""
    parts = name.split(".")
    for end in range(len(parts), -1, -1):
        around = model.get_submodule(".".join(parts[:end]))
        flags = [each.is_causal for each in around.modules() if isinstance(getattr(each, "is_causal", None), bool)]
        if flags:
            return any(flags)
        if getattr(around, "config", None) is not None:
            return has_causal_config(around.config)
    return False


def has_causal_config(config: Any) -> bool:
    """Return whether a configuration is that of a causal Hugging Face model."""
    kind = getattr(config, "model_type", None)
    if not isinstance(kind, str):
        return False
    from transformers.models.auto import modeling_auto

    if getattr(config, "is_decoder", False):
        return True
    masked, causal = (getattr(modeling_auto, f"MODEL_FOR_{name}_LM_MAPPING_NAMES") for name in ("MASKED", "CAUSAL"))
    bidirectional = getattr(config, "use_bidirectional_attention", None) in (True, "all")
    return kind in causal and kind not in masked and not bidirectional


def unwrap_compiled(model: nn.Module) -> nn.Module:
    """Return the module inside a wrapper of `torch.compile`; other modules are returned unchanged."""
    inner = getattr(model, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else model


def plain_name(name: str) -> str:
    """Return the name of a module without the parts that `torch.compile` adds.

    >>> plain_name("_orig_mod.encoder._orig_mod.layer.3")
    'encoder.layer.3'
    """
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def module_path(model: nn.Module, name: str) -> str:
    """Return the path of a module, with the parts that `torch.compile` adds, from its name without them."""
    paths: Iterable[str] = (path for path, _ in model.named_modules())
    return next(path for path in paths if plain_name(path) == name)


def layer_places(model: nn.Module, layers: Sequence[Layer]) -> set[tuple[int, int]]:
    """Return where layers are read: the identity of a module, and 0 for its input or n for its n-th output."""
    places = set()
    for layer in layers:
        if isinstance(layer, str):
            places.add((id(model.get_submodule(module_path(model, layer))), 1))
        else:
            names = find_stack(model).names
            block = model.get_submodule(names[(max(layer, 1) - 1) % len(names)])
            places.add((id(block), -(-layer // len(names))))
    return places


def resolve_layers(model: nn.Module, layer: Layer | list[Layer] | tuple[Layer, ...] | str) -> list[Layer]:
    """Return the requested layers as numbers from 0 or module names, without duplicates."""
    requested = list(layer) if isinstance(layer, list | tuple) else [layer]
    if not requested:
        raise ParameterError('layer is empty: need a number, a module\'s name, "all", or a list of them')
    names = {plain_name(name) for name, _ in model.named_modules()}
    layers: list[Layer] = []
    for each in requested:
        if isinstance(each, bool) or not isinstance(each, int | str):
            raise ParameterError(f'layer is {each!r}: need a number, a module\'s name, "all", or a list of them')
        if each == "all":
            layers.extend(range(find_stack(model).depth + 1))
        elif isinstance(each, int):
            layers.append(_resolve_index(each, find_stack(model).depth))
        elif plain_name(each) in names and each:
            layers.append(plain_name(each))
        else:
            raise NotFoundError(_format_unknown_layer(each, names, model))
    return list(dict.fromkeys(layers))


def _resolve_index(number: int, depth: int) -> int:
    if not -depth - 1 <= number <= depth:
        raise ParameterError(
            f"layer is {number}: need 0 (the input) to {depth}, or −1 for the last of the model's {depth} layers"
        )
    return number % (depth + 1)


def _format_unknown_layer(name: str, names: set[str], model: nn.Module) -> str:
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5) or [n for n in sorted(names) if n.endswith(name)][:3]
    if near:
        return f"there is no layer {name!r} in {type(model).__name__}: the most similar names are {', '.join(near)}"
    return f"there is no layer {name!r} in {type(model).__name__}: {format_module_names(model)}"


def format_module_names(model: nn.Module) -> str:
    """Return advice with examples of module names, for an error message."""
    names = [plain_name(name) for name, _ in model.named_modules() if plain_name(name)]
    return f"pass a module's name, such as {', '.join(names[-3:])}" if names else "it contains no modules"


def find_hidden_states(output: Any, *, tokens: bool = True) -> torch.Tensor | None:
    """Return the hidden states in a module's output: a tensor, or one in a tuple, dict or model output."""
    if torch.is_tensor(output):
        return output
    if isinstance(output, Mapping):  # a BatchEncoding is not a dict
        keys = ["last_hidden_state", "token_embeddings", "hidden_states", "logits"]
        for key in keys if tokens else ["sentence_embedding", *keys]:
            if torch.is_tensor(output.get(key)):
                return output[key]
        return None
    if isinstance(output, tuple | list):
        return next((item for item in output if torch.is_tensor(item) and item.ndim >= 2), None)
    return None
