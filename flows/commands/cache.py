"""darklode cache: show and prune cached vectors and scores."""

from typing import Annotated

import typer

from darklode.flows.commands.options import SetOption, application
from darklode.flows.config import load_settings
from darklode.flows.console import console, show
from darklode.pipeline.base.memory.rows import RowKind
from darklode.pipeline.base.memory.store import KeyedStore
from darklode.pipeline.base.memory.vectors import EmbeddingCache

app = application()


@app.command()
def cache(
    prune: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Delete the cache of this encoder or reranker; `all` deletes all. Repeatable."
        ),
    ] = None,
    assignments: SetOption = None,
) -> None:
    """Show the size of the cache per encoder and reranker; --prune deletes vectors and scores."""
    settings = load_settings(assignments=assignments or []).cache
    vectors = EmbeddingCache(settings.root, settings.vector_dtype)
    stores = [KeyedStore(settings.root, kind) for kind in _row_kinds()]
    if prune:
        owners = None if "all" in prune else prune
        freed = vectors.prune(owners) + vectors.prune_orphans() + sum(store.prune(owners) for store in stores)
        console.print(f"{freed:,} bytes freed")
    show(vectors.usage(), "Embedding cache")
    for store in stores:
        if (usage := store.usage()).num_rows:
            show(usage.drop_columns(["damaged"]), f"Cache of {store.kind.top.replace('_', ' ')}")


def _row_kinds() -> list[RowKind]:
    """What retrievers with a model keep besides vectors."""
    from darklode.pipeline.retrieve.retrievers.multi_vector import TOKEN_VECTOR_ROWS
    from darklode.pipeline.retrieve.retrievers.rerank import SCORE_ROWS
    from darklode.pipeline.retrieve.retrievers.sparse import SPARSE_VECTOR_ROWS

    return [SPARSE_VECTOR_ROWS, TOKEN_VECTOR_ROWS, SCORE_ROWS]
