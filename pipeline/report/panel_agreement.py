"""A panel's agreement with people, and which vote is better than its best member, as tables and sentences."""

from __future__ import annotations

import pyarrow as pa

from darklode.pipeline.base.agreement import MIN_LABELS, MIN_OF_EACH
from darklode.pipeline.base.bootstrap import IntervalEstimate
from darklode.pipeline.judge.panel_comparison import (
    MIN_QUERIES,
    PanelAgreement,
    PanelComparison,
    VoteComparison,
)

TOO_FEW_LABELS = (
    f"Comparing votes needs {MIN_LABELS} labelled pairs of {MIN_QUERIES} queries, {MIN_OF_EACH} of them relevant and "
    f"{MIN_OF_EACH} not."
)


def agreement_rows(agreement: PanelAgreement, members: list[str]) -> pa.Table:
    """Kappa of each member with people and its mean kappa with the others, with 95 % intervals."""
    columns: dict[str, list[object]] = {"judge_id": [*members, "mean"]}
    people = [*agreement.with_people, agreement.mean_with_people]
    with_members = [*agreement.with_members, agreement.mean_with_members]
    for name, figures in (("people", people), ("members", with_members)):
        columns |= {
            name: [round(figure.value, 3) for figure in figures],
            f"{name}_low": [round(figure.low, 3) for figure in figures],
            f"{name}_high": [round(figure.high, 3) for figure in figures],
        }
    return pa.table(columns)


def agreement_summary(agreement: PanelAgreement, n_members: int) -> str:
    """A sentence on agreement with people, among members, and the effective number of judges."""
    people, members = agreement.mean_with_people.value, agreement.mean_with_members.value
    warning = " Their agreement is no evidence that they are right." if members > people else ""
    return (
        f"Mean kappa with people {people:.2f}, with one another {members:.2f}.{warning} Their errors are those of "
        f"{_format(agreement.effective_members, 1)} independent judges, not of {n_members}."
    )


def vote_rows(comparison: PanelComparison) -> pa.Table:
    """Each vote's kappa with people on held-out queries, and its difference from the best member."""
    votes = comparison.votes
    return pa.table(
        {
            "vote": [vote.vote for vote in votes],
            "kappa": [round(vote.kappa, 3) for vote in votes],
            "best_member": pa.repeat(round(comparison.member_kappa, 3), len(votes)),
            "difference": [round(vote.difference.value, 3) for vote in votes],
            "low": [round(vote.difference.low, 3) for vote in votes],
            "high": [round(vote.difference.high, 3) for vote in votes],
        }
    )


def proposal(comparison: PanelComparison, members: list[str]) -> str:
    """The vote to use and its settings, or that the best member should judge alone."""
    best_member, proposed = members[comparison.best_member], comparison.proposed
    if proposed is None:
        return (
            f"No vote of this panel is shown to be better than its best member, {best_member}: the nearest, "
            f"{_name_difference(comparison.best_vote)}. Use that judge alone, or label more pairs."
        )
    text = f"The panel is better than its best member, {best_member}: {_name_difference(proposed)}."
    if proposed.weights is None:
        return f"{text} Keep its settings."
    weights = ", ".join(f"{weight:g}" for weight in proposed.weights)
    return f"{text} Settings: judge.vote={proposed.vote}, judge.panel_weights=[{weights}]"


def _name_difference(vote: VoteComparison) -> str:
    return f"{vote.vote}, {_format(vote.difference, 3, sign='+')} kappa on held-out queries"


def _format(figure: IntervalEstimate, decimals: int, sign: str = "") -> str:
    form = f"{sign}.{decimals}f"
    return f"{figure.value:{form}} [{figure.low:{form}}, {figure.high:{form}}]"
