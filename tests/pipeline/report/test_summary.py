"""The head of a page: what the run is, its sizes, and what must be known first."""

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.report.summary import header
from helpers.adapted import adapted_tables
from helpers.finished_run import finished_run
from helpers.report_runs import opened, rewrite


def test_a_benchmark_says_what_it_is_and_who_judged(run: Run) -> None:
    with opened(finished_run(run.store.url)) as given:
        head = header(given)
    assert head.kind == "Judged benchmark and triplets"
    assert dict(head.sizes).keys() >= {
        "documents",
        "chunks",
        "test positives, 70% relevant (est.)",
        "triplets, 70% relevant (est.)",
    }
    assert head.judges


def test_an_adapted_encoder_is_loud_where_the_base_is_handed_over(run: Run) -> None:
    with opened(adapted_tables(run)) as given:
        (decided,) = [one for one in header(given).warnings if "released" in one.title]
        assert (decided.title, decided.loud) == ("The adapted encoder is released", False)
        assert dict(header(given).sizes)["trials"] == "2"
    base = {"shipped": "base", "reason": "no lift"}
    rewrite(run, "given_adapter_verdict", lambda _, rows: [row | base for row in rows])
    with opened(run) as given:
        (decided,) = [one for one in header(given).warnings if "released" in one.title]
        assert (decided.title, decided.text, decided.loud) == (
            "Not adapted: the base encoder is released",
            "No lift.",
            True,
        )
