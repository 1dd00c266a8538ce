"""Train a judge on human labels: on all of them for the pool, and cross-validated for comparison with people."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.agreement import folds, has_enough_labels
from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.judge.human_labels import relevant, sampling_weights
from darklode.pipeline.judge.pairs import distinct, pair_blocks
from darklode.pipeline.judge.port import Judge, TrainableJudge
from darklode.pipeline.judge.session import JudgingSession


def train_judges(tables: Tables, judge_for: Callable[[TenantChunks], Judge]) -> Callable[[TenantChunks], Judge]:
    """Build the judges of tenants, each trained on all human labels of its tenant if there are enough.

    Args:
        tables: must contain `human_labels`, and `queries`, `chunks` and `pool` for texts.
        judge_for: builds a tenant's judge.
    """
    labels = tables.read("human_labels")

    def build(chunks: TenantChunks) -> Judge:
        judge = judge_for(chunks)
        tenant_labels = labels.filter(pc.equal(labels["tenant"], chunks.tenant))
        if not isinstance(judge, TrainableJudge) or not has_enough_labels(relevant(tenant_labels)):
            return judge
        return judge.with_training(
            pa.concat_tables(pair_blocks(tables, chunks, tenant_labels)),
            relevant(tenant_labels),
            sampling_weights(tenant_labels),
        )

    return build


def compare_judges(
    session: JudgingSession, judge: Judge, blocks: Iterable[pa.Table], labels: pa.Table, seed: int
) -> tuple[Judge, pa.Table]:
    """The judge for the pool, and replies to the labelled pairs for comparison with people.

    A trainable judge is trained on all labels, but each reply comes from a judge that saw no label of the pair's query:
    an estimate for new queries.

    Args:
        session: runs the judge.
        judge: the tenant's judge.
        blocks: rows of `PAIRS`: the labelled pairs, by query_id, then chunk_id.
        labels: rows of `human_labels`, in the same order.
        seed: assigns queries to folds.
    """
    positive = relevant(labels)
    if not isinstance(judge, TrainableJudge) or not has_enough_labels(positive):
        return judge, pa.concat_tables(session.replies(judge, pairs) for pairs in blocks)
    pairs, fold = pa.concat_tables(blocks), folds(query_numbers(labels), seed)
    weight = sampling_weights(labels)
    training_masks = [fold != held_out_fold for held_out_fold in np.unique(fold)]
    fold_replies = [
        session.replies(
            judge.with_training(
                pairs.filter(training_mask),
                positive[training_mask],
                None if weight is None else weight[training_mask],
            ),
            pairs.filter(~training_mask),
        )
        for training_mask in training_masks
    ]
    fold_order = np.argsort(np.argsort(fold, kind="stable"), kind="stable")
    return judge.with_training(pairs, positive, weight), pa.concat_tables(fold_replies).take(fold_order)


def query_numbers(labels: pa.Table) -> NDArray[np.int64]:
    """Query index of each pair, from 0."""
    return distinct(labels["query_id"])[1]
