"""The head of a page: what the run is, its sizes, and what must be known first."""

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.report.summary import header
from helpers.adapted import adapted_tables
from helpers.finished_run import finished_run
from helpers.report_runs import opened, rewrite


def test_a_benchmark_says_what_it_is_how_good_it_is_and_who_judged(run: Run) -> None:
    with opened(finished_run(run.store.url)) as given:
        head = header(given)
    assert head.kind == "Judged benchmark and triplets"
    facts = {fact.label: fact for fact in head.facts}
    assert facts["Training triplets"].note == "70 % relevant by the judge's probabilities"
    assert facts["Precision of the judge"].value == "not measured"
    assert head.judges
    assert len(head.first_warnings) == 3
    assert [warning.headline for warning in head.first_warnings][:2] == [
        "This run is incomplete",
        "Weak labels from the embedded scorer",
    ]
    assert [*head.first_warnings, *head.more_warnings] == head.warnings


def test_an_adapted_encoder_is_loud_where_the_base_is_handed_over(run: Run) -> None:
    with opened(adapted_tables(run)) as given:
        (decided,) = [one for one in header(given).notices if "released" in one.title]
        assert (decided.title, decided.loud) == ("The adapted encoder is released", False)
        assert ("Trials", "2") in [(fact.label, fact.value) for fact in header(given).facts]
    base = {"shipped": "base", "reason": "no lift"}
    rewrite(run, "given_adapter_verdict", lambda _, rows: [row | base for row in rows])
    with opened(run) as given:
        (decided,) = [one for one in header(given).notices if "released" in one.title]
        assert (decided.title, decided.text, decided.loud) == (
            "Not adapted: the base encoder is released",
            "No lift.",
            True,
        )
