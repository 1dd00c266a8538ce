"""What is told of verdicts: the reason, what the largest size is missed by, and nothing where nothing was fitted."""

from pathlib import Path

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.laws.page import law_sentences
from darklode.schemas.law_tables import LAW_VERDICTS
from helpers.runs import put


def test_a_verdict_is_a_sentence(tmp_path: Path) -> None:
    about = {"claimed": False, "points": 6, "held_out": 1, "near_chance": 3, "measure": "nDCG@10"}
    rows = [
        about | {"source": "a", "verdict": "law", "reason": "", "held_out_error": 0.0123, "naive_error": 0.05},
        about | {"source": "b", "verdict": "not identifiable yet", "reason": "too few"},
        about | {"source": "c", "verdict": "no law", "reason": "it breaks", "held_out_error": 0.2},
    ]
    run = Run(str(tmp_path / "laws"))
    put(run, "law_verdicts", pa.Table.from_pylist(rows, schema=LAW_VERDICTS.schema))
    assert law_sentences(run.tables("law_verdicts")) == [
        "nDCG@10, a: law. The error at the largest size is 1.2%; the naive forecast's is 5.0%.",
        "nDCG@10, b: not identifiable yet, too few.",
        "nDCG@10, c: no law, it breaks. The error at the largest size is 20.0%.",
    ]
