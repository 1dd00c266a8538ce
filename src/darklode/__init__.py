"""Labelled retrieval data from documents, query logs and clicks.

    import darklode

    run = darklode.demo()            # the bundled sample; darklode.build("handbook/", "queries.csv", "runs/first")
    run.report                       # a notebook shows it inline
    run.table("triplets")[0]         # .df() is pandas, .pl() Polars, .arrow Arrow

Functions have the names and arguments of the commands. docs/guides/python.md walks through them. Names are loaded when
they are first used: `import darklode` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from darklode.api.building import build, demo, generate, index, mine
    from darklode.api.measuring import audit, evaluate, validate
    from darklode.api.pages import WebPages
    from darklode.api.reading import export, open, report, search
    from darklode.api.rows import TableRows
    from darklode.api.serving import browse, review, serve
    from darklode.api.training import adapt, model_swap, train_reranker
    from darklode.api.views import JobResult, ReportPage, RunView
    from darklode.pipeline.base.errors import DarklodeError
    from darklode.schemas.settings import Settings

__all__ = [
    "DarklodeError",
    "JobResult",
    "ReportPage",
    "RunView",
    "Settings",
    "TableRows",
    "WebPages",
    "adapt",
    "audit",
    "browse",
    "build",
    "demo",
    "evaluate",
    "export",
    "generate",
    "index",
    "mine",
    "model_swap",
    "open",
    "report",
    "review",
    "search",
    "serve",
    "train_reranker",
    "validate",
]

_MODULES = {
    "darklode.api.building": ("build", "demo", "generate", "index", "mine"),
    "darklode.api.measuring": ("audit", "evaluate", "validate"),
    "darklode.api.pages": ("WebPages",),
    "darklode.api.reading": ("export", "open", "report", "search"),
    "darklode.api.rows": ("TableRows",),
    "darklode.api.serving": ("browse", "review", "serve"),
    "darklode.api.training": ("adapt", "model_swap", "train_reranker"),
    "darklode.api.views": ("JobResult", "ReportPage", "RunView"),
    "darklode.pipeline.base.errors": ("DarklodeError",),
    "darklode.schemas.settings": ("Settings",),
}


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        for module, names in _MODULES.items():
            if name in names:
                return getattr(import_module(module), name)
        raise AttributeError(f"module 'darklode' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
