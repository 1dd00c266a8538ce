"""What one takes home: both towers in one folder that plain sentence-transformers loads, and what they reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from darklode.pipeline.base.artifacts import Run, Tables, key_of
from darklode.pipeline.towers.dual import FOLDER
from darklode.pipeline.towers.dual.stage import TRAINED, Beginning, graduates
from darklode.pipeline.towers.dual.tested import BEGINNING, TOWERS
from darklode.pipeline.train.folder import Check, hand_out, probes, stands
from darklode.pipeline.train.loop import steady
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.tower_tables import TOWER_TRIPLETS
from darklode.schemas.towers import DualSettings

if TYPE_CHECKING:
    from darklode.pipeline.train.weights import Floats

REACHED = f"""
    WITH counted AS (FROM evaluation WHERE tenant IS NULL AND part = 'counted')
    SELECT t.measure, b.value AS beginning, t.value AS towers, p.difference, p.low, p.high, p.p_holm, t.queries
    FROM counted t JOIN counted b ON t.measure = b.measure AND t.system = '{TOWERS}' AND b.system = '{BEGINNING}'
    JOIN evaluation_pairs p ON p.measure = t.measure AND p.tenant IS NULL AND p.part = 'counted'
    ORDER BY t.measure DESC
"""


def save(run: Run, beginning: Beginning, dual: DualSettings, adapt: AdaptSettings) -> None:
    """Write `towers/` unless it stands.

    Args:
        run: where the stages are complete.
        beginning: what the towers began as.
        dual: what they are.
        adapt: rank, alpha and targets of LoRA.

    Raises:
        DarklodeError: the saved folder does not give the vectors that training saw.
    """
    manifest = run.manifest(TRAINED)
    mark = key_of(manifest.fingerprint if manifest else "", beginning.identity)
    if stands(run.store, mark, FOLDER):
        return
    tables = run.tables(*TRAINED.writes, "adaptation_queries", TOWER_TRIPLETS.name)
    with steady(0):
        towers = graduates(tables, beginning, dual, adapt)
        queries, texts = probes(tables), _texts(tables)
        wanted = towers.encode(queries, queries=True), towers.encode(texts, queries=False)
        hand_out(run.store, mark, towers.served(), _like((queries, texts), wanted), {}, FOLDER)


def _texts(tables: Tables) -> list[str]:
    first = tables.sql("SELECT content FROM tower_triplets ORDER BY index, query_id, positive_id LIMIT 8")
    texts: list[str] = first["content"].to_pylist()
    return texts


def _like(asked: tuple[list[str], list[str]], wanted: tuple[Floats, Floats]) -> Check:
    """Both routes of a saved folder, with the prompts that it carries, against both towers."""

    def check(saved: Any) -> Floats:
        found = saved.encode_query(asked[0], show_progress_bar=False)
        read = saved.encode_document(asked[1], show_progress_bar=False)
        return np.concatenate([np.abs(found - wanted[0]).ravel(), np.abs(read - wanted[1]).ravel()])

    return check


def sentence(tables: Tables) -> str:
    """What the towers reach, and what they began with."""
    rows = tables.sql(REACHED).to_pylist()
    told = ", ".join(f"{row['measure']} {row['towers']:.3f} ({row['difference']:+.3f})" for row in rows)
    return f"{told} on {rows[0]['queries']:,} labelled test queries; in brackets against the encoder they began as"
