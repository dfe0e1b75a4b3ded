"""Lazy packages: public names are imported on first use, so that `import isoscope` stays fast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

_MODULES_OF_THE_TRAIN_EXTRA = ("torch", "transformers")


def lazy_package(
    package: str, homes: dict[str, list[str]], subpackages: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for a package that imports its public names on first use.

    Parameters
    ----------
    package : str
        The name of the package, `__name__` in its `__init__.py`.
    homes : dict of str to list of str
        Maps each module, relative to the package, to the public names that it defines.
    subpackages : sequence of str
        Packages and modules that are also available as attributes, without an explicit import.

    Examples
    --------
    >>> getattribute, _, names = lazy_package("isoscope.stores", {"open": ["open_store"]})
    >>> names, getattribute("open_store").__name__
    (['open_store'], 'open_store')
    """
    modules = {name: f"{package}.{module}" for module, names in homes.items() for name in names}
    public = sorted(modules)

    def get_attribute(name: str) -> Any:
        if name in subpackages:
            return import_module(f"{package}.{name}")  # the import makes it an attribute of the package
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(_import_home(modules[name], name), name)
        setattr(import_module(package), name, value)  # the next access bypasses this function
        return value

    def list_attributes() -> list[str]:
        return sorted({*public, *subpackages})

    return get_attribute, list_attributes, public


def _import_home(module: str, name: str) -> ModuleType:
    """Import the module that defines a public name; if torch is missing, the error says how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in _MODULES_OF_THE_TRAIN_EXTRA:
            raise
        from isoscope._core.errors import MissingExtra

        message = f'{name} needs {error.name}, which is not installed: pip install "isoscope[train]"'
        raise MissingExtra(message) from error
