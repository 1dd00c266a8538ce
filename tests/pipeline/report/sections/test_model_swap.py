"""A model swap on the page."""

from darklode.flows.runs import write_inputs
from darklode.pipeline.base.artifacts import Run
from darklode.schemas.run_inputs import ModelSwapInputs
from helpers.report_runs import figures, parsed, rendered, text_of
from helpers.runs import written


def test_the_page_shows_decision_recall_and_partial_re_embedding(run: Run) -> None:
    verdict = {"tenant": "t", "shipped": "none", "reason": "mapped queries find 0.400", "recall_10": 0.4}
    written(run, "swap_verdict", [verdict])
    written(run, "swap_agreement", [{"system": "mapped", "reference": "re-embedding", "k": 10, "value": 0.4}])
    written(run, "swap_partial", [{"order": "hottest", "share": 0.1, "recall_10": 0.5}])
    written(run, "swap_trials", [{"trial": 0, "method": "ridge", "recall_10": 0.4, "selected": True}])
    write_inputs(run, ModelSwapInputs(runs=["runs/first"], encoder="old", new_encoder="new"))
    root = parsed(rendered(run))
    assert "Query encoder mapped onto the index of old" in text_of(root)
    assert "Not released: re-embedding is needed" in text_of(root)
    assert [key for key in figures(root) if key.startswith("swap-")] == [
        "swap-verdict",
        "swap-agreement",
        "swap-partial",
        "swap-trials",
    ]
