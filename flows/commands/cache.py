"""darklode cache: show and prune the embedding cache."""

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
        list[str] | None,
        typer.Option(metavar="NAME", help="Delete this encoder's vectors; `all` deletes all. Repeatable."),
    ] = None,
    assignments: SetOption = None,
) -> None:
    """Show the size of the embedding cache per encoder; --prune deletes vectors."""
    settings = load_settings(assignments=assignments or []).cache
    vectors = EmbeddingCache(settings.root, settings.vector_dtype)
    if prune:
        freed = vectors.prune(None if "all" in prune else prune) + vectors.prune_orphans()
        console.print(f"{freed:,} bytes freed")
    show(vectors.usage(), "Embedding cache")
