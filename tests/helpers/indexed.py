"""Files of clustered vectors, and indexes of them, made in the test's own process."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from darklode.flows.jobs.build_index import build_index
from darklode.pipeline.base.types import Floats
from helpers.adapted import model_in

COUNT, WIDTH = 1500, 32
IDS = [f"t{number:05}" for number in range(COUNT)]
CODED: dict[str, Any] = {"kind": "ivfpq", "code_size": 8, "tuning_queries": 60}


def clustered(count: int = COUNT, seed: int = 0) -> Floats:
    """Vectors around 40 centres, of length 1."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((40, WIDTH))
    found = centres[rng.integers(0, 40, count)] + 0.6 * rng.standard_normal((count, WIDTH))
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), np.float32)


def put_vectors(path: Path, ids: list[str], vectors: Floats) -> str:
    """A file of vectors; returns its path."""
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    pq.write_table(pa.table({"text_id": ids, "vector": column}), path)
    return str(path)


def settings_in(root: Path, **index: Any) -> dict[str, Any]:
    """Settings of an index whose cache lies below a folder."""
    return {
        "cache": {"root": str(root / "cache")},
        "index": CODED | index,
        "semantic_ids": {"levels": 3, "codebook_size": 16},
    }


def made(root: Path, source: str, name: str = "index", **index: Any) -> Path:
    """An index below a folder."""
    build_index(source, model_in(root).model, str(root / name), settings_in(root, **index))
    return root / name


def files_of(folder: Path) -> dict[str, bytes]:
    """All that lies in an index but times."""
    kept = (
        path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix in {".parquet", ".npy", ".faiss"}
    )
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in kept}


def copied(folder: Path, to: Path) -> Path:
    """An index of one's own."""
    return Path(shutil.copytree(folder, to))


def fitting(root: Path) -> str:
    """An exact index of 200 vectors that are as long as those of its encoder; returns its folder."""
    vectors = put_vectors(root / "short.parquet", IDS[:200], np.ascontiguousarray(clustered(200)[:, :8]))
    settings = settings_in(root) | {"index": {"kind": "flat", "tuning_queries": 20}}
    build_index(vectors, model_in(root).model, str(root / "fitting"), settings)
    return str(root / "fitting")
