"""darklode cache: the embedding cache, shown and pruned."""

from typing import Annotated

import typer

from darklode.flows.commands.options import SetOption, application
from darklode.flows.config import load_settings
from darklode.flows.console import console, show
from darklode.pipeline.base.memory.vectors import EmbeddingCache

app = application()


@app.command()
def cache(
    prune: Annotated[
        list[str] | None, typer.Option(metavar="ENCODER", help="Delete this encoder's vectors; `all` deletes all.")
    ] = None,
    assignments: SetOption = None,
) -> None:
    """Show what the embedding cache holds, per encoder; prune it."""
    settings = load_settings(assignments=assignments or []).cache
    vectors = EmbeddingCache(settings.root, settings.vector_dtype)
    if prune:
        freed = vectors.prune(None if "all" in prune else prune) + vectors.prune_orphans()
        console.print(f"{freed:,} bytes freed")
    show(vectors.usage(), "Embedding cache")
