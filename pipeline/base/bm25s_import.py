"""Import bm25s without JAX, or only its stop words."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from types import ModuleType
from typing import Any

_PACKAGE, _HIDDEN = "bm25s", "jax"


def import_bm25s() -> Any:
    """Import bm25s without its optional JAX backend, which Darklode does not use.

    bm25s runs JAX once when it is imported, if JAX is installed. JAX then reserves three quarters of the GPU's memory,
    which torch lacks afterwards, or fails if another process uses it.
    """
    modules: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]
    if _PACKAGE in modules or _HIDDEN in modules:
        return import_module(_PACKAGE)
    modules[_HIDDEN] = None  # its import raises ModuleNotFoundError
    try:
        return import_module(_PACKAGE)
    finally:
        del modules[_HIDDEN]


def bm25s_stop_words() -> tuple[str, ...]:
    """The English stop words of bm25s, from their file alone: importing the package takes a quarter of a second."""
    package = find_spec(_PACKAGE)
    assert package
    assert package.origin
    words: tuple[str, ...] = run_path(str(Path(package.origin).with_name("stopwords.py")))["STOPWORDS_EN_PLUS"]
    return words
