"""README of an index: its facts, recall, and quality of semantic ids."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.card import cell, to_markdown
from darklode.pipeline.base.types import Facts
from darklode.pipeline.index.build import INDEX_FILE
from darklode.schemas.serving_tables import INDEX_RECALL, SEMANTIC_ID_LEVELS

PAGE = "README.md"

PAGE_FACTS = (
    "source", "tenants", "count", "dimensions", "metric", "kind", "built", "codebook", "semantic codebook", "effort",
    "rerank", "adapter", "queries per second",
)  # fmt: skip


def page(run: Run, facts: Facts) -> bytes:
    """The README in Markdown.

    Args:
        run: the index's run; all stages are complete.
        facts: content of `index.json`.
    """
    levels = run.tables(SEMANTIC_ID_LEVELS.name).read(SEMANTIC_ID_LEVELS.name).sort_by("level")
    sizes = facts["bytes per vector"]
    parts = [
        f"# Index of {cell(facts['source'])}",
        *facts["advice"],
        to_markdown(pa.table({"fact": list(PAGE_FACTS), "value": [cell(_fact(facts, name)) for name in PAGE_FACTS]})),
        f"Encoder: `{cell(facts['encoder']['id'])}`. Bytes per vector: {sizes['code']} for the code, "
        f"{sizes['in memory']} in memory in total, {sizes['on disk']} on disk for rescoring. "
        "Queries per second are measured in processor time of one thread.",
        "## Recall against exact search",
        "Exact search uses the full vectors. The search effort was chosen on one half of the queries; recall on the "
        "other, held-out half is unbiased. Adapted queries are listed separately: their vectors are distributed "
        "differently from those of the documents, to which the index is trained.",
        to_markdown(recalls(run)),
        "## Semantic ids",
        to_markdown(levels),
        f"Open `{INDEX_FILE}` with `faiss.read_index`. Its ids are the column `number` of the table `indexed_texts`. "
        "Scores are inner products of unit vectors: normalize queries to length 1.",
    ]
    return ("\n\n".join(parts) + "\n").encode()


def _fact(facts: Facts, name: str) -> Any:
    value = facts[name]
    return ", ".join(value) if isinstance(value, list) else value


def recalls(run: Run) -> pa.Table:
    """Recall with the chosen effort, on both halves of the queries."""
    rows = run.tables(INDEX_RECALL.name).read(INDEX_RECALL.name)
    chosen_rows = rows.filter(rows["chosen"]).select(["part", "half", "depth", "recall", "error", "queries"])
    order = [("part", "descending"), ("half", "descending"), ("depth", "ascending")]
    return (
        chosen_rows.sort_by(order)
        .set_column(2, "at", pc.cast(chosen_rows.sort_by(order)["depth"], pa.string()))
        .rename_columns(["queries by", "half", "at", "recall", "± error", "queries"])
    )
