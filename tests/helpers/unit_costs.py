"""Made-up unit costs with known laws, as `darklode plan-scale` reads them."""

from pathlib import Path
from typing import Any

import yaml

SIZES = (1_000.0, 4_000.0, 16_000.0, 64_000.0)


def stage(name: str, per: str, seconds: float, exponent: float = 1.0, **more: Any) -> dict[str, Any]:
    """A stage of so many seconds a row, with memory that is flat unless `memory` says by which power it grows."""
    memory, job, row_bytes = more.pop("memory", 0.0), more.pop("job", "build"), more.pop("row_bytes", 10)
    points = [
        {"size": size, "seconds": seconds * size**exponent, "megabytes": 100 * size**memory, "bytes": row_bytes * size}
        for size in SIZES
    ]
    return {"job": job, "name": name, "per": per, "points": points} | more


def unit_costs(*stages: dict[str, Any]) -> dict[str, Any]:
    """Those, or some that stand for a whole job."""
    usual = (
        stage("chunk", "chunks", 0.0036),
        stage("fit bm25", "chunks", 0.0036, memory=0.5),
        stage("search bm25", "chunks", 1e-6, times="queries"),
        stage("fit ppmi", "chunks", 1e-5, 1.5),
        stage("search ppmi", "chunks", 1e-6, times="queries"),
        stage("embed", "chunks", 0.0036),
        stage("search vectors", "chunks", 1e-7, times="queries"),
        stage("judge", "pairs", 0.1),
        stage("judge llm", "pairs", 0.00036),
        stage("associate", "impressions", 0.001, job="mine"),
        stage("semantic_codebooks", "chunks", 0.001, job="index"),
        stage("semantic_ids", "chunks", 0.001, job="index"),
        stage("index", "chunks", 0.01, job="index", row_bytes=420),
    )
    shares = {"kept": 0.5, "candidates": 60.0, "prompt_tokens": 300.0, "completion_tokens": 2.0}
    vectors = {"dimensions": 384, "bytes_per_number": 4}
    about = {"day": "2026-01-01", "machine": "a machine", "vectors": vectors, "shares": shares}
    return about | {"stages": list(stages or usual)}


def hardware_file(folder: Path, **changed: Any) -> Path:
    """Ten machines of four cores, and what is changed."""
    path = folder / "hardware.yaml"
    path.write_text(yaml.safe_dump({"machines": {"count": 10, "cores": 4, "memory_gb": 32}} | changed))
    return path
