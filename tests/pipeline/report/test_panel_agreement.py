"""Sentences and tables on a panel: the proposal, its settings, and the best member by name."""

from darklode.pipeline.base.bootstrap import IntervalEstimate
from darklode.pipeline.judge.panel_comparison import PanelAgreement, PanelComparison, VoteComparison
from darklode.pipeline.report.panel_agreement import agreement_rows, agreement_summary, proposal, vote_rows

MEMBERS = ["llm-1:big", "llm-1:small"]
MAJORITY = VoteComparison("as built", 0.35, IntervalEstimate(0.02, -0.01, 0.05), None)
WEIGHTED = VoteComparison("weighted", 0.37, IntervalEstimate(0.04, 0.01, 0.07), (1.0, 0.62))


def agreement(people: float, members: float) -> PanelAgreement:
    with_people, with_members = IntervalEstimate(people, 0.2, 0.4), IntervalEstimate(members, 0.3, 0.5)
    return PanelAgreement(
        [with_people] * 2, [with_members] * 2, with_people, with_members, IntervalEstimate(1.23, 1.1, 1.4)
    )


def test_a_better_vote_is_proposed_with_its_settings() -> None:
    text = proposal(PanelComparison(0, 0.33, [MAJORITY, WEIGHTED]), MEMBERS)
    assert "better than its best member, llm-1:big: weighted, +0.040 [+0.010, +0.070] kappa" in text
    assert "judge.vote=weighted, judge.panel_weights=[1, 0.62]" in text


def test_the_vote_as_built_needs_no_settings() -> None:
    better = VoteComparison("as built", 0.4, IntervalEstimate(0.07, 0.02, 0.1), None)
    text = proposal(PanelComparison(1, 0.33, [better, WEIGHTED]), MEMBERS)
    assert "better than its best member, llm-1:small: as built" in text
    assert text.endswith("Keep its settings.")


def test_without_a_better_vote_the_best_member_is_named() -> None:
    text = proposal(PanelComparison(1, 0.33, [MAJORITY]), MEMBERS)
    assert "No vote of this panel is shown to be better than its best member, llm-1:small" in text
    assert "+0.020 [-0.010, +0.050]" in text


def test_agreement_among_judges_above_that_with_people_is_said_to_be_no_evidence() -> None:
    assert "no evidence" in agreement_summary(agreement(0.31, 0.43), 2)
    assert "those of 1.2 [1.1, 1.4] independent judges, not of 2" in agreement_summary(agreement(0.31, 0.43), 2)
    assert "no evidence" not in agreement_summary(agreement(0.5, 0.43), 2)


def test_tables_have_a_row_for_each_member_and_vote() -> None:
    rows = agreement_rows(agreement(0.31, 0.43), MEMBERS).to_pylist()
    assert [row["judge_id"] for row in rows] == [*MEMBERS, "mean"]
    assert (rows[0]["people"], rows[0]["people_low"], rows[0]["members_high"]) == (0.31, 0.2, 0.5)
    votes = vote_rows(PanelComparison(0, 0.33, [MAJORITY, WEIGHTED])).to_pylist()
    assert votes[1] == {
        "vote": "weighted",
        "kappa": 0.37,
        "best_member": 0.33,
        "difference": 0.04,
        "low": 0.01,
        "high": 0.07,
    }
