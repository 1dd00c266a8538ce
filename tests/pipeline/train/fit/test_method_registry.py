"""Which method and how many steps are used if none are set."""

from pathlib import Path
from typing import Any

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.train.fit import requirements
from darklode.pipeline.train.fit.method_registry import choose_method
from darklode.schemas.adaptation import AdaptSettings
from helpers.runs import written


def queries_of(folder: Path, n_train: int, n_validation: int) -> Run:
    """A run with train queries, validation queries, and as many validation queries that share a positive."""
    run, rows = Run(str(folder)), list[dict[str, Any]]()
    for split, n_queries, shares_positive in (
        ("train", n_train, True),
        ("validation", n_validation, False),
        ("validation", n_validation, True),
        ("test", 500, False),
    ):
        names = [f"{split} {shares_positive} {number}" for number in range(n_queries)]
        rows += [{"query_id": name, "split": split, "shares_positive": shares_positive} for name in names]
    written(run, "adaptation_queries", rows)
    return run


@pytest.mark.parametrize(
    ("settings", "n_train", "n_validation", "method", "max_steps"),
    [
        ({}, 640, 99, "linear", None),
        ({}, 640, 100, "full", 300),
        ({}, 6_400, 100, "full", 500),
        ({"batch_size": 32}, 6_400, 100, "full", 1_000),
        ({}, 640_000, 100, "full", 5_000),
        ({"max_steps": 7}, 640, 100, "full", 7),
        ({"init": "term_vectors"}, 640, 100, "linear", None),
        ({"method": "lora"}, 6_400, 10, "lora", 500),
        ({"method": "linear"}, 640, 100, "linear", None),
        ({"method": "closed_form", "max_steps": 7}, 640, 100, "closed_form", 7),
    ],
)
def test_enough_validation_queries_allow_to_train_the_encoder(
    tmp_path: Path, settings: dict[str, Any], n_train: int, n_validation: int, method: str, max_steps: int | None
) -> None:
    given = AdaptSettings.model_validate(settings)
    tables = queries_of(tmp_path, n_train, n_validation).tables("adaptation_queries")
    chosen, reason = choose_method(given, tables)
    assert bool(reason) == (given.method == "auto")
    assert (chosen.method, chosen.max_steps) == (method, max_steps)
    assert chosen.n_steps == (max_steps or 1_000)


def test_without_the_packages_a_head_is_trained_and_the_message_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "find_spec", lambda name: None if name == "datasets" else name)
    chosen, reason = choose_method(AdaptSettings(), queries_of(tmp_path, 640, 100).tables("adaptation_queries"))
    assert chosen.method == "linear"
    assert reason.endswith('needs datasets: pip install "darklode[train]"')
