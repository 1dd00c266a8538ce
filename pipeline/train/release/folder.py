"""The released folder: `query_encoder/`, which plain sentence-transformers loads, and the adapter alone."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts import Run, Store, Tables, key_of
from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.models.loading import load_query_tower
from darklode.pipeline.base.models.local import ModelClass
from darklode.pipeline.base.models.precision import rounding
from darklode.pipeline.base.types import Floats
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.dataset import QuerySet
from darklode.pipeline.train.data.term_vectors import TERM_VECTORS_STAGE, TermTable, term_queries
from darklode.pipeline.train.fit.method_registry import create_method
from darklode.pipeline.train.fit.stage import TRAIN_STAGE, load_best_trial
from darklode.pipeline.train.fit.term_start import TermStart
from darklode.pipeline.train.release.adapter import ADAPTER_FOLDER, ENCODER_FOLDER, SAVED_RECORD_FILE
from darklode.pipeline.train.release.modules import dense_module, modules
from darklode.pipeline.train.release.onnx_export import ONNX_FOLDER
from darklode.pipeline.train.release.term_modules import TERMS_FILE, term_bytes, term_modules
from darklode.pipeline.train.release.verdict import VERDICT_STAGE, read_verdict
from darklode.pipeline.train.types import Layers
from darklode.schemas.adaptation import AdaptSettings

Check = Callable[[Any], Floats]

N_PROBES = 32
"""Number of queries used to verify that the saved folder reproduces the training vectors."""


def save(run: Run, base: BaseEncoder, settings: SentenceTransformersSettings, adapt: AdaptSettings) -> None:
    """Write the folder unless it is up to date. The record is written last, so a killed save starts over.

    Args:
        run: a run with complete stages.
        base: the encoder that was adapted.
        settings: settings of that encoder.
        adapt: settings of the method.

    Raises:
        DarklodeError: the saved folder does not reproduce the vectors of training.
    """
    mark = _mark(run, base)
    if is_up_to_date(run.store, mark):
        return
    tables = run.tables(
        "adaptation_queries", "adaptation_trials", "adapter_weights", *TERM_VECTORS_STAGE.writes, VERDICT_STAGE.name
    )
    texts, loaded = probes(tables), load_query_tower(settings, "cpu")
    queries = replace(QuerySet.from_texts(texts, base), terms=term_queries(tables, probe_ids(tables)))
    expected, layers, alone, mixing = queries.vectors, Layers(), dict[str, bytes](), list[Any]()
    if read_verdict(tables)["shipped"] == "adapted":
        method, (score, weights) = create_method(adapt, base), load_best_trial(tables)
        expected = method.vectors(weights, score["share"], queries)
        alone = method.export_tensors(weights, score["share"])
        layers = method.apply_to_model(loaded, weights, score["share"])
        if start := TermStart.from_weights(weights, score["share"]):
            terms = TermTable.from_tables(tables)
            mixing, alone = term_modules(start, terms, loaded), alone | {TERMS_FILE: term_bytes(start, terms)}
    model = assemble_model(loaded, settings, layers, mixing)
    save_folder(run.store, mark, model, compare_vectors(queries.texts, expected), alone)


def compare_vectors(texts: Sequence[str], expected: Floats) -> Check:
    """Compares a saved encoder's vectors with those of training."""
    return lambda saved: np.abs(saved.encode(list(texts), show_progress_bar=False).astype(np.float32) - expected)


def save_folder(  # noqa: PLR0913 (what is saved, how it is checked, and where)
    store: Store,
    mark: str,
    model: Any,
    check: Check,
    alone: Mapping[str, bytes],
    folder: str = ENCODER_FOLDER,
    *,
    model_class: ModelClass = "SentenceTransformer",
) -> None:
    """Replace an encoder folder and `adapter/`, and write their record last; an ONNX export of the old one is deleted.

    Args:
        store: the folder or prefix.
        mark: fingerprint of what it is made from, see `is_up_to_date`.
        model: complete model of sentence-transformers.
        check: computes how much the saved model differs from training.
        alone: files of the trained tensors, by name.
        folder: name of the encoder folder.
        model_class: class of the model.

    Raises:
        DarklodeError: the saved folder gives other vectors or scores.
    """
    for outdated in (ONNX_FOLDER, folder, ADAPTER_FOLDER):
        store.delete_folder(outdated)
    with tempfile.TemporaryDirectory(prefix="darklode-adapter-") as scratch:
        model.save_pretrained(scratch, create_model_card=False)
        difference = _difference(scratch, check, rounding(str(next(model.parameters()).dtype)), model_class)
        files = {f"{ADAPTER_FOLDER}/{name}": data for name, data in alone.items()}
        folder_files = chain(_files(Path(scratch), folder), files.items())
        sizes = {name: _write_file(store, name, data) for name, data in folder_files}
    record = {"mark": mark, "difference": difference, "files": sizes}
    store.write(_record(folder), json.dumps(record, indent=1).encode())


