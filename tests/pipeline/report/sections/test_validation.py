"""Validation on the page: the tables' numbers, and the pairs to read."""

from dataclasses import replace

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.validate.gate import GATE_STAGE, gate
from darklode.schemas.settings import ValidationSettings
from darklode.schemas.tables import CHUNKS
from helpers.report_runs import HOSTILE, figure, figures, parsed, rendered, rows_of, text_of
from helpers.reviewed_run import answered, honest, key_of, pairs, put_run, sampled, validated
from helpers.runs import execute, put, read

KEYS = ["release", "validation-confusion", "validation", "validation-thresholds", "disagreements"]


@pytest.fixture
def reviewed(run: Run) -> Run:
    made = pairs({"a": 60, "b": 30})
    sample = sampled(put_run(run, made), max_pairs=300, query_share=0.3)
    said = honest(made, [key_of(row) for row in sample])
    answered(run, [replace(one, rationale=HOSTILE) for one in said])
    ids = sorted({(key[0], key[2]) for key in made})
    blank = {name: ["x"] * len(ids) for name in ("doc_id", "content_hash")}
    blank |= {name: [0] * len(ids) for name in ("position", "start", "end")}  # type: ignore[dict-item]
    texts = {"tenant": [one for one, _ in ids], "chunk_id": [one for _, one in ids]}
    put(run, "chunks", CHUNKS.rows(blank | texts | {"text": [f"text {one} {HOSTILE}" for _, one in ids]}))
    validated(run, {"a": 0.5, "b": 0.5})
    execute(run, GATE_STAGE, lambda tables, output: gate(tables, output, ValidationSettings(min_kappa=1.0)))
    return run


def test_the_figures_are_those_of_the_tables(reviewed: Run) -> None:
    root = parsed(rendered(reviewed))
    assert [key for key in figures(root) if key in {*KEYS, "reviewer-agreement"}] == KEYS
    whole = next(row for row in read(reviewed, "validation") if row["tenant"] is None and row["retriever"] is None)
    first = rows_of(root, "validation")[0]
    for name in ("precision", "recall", "kappa_low", "kappa_high"):
        assert float(first[name.replace("_", " ")]) == pytest.approx(whole[name], abs=6e-4)
    assert (first["labelled"], first["queries"]) == (str(whole["labelled"]), str(whole["queries"]))
    told = text_of(figure(root, "validation"))
    assert told.index("all pairs") < told.index("by tenant") < told.index("by retriever")
    (relevant, not_relevant, *_) = rows_of(root, "validation-confusion")
    assert (relevant["relevant"], not_relevant["relevant"]) == (
        str(whole["true_positives"]),
        str(whole["false_negatives"]),
    )


def test_the_gate_says_what_was_asked(reviewed: Run) -> None:
    rows = {row["figure"]: row for row in rows_of(parsed(rendered(reviewed)), "release")}
    assert (rows["kappa"]["asked"], rows["kappa"]["passed"]) == ("1", "no")
    assert (rows["recall"]["asked"], rows["recall"]["passed"]) == ("–", "–")


def test_the_pairs_that_stand_for_most_come_first(reviewed: Run) -> None:
    found = sorted(read(reviewed, "disagreements"), key=lambda row: -float(row["weight"]))  # type: ignore[arg-type]
    quotes = [text_of(one) for one in figure(parsed(rendered(reviewed)), "disagreements").iter("li")]
    assert len(quotes) == min(10, len(found)) > 5
    assert f"represents {round(float(found[0]['weight']))} pairs" in quotes[0]  # type: ignore[arg-type]
    assert str(found[0]["kind"]) in quotes[0]


def test_what_reviewers_write_is_text(reviewed: Run) -> None:
    html = rendered(reviewed)
    assert not list(parsed(html).iter("script"))
    assert b"window.harmed" in html
    assert b"<img" not in html
