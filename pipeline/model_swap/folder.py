"""The released folder of a model swap: the new encoder with the map as layers, and its record."""

from __future__ import annotations

from typing import Any

from darklode.pipeline.base.artifacts import Run, Tables, key_of
from darklode.pipeline.base.models.loading import load_query_tower
from darklode.pipeline.model_swap.encoder_pair import EncoderPair
from darklode.pipeline.model_swap.evaluation import MAPPED, SWAP_TEST_STAGE
from darklode.pipeline.model_swap.stage import FIT_STAGE, load_selected
from darklode.pipeline.model_swap.verdict import QUALITY_SQL, read_verdict
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.release.adapter import ADAPTER_FOLDER, ENCODER_FOLDER, RECORD_FILE
from darklode.pipeline.train.release.folder import (
    assemble_model,
    compare_vectors,
    is_up_to_date,
    probes,
    save_folder,
)
from darklode.pipeline.train.release.identity import fingerprint, record
from darklode.pipeline.train.release.onnx_export import ONNX_FOLDER
from darklode.pipeline.train.types import TENSORS_FILE


def save(run: Run, pair: EncoderPair, new: SentenceTransformersSettings) -> None:
    """Write `query_encoder/`, the new encoder with the map, unless it is up to date.

    Args:
        run: a run with complete stages.
        pair: the encoders.
        new: settings of the new encoder.

    Raises:
        DarklodeError: the saved folder does not reproduce the mapped vectors.
    """
    from darklode.pipeline.train.fit.heads import apply_layers, head_bytes

    manifest = run.manifest(FIT_STAGE)
    mark = key_of(manifest.fingerprint if manifest else "", pair.identity)
    if is_up_to_date(run.store, mark):
        return
    layers = load_selected(run.tables("swap_trials", "adapter_weights"))
    texts = probes(run.tables("adaptation_queries"))
    expected = apply_layers(layers, pair.new.queries(texts))
    model = assemble_model(load_query_tower(new, "cpu"), new, layers)
    save_folder(
        run.store, mark, model, compare_vectors(texts, expected), {TENSORS_FILE: head_bytes(layers, new.encoder_id())}
    )


def remove(run: Run) -> None:
    """Remove an encoder that an earlier run released, and its export."""
    run.store.delete(RECORD_FILE)
    for folder in (ENCODER_FOLDER, ADAPTER_FOLDER, ONNX_FOLDER):
        run.store.delete_folder(folder)


def write_record(run: Run, pair: EncoderPair, old: SentenceTransformersSettings) -> None:
    """Write `adapter.json`, which `search`, `adapt check` and releases read, unless it is up to date.

    Args:
        run: a run with the saved folder.
        pair: the encoders.
        old: settings of the index encoder.
    """
    tables = run.tables()
    record(run, pair.old, old, scores(tables), fingerprint(tables, ["tower_queries", "swap_texts"]))


def scores(tables: Tables) -> dict[str, Any]:
    """What the record says of the map; the difference is that in nDCG@10 to the index encoder, null without labels."""
    row = read_verdict(tables)
    quality = {line["system"]: line for line in tables.sql(QUALITY_SQL).to_pylist()}
    difference = quality.get(MAPPED, dict.fromkeys(("difference", "low", "high")) | {"queries": 0})
    return {name: row[name] for name in ("tenant", "shipped", "reason", "validation_queries")} | {
        "part": SWAP_TEST_STAGE.name,
        **{name: difference[name] for name in ("queries", "difference", "low", "high")},
    }