def probes(tables: Tables) -> list[str]:
    """Queries for the verification."""
    texts: list[str] = tables.read("adaptation_queries", ["text"])["text"][:N_PROBES].to_pylist()
    return texts


def probe_ids(tables: Tables) -> pa.Array:
    """Ids of these queries."""
    return tables.read("adaptation_queries", ["query_id"])["query_id"][:N_PROBES].combine_chunks()


def _record(folder: str) -> str:
    return SAVED_RECORD_FILE.replace(ENCODER_FOLDER, folder)


def _write_file(store: Store, name: str, data: bytes) -> int:
    store.write(name, data)
    return len(data)


def recorded_difference(run: Run, folder: str = ENCODER_FOLDER) -> float:
    """Recorded maximum absolute difference between the folder's vectors and those of training."""
    return float(json.loads(run.store.read(_record(folder)) or b"{}")["difference"])


def _mark(run: Run, base: BaseEncoder) -> str:
    """Fingerprint of what the folder is made from: the trials, and whether the selected one is released."""
    manifest, verdict = run.manifest(TRAIN_STAGE), read_verdict(run.tables(VERDICT_STAGE.name))
    assert manifest is not None
    weights = run.tables("adapter_weights").content("adapter_weights")
    return key_of(manifest.fingerprint, weights, verdict["shipped"], base.identity)


def needs_weights(run: Run, base: BaseEncoder) -> bool:
    """Whether `save` must write an encoder with the trained weights.

    Args:
        run: a run with complete stages.
        base: the encoder that was adapted.
    """
    is_released = read_verdict(run.tables(VERDICT_STAGE.name))["shipped"] == "adapted"
    return is_released and not is_up_to_date(run.store, _mark(run, base))


def is_up_to_date(store: Store, mark: str, folder: str = ENCODER_FOLDER) -> bool:
    """Whether a complete folder with this fingerprint exists."""
    record: dict[str, Any] = json.loads(store.read(_record(folder)) or b"{}")
    return record.get("mark") == mark and all(store.size(name) == size for name, size in record["files"].items())


def assemble_model(
    loaded: Any, settings: SentenceTransformersSettings, layers: Layers, mixing: Sequence[Any] = ()
) -> Any:
    """The model with truncation, normalization and head as plain layers; its prompt becomes part of the model.

    Args:
        loaded: the base.
        settings: its settings.
        layers: layers of the head.
        mixing: modules between the base's unit vector and the head, see `term_modules`.
    """
    from sentence_transformers import SentenceTransformer

    n_dimensions = loaded.encode(["dimensions"], show_progress_bar=False).shape[1] if settings.truncate_dim else 0
    cut = [(np.eye(settings.truncate_dim, n_dimensions, dtype=np.float32), None)] if settings.truncate_dim else []
    normalize = modules().Normalize
    parts = [*loaded, *(dense_module(*linear) for linear in cut), normalize(), *mixing]
    for number, (weight, bias) in enumerate(layers):
        parts.append(dense_module(weight, bias, gelu=number < len(layers) - 1))
    if layers:
        parts.append(normalize())
    prompt: dict[str, Any] = {"prompts": {"query": settings.query_prompt}, "default_prompt_name": "query"}
    model = SentenceTransformer(modules=parts, device="cpu", **(prompt if settings.query_prompt else {}))
    return model.to(next(loaded.parameters()).dtype)


def _difference(folder: str, check: Check, tolerance: float, model_class: ModelClass) -> float:
    saved = getattr(import_module("sentence_transformers"), model_class)(folder, device="cpu")
    difference = float(check(saved).max())
    if difference > tolerance:
        raise DarklodeError(
            f"the saved model gives other vectors or scores than in training (by {difference:.4f}), so it is not "
            "released; please report the model's name"
        )
    return difference


def require_reproducible(base: BaseEncoder, settings: SentenceTransformersSettings, tables: Tables) -> None:
    """Check before training that the base, saved in the same way, reproduces the vectors in use.

    Args:
        base: the encoder to adapt.
        settings: settings of that encoder.
        tables: hold `adaptation_queries`.

    Raises:
        DarklodeError: it does not.
    """
    texts, loaded = probes(tables), load_query_tower(settings, "cpu")
    expected = base.queries(texts)
    difference = float(compare_vectors(texts, expected)(assemble_model(loaded, settings, [])).max()) if texts else 0.0
    if difference > rounding(settings.dtype):
        raise DarklodeError(
            f"{settings.model} gives other vectors when saved (by {difference:.4f}): an adapted "
            "encoder could not be released; please report the model's name"
        )


def _files(scratch: Path, folder: str) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file, one in memory at a time."""
    for path in sorted(path for path in scratch.rglob("*") if path.is_file() and path.suffix != ".lock"):
        yield f"{folder}/{path.relative_to(scratch).as_posix()}", path.read_bytes()
