"""The page beside an index: what it is, what it finds, what its ids are worth."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.card import cell, to_markdown
from darklode.pipeline.base.types import Facts
from darklode.pipeline.index.build import FILE
from darklode.schemas.serving_tables import INDEX_RECALL, SEMANTIC_ID_LEVELS

PAGE = "README.md"

FACTS = (
    "source", "tenant", "count", "dimensions", "metric", "kind", "built", "codebook", "semantic codebook", "effort",
    "rerank", "adapter", "queries per second",
)  # fmt: skip


def page(run: Run, facts: Facts) -> bytes:
    """The page, in Markdown.

    Args:
        run: whose stages are complete.
        facts: that `index.json` holds.
    """
    levels = run.tables(SEMANTIC_ID_LEVELS.name).read(SEMANTIC_ID_LEVELS.name).sort_by("level")
    sizes = facts["bytes per vector"]
    parts = [
        f"# Index of {cell(facts['source'])}",
        *facts["advice"],
        to_markdown(pa.table({"what": list(FACTS), "it is": [cell(facts[name]) for name in FACTS]})),
        f"Encoder: `{cell(facts['encoder']['id'])}`. A vector takes {sizes['code']} bytes for its code, "
        f"{sizes['in memory']} in memory with all that belongs to it, {sizes['on disk']} on disk to score candidates "
        "again by. Queries a second are by processor time of one thread.",
        "## What it finds of an exact search",
        "Exact is a search by whole vectors. The effort was chosen on one half of the queries; the other half had no "
        "say. Adapted queries lie elsewhere than documents, to which cells are fitted: they stand apart.",
        to_markdown(recalls(run)),
        "## Semantic ids",
        to_markdown(levels),
        f"`{FILE}` opens in faiss: `faiss.read_index`. Its numbers are those of the table `indexed_texts`. It is a "
        "cosine index: scale queries to length 1.",
    ]
    return ("\n\n".join(parts) + "\n").encode()


def recalls(run: Run) -> pa.Table:
    """Of the effort in use, on both halves."""
    rows = run.tables(INDEX_RECALL.name).read(INDEX_RECALL.name)
    chosen_rows = rows.filter(rows["chosen"]).select(["part", "half", "depth", "recall", "error", "queries"])
    order = [("part", "descending"), ("half", "descending"), ("depth", "ascending")]
    return (
        chosen_rows.sort_by(order)
        .set_column(2, "at", pc.cast(chosen_rows.sort_by(order)["depth"], pa.string()))
        .rename_columns(["queries by", "half", "at", "recall", "± error", "queries"])
    )
