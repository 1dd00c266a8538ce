"""Triplets of a grid point: the run's own triplets of its queries, or pairs of another source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.towers.dual.triplets import ROWS_PER_PART
from darklode.pipeline.train.data.sources import texts_of
from darklode.schemas.laws import LABELS
from darklode.schemas.tower_tables import TOWER_TRIPLETS

if TYPE_CHECKING:
    from darklode.pipeline.base.types import Ints
    from darklode.pipeline.laws.trainer import GridData, PointKey
    from darklode.pipeline.train.data.dataset import Task

POINT_TRIPLETS = Stage("cell_triplets", 2, (), (TOWER_TRIPLETS.name,))


def write_point_triplets(data: GridData, task: Task, point: PointKey, folder: str) -> Tables:
    """Write the `tower_triplets` of a grid point.

    For the run's labels these are rows of the whole table in its order, with hard negatives. Pairs of other sources
    have no negatives, because nobody labelled what does not answer them.

    Args:
        data: what the encoder's grid points share; its tables hold `tower_triplets`.
        task: training queries and pairs of the grid point.
        point: label source and seed of the grid point.
        folder: empty folder to write to.

    Raises:
        ArtifactError: there is no triplet.
    """

    def work(_tables: Tables, output: Output) -> None:
        is_labelled = point.source == LABELS
        for rows in _labelled_triplets(data, task) if is_labelled else _pair_triplets(data, task, point.seed):
            output.write(TOWER_TRIPLETS.name, rows)

    run = Run(folder)
    run.execute(run.plan(POINT_TRIPLETS, {}), work)
    triplets = run.tables(TOWER_TRIPLETS.name)
    if not triplets.rows(TOWER_TRIPLETS.name):
        raise ArtifactError(f"{point.name}: none of its queries has a triplet")
    return triplets


def _labelled_triplets(data: GridData, task: Task) -> Iterator[pa.Table]:
    """Triplets of the task's queries, part by part: rows of different runs stay separate, as in the whole table."""
    for part in data.tables.parts(TOWER_TRIPLETS.name):
        rows = data.tables.part(part)
        yield rows.filter(pc.is_in(rows["query_id"], task.train.ids))


def _pair_triplets(data: GridData, task: Task, seed: int) -> Iterator[pa.Table]:
    """Query and positive of each pair, run by run, in random order within a run."""
    text_rows = np.unique(task.frozen.position_of, return_index=True)[1]  # first row of the texts at each position
    # 4 tells this random stream apart from others of the same seed.
    order = np.random.default_rng([seed, 4]).permutation(len(task.pair_query))
    for number in task.frozen.numbers.tolist():
        run_pairs = order[task.train.index[task.pair_query[order]] == number]
        for start in range(0, len(run_pairs), ROWS_PER_PART):
            yield _rows(data, task, text_rows, run_pairs[start : start + ROWS_PER_PART])


def _rows(data: GridData, task: Task, text_rows: Ints, pairs: Ints) -> pa.Table:
    """Rows of `tower_triplets`, without negatives.

    Args:
        data: what the encoder's grid points share.
        task: training queries and pairs.
        text_rows: first row of the texts at each position.
        pairs: indices of the pairs to write.
    """
    query = task.pair_query[pairs]
    positives = task.frozen.texts.take(pa.array(text_rows[task.pair_position[pairs]]))
    texts = texts_of(data.base.sources, positives)
    title = pc.utf8_trim_whitespace(texts["title"])
    columns = {
        "tenant": positives["tenant"],
        "index": positives["index"],
        "query_id": task.train.ids.take(pa.array(query)),
        "query": [task.train.texts[row] for row in query.tolist()],
        "positive_id": positives["text_id"],
        "title": pc.if_else(pc.equal(title, ""), None, title),
        "content": pc.binary_join_element_wise(texts["heading"], texts["text"], "\n", null_handling="skip"),
        "key": positives["content_hash"],
        "answers": _answers(task, text_rows, query),
        "weight": np.ones(len(pairs)) if task.pair_weight is None else task.pair_weight[pairs],
    }
    return TOWER_TRIPLETS.rows(columns)


def _answers(task: Task, text_rows: Ints, query: Ints) -> pa.Array:
    """Content hashes of all texts that answer each query, a list per query."""
    query_index, position = task.labels.positions(query)
    hashes = task.frozen.texts["content_hash"].take(pa.array(text_rows[position])).combine_chunks()
    return pa.ListArray.from_arrays(np.searchsorted(query_index, np.arange(len(query) + 1)).astype(np.int32), hashes)
