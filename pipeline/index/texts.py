"""Number the texts of an index; a text keeps its number until it is changed or removed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.types import Ints
from darklode.pipeline.index.source import VectorSource
from darklode.schemas.serving_tables import INDEXED_TEXTS

INDEXED_TEXTS_STAGE = Stage("indexed_texts", 1, (), (INDEXED_TEXTS.name,))

NEXT_NUMBER_FACT = "next number"
"""Fact of the stage: the next unused number; numbers are never reused."""


def write_indexed_texts(source: VectorSource, output: Output) -> None:
    """Number the texts from 0.

    Args:
        source: texts to index.
        output: receives `indexed_texts`.
    """
    rows = source.rows()
    _write(output, rows, np.arange(rows.num_rows))
    output.facts[NEXT_NUMBER_FACT] = rows.num_rows
    output.count(FunnelStep("indexed_texts", "texts", rows.num_rows, "texts", rows.num_rows))


def previous_tables(output: Output, trained: str, *names: str) -> Tables:
    """The tables of the index before the update.

    Raises:
        ArtifactError: a table is missing.
    """
    tables = output.previous_tables(*names)
    if tables is None:
        raise ArtifactError(f"the index has no table {names[0]} (codebook {trained}); build it again")
    return tables


def update_indexed_texts(source: VectorSource, output: Output, *, trained: str) -> None:
    """Number added and changed texts; unchanged texts keep their numbers.

    Args:
        source: current texts.
        output: receives `indexed_texts`.
        trained: id of the codebook in use.

    Raises:
        ArtifactError: the previous table is missing.
    """
    earlier, rows = previous_tables(output, trained, INDEXED_TEXTS.name), source.rows()
    before = earlier.read(INDEXED_TEXTS.name, ["tenant", "text_id", "content_hash", "number"]).combine_chunks()
    row_before = find_texts(rows, before)
    numbers = _earlier_numbers(rows, before, row_before)
    added, next_number = np.flatnonzero(numbers < 0), int(output.earlier_facts[NEXT_NUMBER_FACT])
    numbers[added] = next_number + np.arange(len(added))
    _write(output, rows, numbers)
    is_known = pc.is_valid(row_before).to_numpy()
    changed = int(is_known[added].sum())
    output.facts[NEXT_NUMBER_FACT] = next_number + len(added)
    output.facts["added"], output.facts["changed"] = len(added) - changed, changed
    output.facts["removed"] = before.num_rows - (rows.num_rows - (len(added) - changed))
    output.count(FunnelStep("indexed_texts", "texts before", before.num_rows, "texts", rows.num_rows))


def find_texts(rows: pa.Table, texts: pa.Table) -> pa.ChunkedArray:
    """Row in `texts` of the text with the same tenant and text_id; null: there is none. Both have these columns."""
    names = {*pc.unique(rows["tenant"]).to_pylist(), *pc.unique(texts["tenant"]).to_pylist()}
    keys, known_keys = (
        table["text_id"] if len(names) == 1 else pc.binary_join_element_wise(table["tenant"], table["text_id"], "\0")
        for table in (rows, texts)
    )
    return pc.index_in(keys, value_set=known_keys.combine_chunks())


def _earlier_numbers(rows: pa.Table, before: pa.Table, row_before: pa.ChunkedArray) -> Ints:
    """The number of each unchanged text; -1 for added and changed ones."""
    same = pc.equal(before["content_hash"].take(row_before), rows["content_hash"])
    numbers_before = pc.if_else(pc.fill_null(same, False), before["number"].take(row_before), -1)
    return np.array(numbers_before.to_numpy(), np.int64)


def _write(output: Output, rows: pa.Table, numbers: Ints) -> None:
    columns = {name: rows[name] for name in rows.column_names}
    output.write(INDEXED_TEXTS.name, INDEXED_TEXTS.rows(columns | {"number": pa.array(numbers)}))
