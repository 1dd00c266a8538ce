"""Labelled retrieval data from documents, query logs and clicks.

    run = darklode.build("handbook/", "queries.csv", "runs/first")    # or darklode.open("runs/first")
    run.table("triplets").to_pandas()

docs/guides/python.md walks through it. Names are loaded when they are first used: `import darklode` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from darklode.api import RunView, TableRows, build, evaluate, mine, open
    from darklode.pipeline.base.errors import DarklodeError
    from darklode.schemas.settings import Settings

__all__ = ["DarklodeError", "RunView", "Settings", "TableRows", "build", "evaluate", "mine", "open"]

_ELSEWHERE = {"DarklodeError": "darklode.pipeline.base.errors", "Settings": "darklode.schemas.settings"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'darklode' has no attribute {name!r}")
    return getattr(import_module(_ELSEWHERE.get(name, "darklode.api")), name)


def __dir__() -> list[str]:
    return __all__
