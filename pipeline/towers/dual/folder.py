"""The released folder with both towers, loadable by plain sentence-transformers, and their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from darklode.pipeline.base.artifacts import Run, Tables, key_of
from darklode.pipeline.towers.dual import TOWERS_FOLDER
from darklode.pipeline.towers.dual.evaluation import BEGINNING, TOWERS
from darklode.pipeline.towers.dual.stage import DUAL_TRIALS_STAGE, DualInputs, best_towers
from darklode.pipeline.train.fit.determinism import deterministic
from darklode.pipeline.train.release.folder import Check, is_up_to_date, probes, save_folder
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.tower_tables import TOWER_TRIPLETS
from darklode.schemas.towers import DualSettings

if TYPE_CHECKING:
    from darklode.pipeline.base.types import Floats

SCORES_SQL = f"""
    WITH scores AS (FROM evaluation WHERE tenant IS NULL AND part = 'counted')
    SELECT t.measure, b.value AS beginning, t.value AS towers, p.difference, p.low, p.high, p.p_holm, t.queries
    FROM scores t JOIN scores b ON t.measure = b.measure AND t.system = '{TOWERS}' AND b.system = '{BEGINNING}'
    JOIN evaluation_pairs p ON p.measure = t.measure AND p.tenant IS NULL AND p.part = 'counted'
    ORDER BY t.measure DESC
"""


def save(run: Run, inputs: DualInputs, dual: DualSettings, adapt: AdaptSettings) -> None:
    """Write the released model to `towers/` unless it is up to date.

    Args:
        run: a run whose stages are complete.
        inputs: the initial encoder.
        dual: settings of the towers.
        adapt: rank, alpha and target modules of LoRA.

    Raises:
        DarklodeError: the saved folder does not reproduce the vectors of training.
    """
    manifest = run.manifest(DUAL_TRIALS_STAGE)
    mark = key_of(manifest.fingerprint if manifest else "", inputs.identity)
    if is_up_to_date(run.store, mark, TOWERS_FOLDER):
        return
    tables = run.tables(*DUAL_TRIALS_STAGE.writes, "adaptation_queries", TOWER_TRIPLETS.name)
    with deterministic(0):
        towers = best_towers(tables, inputs, dual, adapt)
        queries = probes(tables)
        texts = _texts(tables)
        expected = towers.encode(queries, queries=True), towers.encode(texts, queries=False)
        save_folder(
            run.store, mark, towers.merged_query_tower(), _check_like((queries, texts), expected), {}, TOWERS_FOLDER
        )


def _texts(tables: Tables) -> list[str]:
    """Contents of eight documents that the saved folder is checked with."""
    rows = tables.sql("SELECT content FROM tower_triplets ORDER BY index, query_id, positive_id LIMIT 8")
    texts: list[str] = rows["content"].to_pylist()
    return texts


def _check_like(texts: tuple[list[str], list[str]], expected: tuple[Floats, Floats]) -> Check:
    """Build the check that a saved folder encodes queries and documents as the trained towers do.

    Args:
        texts: queries and document texts.
        expected: the towers' vectors of both.

    Returns:
        A function of the loaded folder that returns the absolute differences of all vector entries.
    """

    def check(saved: Any) -> Floats:
        query_vectors = saved.encode_query(texts[0], show_progress_bar=False)
        document_vectors = saved.encode_document(texts[1], show_progress_bar=False)
        query_differences = np.abs(query_vectors - expected[0]).ravel()
        document_differences = np.abs(document_vectors - expected[1]).ravel()
        return np.concatenate([query_differences, document_differences])

    return check


def sentence(tables: Tables) -> str:
    """Summarize the test scores and their differences to the initial encoder in a sentence."""
    rows = tables.sql(SCORES_SQL).to_pylist()
    measures_text = ", ".join(f"{row['measure']} {row['towers']:.3f} ({row['difference']:+.3f})" for row in rows)
    queries = f"{rows[0]['queries']:,} labelled test queries"
    return f"{measures_text} on {queries}; in brackets against the initial encoder"
