"""What an index says of itself: `index.json`, written last."""

from __future__ import annotations

import json
from dataclasses import dataclass

from darklode.pipeline.base.artifacts import Manifest, Run, Store
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.types import Facts
from darklode.pipeline.index import residual_kmeans
from darklode.pipeline.index.build import BYTES, CODEBOOK, FILE, FILL, KIND, STORED
from darklode.pipeline.index.recall import EFFORT, RECALL, RERANK, SPEED, advice, held_out_recall
from darklode.pipeline.index.semantic_ids import CAME, IDS
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

RECORD = "index.json"


@dataclass(frozen=True)
class IndexOrigin:
    """What an index is made from.

    Attributes:
        source: the texts and their vectors.
        encoder: that the vectors are by.
        settings: of the index.
        adapter: address of the adapter that recall was measured with, too.
    """

    source: VectorSource
    encoder: EncoderKind
    settings: IndexSettings
    adapter: str | None


def read_record(store: Store) -> Facts:
    """What the index at a place says of itself.

    Raises:
        ArtifactError: there is none, or one that was not finished.
    """
    facts = store.read_object(RECORD)
    if not facts:
        raise ArtifactError(f"{store.url} holds no finished index; make one with `darklode index RUN --out …`")
    return facts


def encoder_facts(encoder: EncoderKind) -> Facts:
    """What decides an encoder's vectors, each by its name; `settings` open it."""
    if isinstance(encoder, SentenceTransformersSettings):
        return {"id": encoder.encoder_id()} | identity(encoder)
    return {"id": encoder.encoder_id(), "settings": encoder.model_dump(mode="json")}


def record(run: Run, origin: IndexOrigin) -> Facts:
    """Write `index.json`, unless it stands.

    Args:
        run: where the stages are complete.
        origin: what it is made from.

    Returns:
        What it says. `at training` is as it was when codes were last fitted; `advice` says why to do so again.
    """
    before, filled, measured = run.store.read_object(RECORD), _manifest(run, FILL.name), _manifest(run, RECALL.name)
    tables = run.tables()
    texts = tables.rows(INDEXED_TEXTS.name)
    now = json.loads(json.dumps(held_out_recall(tables.read(INDEX_RECALL.name))))
    facts: Facts = {
        "tenant": origin.source.tenant,
        "source": origin.source.url,
        "content": origin.source.content(),
        "texts": tables.content(INDEXED_TEXTS.name),
        "count": texts,
        "encoder": encoder_facts(origin.encoder),
        "dimensions": _dimensions(run, origin.settings),
        "metric": "cosine",
        "kind": origin.settings.kind,
        "built": filled.facts[KIND],
        "codebook": filled.facts[CODEBOOK],
        "semantic codebook": residual_kmeans.name_of(
            residual_kmeans.from_rows(tables.read(SEMANTIC_CODEBOOKS.name), 0)
        ),
        "effort": measured.facts[EFFORT],
        "rerank": measured.facts[RERANK],
        "adapter": origin.adapter,
        "recall": now,
        "queries per second": measured.facts[SPEED],
        "files": tables.read(INDEX_FILES.name).to_pylist(),
    }
    facts["bytes per vector"] = _sizes(facts, filled)
    same = before.get("codebook") == facts["codebook"] and before.get("at training")
    facts["at training"] = before["at training"] if same else {"recall": now, "count": texts}
    facts["advice"] = _advice_lines(run, facts)
    if facts != before:
        run.store.write(RECORD, json.dumps(facts, indent=1, ensure_ascii=False).encode())
    return facts


def _manifest(run: Run, stage: str) -> Manifest:
    return run.manifests()[stage]


def _dimensions(run: Run, settings: IndexSettings) -> int:
    """Length of the vectors that the index takes."""
    centres = run.tables(SEMANTIC_CODEBOOKS.name).read(SEMANTIC_CODEBOOKS.name, ["centre"])["centre"]
    return min(len(centres[0]), settings.truncate_dim or len(centres[0]))


def _sizes(facts: Facts, filled: Manifest) -> Facts:
    """By what they are for: the code, all of the index in memory, stored vectors on disk."""
    count = max(1, facts["count"])
    total_bytes = sum(row["bytes"] for row in facts["files"] if row["file"] == FILE)
    stored = sum(row["bytes"] for row in facts["files"] if row["file"].startswith(STORED))
    return {
        "code": filled.facts[BYTES], "in memory": round(total_bytes / count, 1), "on disk": round(stored / count, 1)
    }  # fmt: skip


def _advice_lines(run: Run, facts: Facts) -> list[str]:
    levels = run.tables(SEMANTIC_ID_LEVELS.name).read(SEMANTIC_ID_LEVELS.name).sort_by("level")
    fitted, came = levels["error"][-1].as_py(), _manifest(run, IDS.name).facts.get(CAME)
    growth = came / fitted if came is not None and fitted else None
    memory_bytes = max(_memory_bytes(facts, main=True), _memory_bytes(facts, main=False))
    dead = 1 - facts["count"] / memory_bytes if memory_bytes else 0.0
    return advice(_by_number(facts["at training"]["recall"]), _by_number(facts["recall"]), dead, growth)


def _memory_bytes(facts: Facts, *, main: bool) -> int:
    return sum(row["vectors"] for row in facts["files"] if (row["file"] == FILE) == main)


def _by_number(parts: Facts) -> dict[str, dict[int, Facts]]:
    return {part: {int(depth): row for depth, row in depths.items()} for part, depths in parts.items()}
