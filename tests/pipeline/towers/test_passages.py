"""Passages are short spans of the run's texts, the same for the same seed."""

from pathlib import Path

from darklode.pipeline.towers.passages import MAX_SPANS_PER_TEXT, MAX_WORDS, draw_spans, sample_passages
from darklode.pipeline.train.data.sources import TrainingSource
from helpers.adapted import TENANT, build_to_adapt
from helpers.runs import read

SENTENCES = ["The pump has two valves", "Close the first one before you open the second", "这个阀门坏了"]
TEXT = ". ".join(SENTENCES[:2]) + ".\n" + SENTENCES[2]


def test_a_span_is_part_of_one_sentence() -> None:
    spans = draw_spans([TEXT] * 20, 200, 1)
    assert len(spans) > 100
    assert all(any(span in sentence + "." for sentence in SENTENCES) for span in spans)
    assert {len(span.split()) for span in spans} >= {1, 2, 5}
    long = draw_spans([" ".join(map(str, range(200)))] * 50, 100, 1)
    assert max(len(span.split()) for span in long) <= MAX_WORDS
    assert min(len(span.split()) for span in long) >= 2


def test_the_number_of_spans_is_bounded_by_texts_and_request() -> None:
    assert len(draw_spans(["one two three"], 100, 1)) == MAX_SPANS_PER_TEXT
    assert len(draw_spans(["one two three"] * 100, 30, 1)) == 30
    assert draw_spans(["", " \n "], 10, 1) == []
    assert draw_spans([], 10, 1) == []


def test_passages_come_from_the_tenants_chunks_and_depend_on_the_seed(tmp_path: Path) -> None:
    run = build_to_adapt(tmp_path / "run")
    source = TrainingSource(run, 0, False, 100)
    passages = sample_passages(source, TENANT, 1)
    texts = [str(row["text"]) for row in read(run, "chunks")]
    assert len(passages) > 100
    assert all(any(passage in text for text in texts) for passage in passages)
    assert passages == sample_passages(source, TENANT, 1) != sample_passages(source, TENANT, 2)
    assert sample_passages(source, "another", 1) == []
    assert len(sample_passages(source, TENANT, 1, n_runs=1000)) <= 30
