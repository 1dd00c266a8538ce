"""Released only if interval and lower bound reach the share asked for."""

import pytest

from darklode.pipeline.base.artifacts import Run, Step, call
from darklode.pipeline.base.errors import NoLift
from darklode.pipeline.model_swap.verdict import (
    SWAP_VERDICT_STAGE,
    decide,
    format_facts,
    is_shipped,
    read_verdict,
    require_share,
)
from helpers.runs import written
from helpers.swapped import SwappedRun

SHARE = {"system": "mapped", "reference": "re-embedding", "k": 10, "value": 0.97, "low": 0.96, "high": 0.98}


def decided(run: Run, min_share: float, **changes: float) -> str:
    """The reason, after the stage ran on made-up results."""
    written(run, "swap_agreement", [SHARE | {"bounded_low": 0.955, "queries": 400} | changes])
    step = Step(SWAP_VERDICT_STAGE, call(decide, min_share=min_share))
    run.execute(step.plan(run), step.execute)
    return str(read_verdict(run.tables())["reason"])


@pytest.fixture
def measured(run: Run) -> Run:
    """Everything but the shares."""
    written(run, "tower_queries", [{"tenant": "acme", "query": f"q{n}", "split": "validation"} for n in range(20)])
    written(run, "swap_trials", [{"trial": 0, "method": "ridge", "setting": "ridge 0.1", "selected": True}])
    written(run, "swap_texts", [{"tenant": "acme", "text_id": "a", "content_hash": "h"}])
    written(run, "adaptation_texts", [{"tenant": "acme", "text_id": "a", "content_hash": "h"}])
    written(run, "swap_quality", [])
    return run


def test_the_lower_bound_decides_not_the_mean(measured: Run) -> None:
    reason = decided(measured, 0.95)
    assert reason.startswith("mapped queries find 0.970 of re-embedding's first 10 (at least 0.955; asked for: 0.95)")
    assert is_shipped(measured.tables())
    decided(measured, 0.956)
    assert not is_shipped(measured.tables()), "the mean and the interval are above"
    decided(measured, 0.95, low=0.94)
    assert not is_shipped(measured.tables())


def test_few_queries_decide_nothing(measured: Run) -> None:
    assert decided(measured, 0.0, queries=9).startswith("too few held-out queries to decide: 9, at least 10")
    assert not is_shipped(measured.tables())
    row = read_verdict(measured.tables())
    assert (row["validation_queries"], row["texts"], row["index_texts"]) == (20, 1, 1)


def test_without_any_held_out_query_the_share_is_unknown(measured: Run) -> None:
    written(measured, "swap_agreement", [])
    step = Step(SWAP_VERDICT_STAGE, call(decide, min_share=0.0))
    measured.execute(step.plan(measured), step.execute)
    row = read_verdict(measured.tables())
    assert (row["shipped"], row["recall_10"], row["queries"]) == ("none", None, 0)
    assert row["reason"].startswith("too few held-out queries to decide: 0")


@pytest.mark.slow
def test_a_refusal_says_what_a_partial_re_embedding_brings(swapped: SwappedRun) -> None:
    assert require_share(swapped.out) == swapped.sentence
    facts = ". ".join(format_facts(swapped.out))
    assert "The index encoder, unchanged, finds" in facts
    assert "Re-embedding 630 texts takes about" in facts
    with pytest.raises(NoLift, match=r"Re-embedding is needed: .* asked for: 1\).* hottest texts .* with 10% of|, "):
        swapped.swap("refused", min_share=1.0)
    refused = swapped.root / "refused"
    assert not (refused / "query_encoder").exists()
    assert "## Partial re-embedding" in (refused / "README.md").read_text()
    assert "Not released: re-embedding is needed" in (refused / "report.html").read_text()
