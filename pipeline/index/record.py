"""The record of an index, `index.json`, written last."""

from __future__ import annotations

import json
from dataclasses import dataclass

from darklode.pipeline.base.artifacts import Manifest, Run, Store
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.types import Facts
from darklode.pipeline.index import residual_kmeans
from darklode.pipeline.index.build import (
    CODE_BYTES_FACT,
    CODEBOOK_FACT,
    INDEX_FILE,
    INDEX_STAGE,
    KIND_FACT,
    STORED_FOLDER,
)
from darklode.pipeline.index.recall import EFFORT_FACT, RECALL_STAGE, RERANK_FACT, SPEED_FACT, advice, held_out_recall
from darklode.pipeline.index.semantic_ids import ADDED_ERROR_FACT, SEMANTIC_IDS_STAGE
from darklode.pipeline.index.source import VectorSource
from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.release.identity import identity
from darklode.schemas.serving import IndexSettings
from darklode.schemas.serving_tables import (
    INDEX_FILES,
    INDEX_RECALL,
    INDEXED_TEXTS,
    SEMANTIC_CODEBOOKS,
    SEMANTIC_ID_LEVELS,
)

RECORD_FILE = "index.json"


@dataclass(frozen=True)
class IndexOrigin:
    """Inputs of an index.

    Attributes:
        source: texts and vectors.
        encoder: encoder of the vectors.
        settings: index settings.
        adapter: URL of the adapter whose queries recall was also measured on.
    """

    source: VectorSource
    encoder: EncoderKind
    settings: IndexSettings
    adapter: str | None


def read_record(store: Store) -> Facts:
    """Read the record of an index.

    Raises:
        ArtifactError: there is no index, or it is unfinished.
    """
    facts = store.read_object(RECORD_FILE)
    if not facts:
        raise ArtifactError(f"{store.url} contains no finished index; build one with `darklode index RUN --out …`")
    return facts


def encoder_facts(encoder: EncoderKind) -> Facts:
    """Everything that determines an encoder's vectors, by name; `settings` are enough to load it."""
    if isinstance(encoder, SentenceTransformersSettings):
        return {"id": encoder.encoder_id()} | identity(encoder)
    return {"id": encoder.encoder_id(), "settings": encoder.model_dump(mode="json")}


def record(run: Run, origin: IndexOrigin) -> Facts:
    """Write `index.json` if it is not up to date.

    Args:
        run: the index's run; all stages are complete.
        origin: inputs of the index.

    Returns:
        The record. `at training` is recall at the last training; `advice` has reasons to train again.
    """
    before, filled, measured = (
        run.store.read_object(RECORD_FILE),
        _manifest(run, INDEX_STAGE.name),
        _manifest(run, RECALL_STAGE.name),
    )
    tables = run.tables()
    texts = tables.rows(INDEXED_TEXTS.name)
    now = json.loads(json.dumps(held_out_recall(tables.read(INDEX_RECALL.name))))
    facts: Facts = {
        "tenants": list(origin.source.tenants),
        "source": origin.source.url,
        "content": origin.source.content(),
        "texts": tables.content(INDEXED_TEXTS.name),
        "count": texts,
        "encoder": encoder_facts(origin.encoder),
        "dimensions": _dimensions(run, origin.settings),
        "metric": "cosine",
        "kind": origin.settings.kind,
        "built": filled.facts[KIND_FACT],
        "codebook": filled.facts[CODEBOOK_FACT],
        "semantic codebook": residual_kmeans.codebook_id(
            residual_kmeans.read_codebooks(tables.read(SEMANTIC_CODEBOOKS.name), 0)
        ),
        "effort": measured.facts[EFFORT_FACT],
        "rerank": measured.facts[RERANK_FACT],
        "adapter": origin.adapter,
        "recall": now,
        "queries per second": measured.facts[SPEED_FACT],
        "files": tables.read(INDEX_FILES.name).to_pylist(),
    }
    facts["bytes per vector"] = _sizes(facts, filled)
    same = before.get("codebook") == facts["codebook"] and before.get("at training")
    facts["at training"] = before["at training"] if same else {"recall": now, "count": texts}
    facts["advice"] = _advice_lines(run, facts)
    if facts != before:
        run.store.write(RECORD_FILE, json.dumps(facts, indent=1, ensure_ascii=False).encode())
    return facts


def _manifest(run: Run, stage: str) -> Manifest:
    return run.manifests()[stage]


def _dimensions(run: Run, settings: IndexSettings) -> int:
    """Dimensions of the indexed vectors."""
    centres = run.tables(SEMANTIC_CODEBOOKS.name).read(SEMANTIC_CODEBOOKS.name, ["centre"])["centre"]
    return min(len(centres[0]), settings.truncate_dim or len(centres[0]))


def _sizes(facts: Facts, filled: Manifest) -> Facts:
    """Bytes per vector: code, whole index in memory, stored vectors on disk."""
    count = max(1, facts["count"])
    total_bytes = sum(row["bytes"] for row in facts["files"] if row["file"] == INDEX_FILE)
    stored = sum(row["bytes"] for row in facts["files"] if row["file"].startswith(STORED_FOLDER))
    return {
        "code": filled.facts[CODE_BYTES_FACT],
        "in memory": round(total_bytes / count, 1),
        "on disk": round(stored / count, 1),
    }


def _advice_lines(run: Run, facts: Facts) -> list[str]:
    levels = run.tables(SEMANTIC_ID_LEVELS.name).read(SEMANTIC_ID_LEVELS.name).sort_by("level")
    error_at_training, error_of_added = (
        levels["error"][-1].as_py(),
        _manifest(run, SEMANTIC_IDS_STAGE.name).facts.get(ADDED_ERROR_FACT),
    )
    error_growth = error_of_added / error_at_training if error_of_added is not None and error_at_training else None
    n_vectors = max(_count_vectors(facts, main=True), _count_vectors(facts, main=False))
    removed_share = 1 - facts["count"] / n_vectors if n_vectors else 0.0
    return advice(_by_number(facts["at training"]["recall"]), _by_number(facts["recall"]), removed_share, error_growth)


def _count_vectors(facts: Facts, *, main: bool) -> int:
    return sum(row["vectors"] for row in facts["files"] if (row["file"] == INDEX_FILE) == main)


def _by_number(parts: Facts) -> dict[str, dict[int, Facts]]:
    return {part: {int(depth): row for depth, row in depths.items()} for part, depths in parts.items()}
