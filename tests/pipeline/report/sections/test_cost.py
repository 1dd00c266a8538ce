"""Time and cost on the page: tokens are added up, and what nobody counted is unknown."""

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.schemas.settings import Settings
from helpers.finished_run import finished_run
from helpers.report_runs import comma, parsed, rendered, rows_of, shown
from helpers.runs import read


def test_tokens_are_added_up_and_cost_is_known_only_with_a_price(chance_run: Run) -> None:
    verdicts = read(chance_run, "verdicts")
    prompt, completion = (sum(row[name] for row in verdicts) for name in ("prompt_tokens", "completion_tokens"))  # type: ignore[misc]
    (free,) = rows_of(parsed(rendered(chance_run)), "cost")
    assert (free["prompt tokens"], free["completion tokens"]) == (comma(prompt), comma(completion))
    assert free["cost"] == "unknown"
    model = {"kind": "llm", "model": "m", "base_url": "http://127.0.0.1:1/v1"}
    priced = model | {"prompt_price_per_million": 2.0, "completion_price_per_million": 8.0}
    (row,) = shown(chance_run, Settings.model_validate({"judge": priced}))["cost"].table.to_pylist()
    assert row["cost"] == pytest.approx((2 * prompt + 8 * completion) / 1e6)


def test_tokens_that_nobody_counted_are_unknown_and_a_formula_costs_nothing(run: Run) -> None:
    (row,) = rows_of(parsed(rendered(finished_run(run.store.url))), "cost")
    assert (row["prompt tokens"], row["completion tokens"], row["cost"]) == ("unknown", "unknown", "0")
