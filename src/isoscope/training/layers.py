"""Where the hidden states of a model are: its stack of layers, a module by its name, the place in its output."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from isoscope._core.errors import InputError

Layer = int | str
"""A hidden state: a number (0 is what goes into the first layer, i what comes out of the i-th), or a module's name."""


class Stack(NamedTuple):
    """The layers of a model, one on top of the other."""

    names: list[str]
    """The modules, from the bottom."""
    depth: int
    """How many layers there are: more than modules where a model runs the same ones again and again (ALBERT)."""
    owner: str
    """The module that runs them."""


def find_stack(model: nn.Module) -> Stack:
    """The outermost list of layers in a model; where there are several, the longest."""
    lists = _outermost({name: m for name, m in model.named_modules() if isinstance(m, nn.ModuleList) and len(m)})
    if not lists:
        lists = _outermost({name: m for name, m in model.named_modules() if type(m) is nn.Sequential and len(m) > 1})
        if not lists:
            raise InputError(
                f"{type(model).__name__} has no list of layers to count: give a module's name, "
                f"{format_module_names(model)}"
            )
    longest = max(len(found) for found in lists.values())
    names = [name for name, found in lists.items() if len(found) == longest]
    if len(names) > 1:
        named = " or ".join(f'"{name}.{longest - 1}"' for name in names[:3])
        raise InputError(
            f"{type(model).__name__} has {len(names)} stacks of {longest} layers: give a module's name, such as {named}"
        )
    name = names[0]
    blocks = [f"{name}.{i}" if name else str(i) for i in range(longest)]
    owner = name if isinstance(lists[name], nn.Sequential) else name.rpartition(".")[0]
    return Stack(blocks, max(longest, _configured_depth(model, name)), owner)


def _outermost(lists: dict[str, Any]) -> dict[str, Any]:
    """Those that are in no other: the layers, and not the experts or heads inside them."""
    return {
        name: found
        for name, found in lists.items()
        if not any(other != name and (name.startswith(f"{other}.") or other == "") for other in lists)
    }


def _configured_depth(model: nn.Module, name: str) -> int:
    """What the configuration of the model around the layers says of their number; 0 where there is none."""
    parts = name.split(".")
    for end in range(len(parts), -1, -1):
        config = getattr(model.get_submodule(".".join(parts[:end])), "config", None)
        depth = getattr(config, "num_hidden_layers", None)
        if isinstance(depth, int) and getattr(config, "num_hidden_groups", None) is not None:
            return depth
    return 0


def resolve_layers(model: nn.Module, layer: Layer | list[Layer] | tuple[Layer, ...] | str) -> list[Layer]:
    """Check which layers are asked for: numbers from 0, or names of modules, each once."""
    asked = list(layer) if isinstance(layer, list | tuple) else [layer]
    if not asked:
        raise InputError('layer is empty: need a number, a module\'s name, "all", or a list of them')
    names = {name for name, _ in model.named_modules()}
    found: list[Layer] = []
    for one in asked:
        if isinstance(one, bool) or not isinstance(one, int | str):
            raise InputError(f'layer is {one!r}: need a number, a module\'s name, "all", or a list of them')
        if one == "all":
            found.extend(range(find_stack(model).depth + 1))
        elif isinstance(one, int):
            found.append(_resolve_index(one, find_stack(model).depth))
        elif one in names and one:
            found.append(one)
        else:
            raise InputError(_format_unknown_layer(one, names, model))
    return list(dict.fromkeys(found))


def _resolve_index(number: int, depth: int) -> int:
    if not -depth - 1 <= number <= depth:
        raise InputError(
            f"layer is {number}: the model has {depth}, need 0 (what goes in) to {depth}, or −1 for the last"
        )
    return number % (depth + 1)


def _format_unknown_layer(name: str, names: set[str], model: nn.Module) -> str:
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5) or [n for n in sorted(names) if n.endswith(name)][:3]
    if near:
        return f"there is no layer {name!r} in {type(model).__name__}: the nearest names are {', '.join(near)}"
    return f"there is no layer {name!r} in {type(model).__name__}: {format_module_names(model)}"


def format_module_names(model: nn.Module) -> str:
    """A few names that a layer could have."""
    names = [name for name, _ in model.named_modules() if name]
    return f"such as {', '.join(names[-3:])}" if names else "and it has no modules inside"


def find_hidden_states(output: Any, *, tokens: bool = True) -> torch.Tensor | None:
    """The hidden states in what a module returns: a tensor, or the one for it in a tuple, a dict or a model output."""
    if torch.is_tensor(output):
        return output
    if isinstance(output, Mapping):  # a tokenizer's BatchEncoding is no dict
        keys = ["last_hidden_state", "token_embeddings", "hidden_states", "logits"]
        for key in keys if tokens else ["sentence_embedding", *keys]:
            if torch.is_tensor(output.get(key)):
                return output[key]
        return None
    if isinstance(output, tuple | list):
        return next((item for item in output if torch.is_tensor(item) and item.ndim >= 2), None)
    return None
