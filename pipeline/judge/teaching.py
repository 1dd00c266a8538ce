"""People's labels make a judge: from all of them for the pool, from other queries' labels to hold it against people."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.corpora import TenantChunks
from darklode.pipeline.base.raters import folds, has_enough_labels
from darklode.pipeline.judge.human_labels import relevant
from darklode.pipeline.judge.pairs import distinct, pair_blocks
from darklode.pipeline.judge.port import Judge, TrainableJudge
from darklode.pipeline.judge.session import JudgingSession


def train_judges(tables: Tables, judge_for: Callable[[TenantChunks], Judge]) -> Callable[[TenantChunks], Judge]:
    """Builds the judges of tenants, each taught by all of its tenant's human labels if there are `enough`.

    Args:
        tables: holds `human_labels`, and `queries`, `chunks` and `pool` for their texts.
        judge_for: builds the judge of a tenant from its chunks.
    """
    labels = tables.read("human_labels")

    def build(chunks: TenantChunks) -> Judge:
        judge, own = judge_for(chunks), labels.filter(pc.equal(labels["tenant"], chunks.tenant))
        if not isinstance(judge, TrainableJudge) or not has_enough_labels(relevant(own)):
            return judge
        return judge.with_training(pa.concat_tables(pair_blocks(tables, chunks, own)), relevant(own))

    return build


def compare_judges(
    session: JudgingSession, judge: Judge, blocks: Iterable[pa.Table], labels: pa.Table, seed: int
) -> tuple[Judge, pa.Table]:
    """Who would judge the pool, and the replies to the labelled pairs that are to be held against people.

    A judge that learns is taught by all labels, but each reply is of one that never saw a label of the pair's query:
    what to expect of new queries.

    Args:
        session: waits for the judge.
        judge: of the tenant.
        blocks: rows of `PAIRS`: the labelled pairs, by query_id, then chunk_id.
        labels: rows of `human_labels`, in the same order.
        seed: decides which queries share a fold.
    """
    positive = relevant(labels)
    if not isinstance(judge, TrainableJudge) or not has_enough_labels(positive):
        return judge, pa.concat_tables(session.replies(judge, pairs) for pairs in blocks)
    pairs, fold = pa.concat_tables(blocks), folds(query_numbers(labels), seed)
    training_masks = [fold != held_out_fold for held_out_fold in np.unique(fold)]
    fold_replies = [
        session.replies(
            judge.with_training(pairs.filter(training_mask), positive[training_mask]), pairs.filter(~training_mask)
        )
        for training_mask in training_masks
    ]
    fold_order = np.argsort(np.argsort(fold, kind="stable"), kind="stable")
    return judge.with_training(pairs, positive), pa.concat_tables(fold_replies).take(fold_order)


def query_numbers(labels: pa.Table) -> NDArray[np.int64]:
    """Number of each pair's query, from 0."""
    return distinct(labels["query_id"])[1]
