"""What the pooled head says of itself; what comes of it is tested in tests/flows/jobs/test_pool_tenants.py."""

from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Output, Run, Tables
from darklode.pipeline.evaluate.paired import ResamplingSettings
from darklode.pipeline.train.release.pooled_evidence import MIN_TENANTS
from darklode.pipeline.train.release.pooled_tenants import (
    POOLED_STAGE,
    delete_pooled_head,
    format_evidence,
    pooled_card,
    train_pooled_head,
)
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.adaptation_tables import ADAPTED_TENANTS
from darklode.schemas.pooled_tables import POOLED_TENANTS
from helpers.adapted import base_for
from helpers.runs import execute, put

ROW = {"clusters": 4, "difference": 0.012, "expected": 0.041, "loss_probability": 0.013}
FACTS = {"tenants": 312, "mean": 0.043, "mean_low": 0.031, "spread": 0.012, "passed": True}


def test_a_release_says_whose_evidence_it_is_on() -> None:
    reason = format_evidence(ROW, FACTS)
    assert "on the evidence of 312 tenants: nDCG@10 +0.043 on average (at least +0.031)" in reason
    assert "own evidence: 4 test clusters, +0.012, too few to decide alone" in reason
    assert "probability of no lift 1.3%" in reason
    without = format_evidence(ROW | {"clusters": 0, "difference": None}, FACTS)
    assert "own evidence: 0 test clusters, too few" in without
    assert "own evidence: 40 test clusters, +0.012; expected" in format_evidence(ROW | {"clusters": 40}, FACTS)


def few(folder: Path) -> Run:
    """Fewer tenants than can be pooled."""
    run = Run(str(folder / "out"))
    rows = [
        dict.fromkeys(ADAPTED_TENANTS.schema.names)
        | {"tenant": str(number), "folder": f"tenants/{number}", "shipped": "base", "reason": "no gain"}
        for number in range(MIN_TENANTS - 1)
    ]
    put(run, "adapted_tenants", pa.Table.from_pylist(rows, schema=ADAPTED_TENANTS.schema))

    def train(tables: Tables, output: Output) -> None:
        base = base_for(root=folder)
        train_pooled_head(tables, output, AdaptSettings(), base, ResamplingSettings(), open_run=lambda _: run)

    execute(run, POOLED_STAGE, train)
    return run


def test_few_tenants_are_not_pooled(tmp_path: Path) -> None:
    run = few(tmp_path)
    assert run.tables(*POOLED_STAGE.writes).rows(POOLED_TENANTS.name) == 0
    page = pooled_card(run, {"adapted": 1, "with the base": 8}).decode()
    assert "Released: 1 adapted, 8 with the base." in page
    assert f"No pooled head is released: pooling needs at least {MIN_TENANTS} tenants" in page


def test_a_pooled_head_can_be_deleted(tmp_path: Path) -> None:
    run = few(tmp_path)
    delete_pooled_head(run)
    assert run.manifest(POOLED_STAGE) is None
    delete_pooled_head(run)


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({}, "The pooled head changes nDCG@10 by +0.043 on average over 312 tenants"),
        ({"mean": None, "mean_low": None}, "No pooled head is released: too few tenants have test queries."),
        (
            {"mean": -0.02, "mean_low": -0.05, "passed": False},
            "No pooled head is released: its nDCG@10 against the base",
        ),
    ],
)
def test_the_page_says_that_rows_were_pooled(tmp_path: Path, facts: dict[str, object], sentence: str) -> None:
    run = Run(str(tmp_path / "out"))
    rows = [dict.fromkeys(ADAPTED_TENANTS.schema.names) | {"tenant": "a", "folder": "tenants/a", "reason": "r"}]
    put(run, "adapted_tenants", pa.Table.from_pylist(rows, schema=ADAPTED_TENANTS.schema))

    def train(_tables: Tables, output: Output) -> None:
        output.facts |= FACTS | facts

    execute(run, POOLED_STAGE, train)
    page = pooled_card(run, {"adapted": 0}).decode()
    assert sentence in page
    assert "trained on queries and labels of all these tenants" in page
