"""Rankings of the test queries by both towers and by the initial encoder."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from darklode.pipeline.base.artifacts import Output, Stage, Tables
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.towers.dual.stage import DualInputs, best_towers
from darklode.pipeline.train.release.evaluation import DEPTH, test_queries, write_rankings, write_test_labels
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.adaptation_tables import ADAPTER_WEIGHTS
from darklode.schemas.tower_tables import DUAL_TRIALS
from darklode.schemas.towers import DualSettings

if TYPE_CHECKING:
    from darklode.pipeline.train.data.base_encoder import BaseEncoder

LABELLED_TABLES = ("adaptation_queries", "adaptation_labels", "adaptation_texts")
READS = (*LABELLED_TABLES, DUAL_TRIALS.name, ADAPTER_WEIGHTS.name)
DUAL_TEST_STAGE = Stage("dual_test", 1, READS, ("test_queries", "test_labels", "test_rankings"))

BEGINNING, TOWERS = SYSTEMS = ("beginning", "towers")
"""The compared systems: the initial encoder and the trained towers."""

MEASURES = ("R@10", "R@50", "R@100", "nDCG@10")
TOWERS_NAME = "towers"
"""Folder name that towers are opened from; part of their id in the embedding cache, so that a change encodes again."""


def rank_test_queries(
    tables: Tables, output: Output, dual: DualSettings, adapt: AdaptSettings, base: BaseEncoder, inputs: DualInputs
) -> None:
    """Rank all texts for each test query with the towers and with the initial encoder.

    The towers encode all documents again, because both towers changed.

    Args:
        tables: the tables of `adaptation_pairs` and of the trials.
        output: receives `test_queries`, `test_labels` and `test_rankings`.
        dual: settings of the towers.
        adapt: rank, alpha and target modules of LoRA.
        base: the initial encoder with its cache.
        inputs: the initial encoder and the runs.

    Raises:
        ArtifactError: no test query has a positive.
    """
    rankings: dict[str, pa.Table] = {}
    with tempfile.TemporaryDirectory(prefix="darklode-towers-") as scratch:
        folder = Path(scratch) / TOWERS_NAME
        best_towers(tables, inputs, dual, adapt).merged_query_tower().save_pretrained(
            str(folder), create_model_card=False
        )
        trained_base = replace(base, encoder=read_as(inputs.encoder, str(folder)))
        for system, encoder in zip(SYSTEMS, (base, trained_base), strict=True):
            frozen = encoder.open(tables)
            queries = test_queries(tables, frozen)
            rankings[system] = queries.ranking(frozen, queries.vectors, DEPTH)
    write_rankings(tables, output, rankings, DUAL_TEST_STAGE)
    write_test_labels(tables, output)


def read_as(encoder: SentenceTransformersSettings, folder: str) -> SentenceTransformersSettings:
    """Settings that open the towers in a folder, untruncated, with the initial encoder's prompts and maximum length."""
    return encoder.model_copy(update={"model": folder, "revision": None, "truncate_dim": None, "dtype": "float32"})
