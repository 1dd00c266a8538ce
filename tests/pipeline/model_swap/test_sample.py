"""The texts that both encoders embed, and their heat."""

from pathlib import Path

import pyarrow.compute as pc
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.model_swap.encoder_pair import EncoderPair
from darklode.pipeline.model_swap.sample import SAMPLE_STAGE, heat_inputs, sample_texts
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.settings import CacheSettings
from helpers.runs import execute, read, written
from helpers.swapped import SwappedRun


@pytest.mark.slow
def test_a_small_index_is_taken_as_a_whole_and_half_of_it_is_fitted(swapped: SwappedRun) -> None:
    rows = swapped.out.tables("swap_texts").read("swap_texts")
    assert rows.num_rows == 630
    order = sorted(rows["fit_order"].drop_null().to_pylist())
    assert order == list(range(315))
    assert pc.sum(rows["heat"]).as_py() == 10 * 155, "each training query has ten first results"
    facts = swapped.out.manifests()[SAMPLE_STAGE.name].facts
    assert facts == {"index texts": 630, "heat": "first results of training queries"}


def clicks(tenant: str, doc_id: str, exposures: int, n_clicks: int) -> dict[str, object]:
    """A row of the log."""
    return {"tenant": tenant, "query_id": "q", "doc_id": doc_id, "exposures": exposures, "clicks": n_clicks}


def test_heat_comes_from_the_tenants_log_and_counts_all_copies_of_a_text(tmp_path: Path) -> None:
    log, out = Run(str(tmp_path / "log")), Run(str(tmp_path / "out"))
    evidence = [clicks("acme", "a", 3, 1), clicks("acme", "copy", 2, 4), clicks("other", "a", 9, 9)]
    written(log, "click_evidence", [*evidence, clicks("acme", "b", 4, 0)])
    texts = [("a", "same"), ("copy", "same"), ("b", "b"), ("c", "c")]
    rows = [{"tenant": "acme", "text_id": name, "content_hash": content} for name, content in texts]
    written(out, "adaptation_texts", rows)
    written(out, "adaptation_labels", [])
    written(out, "adaptation_queries", [])
    written(out, "tower_queries", [{"tenant": "acme", "query": "q", "split": "train", "source": "queries"}])
    base = BaseEncoder(
        SentenceTransformersSettings(model="none"),
        CacheSettings(root=str(tmp_path)),
        VectorSearchSettings(),
        (TrainingSource(log, 0, True, 100),),
    )
    pair = EncoderPair(base, base)
    execute(out, SAMPLE_STAGE, lambda tables, output: sample_texts(tables, output, pair, sample=100, seed=1))
    assert {row["text_id"]: row["heat"] for row in read(out, "swap_texts")} == {"a": 5.5, "b": 0.4, "c": 0.0}
    before = heat_inputs(pair)
    written(log, "click_evidence", evidence)
    assert heat_inputs(pair) != before, "another log gives another heat"


@pytest.mark.slow
def test_a_sample_has_the_answers_of_test_queries_first(swapped: SwappedRun) -> None:
    swapped.swap("sampled", min_share=0.0, sample=100)
    rows = read(type(swapped.out)(str(swapped.root / "sampled")), "swap_texts")
    names = {row["text_id"] for row in rows}
    assert len(rows) == 100
    answers = {f"test-{number:03}#0" for number in range(1, 20)} | {"train-000#0"}
    assert answers <= names
