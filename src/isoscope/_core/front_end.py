"""Detect where Python runs: in a notebook, at an interactive prompt, or in a script."""

from __future__ import annotations

import sys
from typing import Literal

FrontEnd = Literal["jupyter", "marimo", "prompt", "script"]


def find_front_end() -> FrontEnd:
    """Return where Python runs: "jupyter" (any IPython kernel, such as Colab's), "marimo", "prompt" or "script".

    >>> find_front_end()
    'script'
    """
    if "marimo" in sys.modules:
        import marimo

        if marimo.running_in_notebook():
            return "marimo"
    if "IPython" in sys.modules:
        from IPython import get_ipython

        shell = get_ipython()
        if shell is not None:
            return "jupyter" if getattr(shell, "kernel", None) is not None else "prompt"
    return "prompt" if hasattr(sys, "ps1") or sys.flags.interactive else "script"
