"""A panel against people and against its best member: agreement, common errors, and votes on held-out queries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darklode.pipeline.base.agreement import confusion_by_query, folds, has_enough_labels, kappas
from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.bootstrap import IntervalEstimate, interval
from darklode.pipeline.base.types import Doubles, Mask
from darklode.pipeline.judge.panel import Panel
from darklode.pipeline.judge.panel_weights import stack_members, weighted_votes

MIN_QUERIES = 10
"""Minimum number of labelled queries; the bootstrap over fewer gives too short intervals."""
RESAMPLES, SEED = 1000, 0
AS_BUILT, MAJORITY, WEIGHTED = "as built", "majority", "weighted"

_Fit = Callable[[Mask], tuple[float, ...]]


@dataclass(frozen=True)
class LabelledVotes:
    """Pairs labelled by people with the votes of a panel's members; arrays of shape (n_pairs,).

    Attributes:
        query: query index of each pair, from 0.
        positive: whether people labelled the pair relevant.
        weight: number of pairs that each stands for.
        votes: the members' labels, 1, 0 or NaN, shape (n_pairs, n_members).
        panel: the panel's label, 1, 0 or NaN.
    """

    query: NDArray[np.int64]
    positive: Mask
    weight: Doubles
    votes: Doubles
    panel: Doubles

    def take(self, rows: Mask) -> Self:
        """Select the pairs in a mask."""
        return type(self)(*(getattr(self, field.name)[rows] for field in fields(self)))

    def counts(self, labels: Doubles) -> Doubles:
        """Weighted confusion counts of labels (1, 0, NaN) against people's by query, shape (n_queries, 4)."""
        is_known, n_queries = ~np.isnan(labels), int(self.query.max(initial=-1)) + 1
        predicted, positive = (labels == 1)[is_known], self.positive[is_known]
        return confusion_by_query(self.query[is_known], predicted, positive, self.weight[is_known], n_queries)


@dataclass(frozen=True)
class PanelVotes:
    """The votes of a run's panel.

    Attributes:
        members: judge ids, in the order of `judge.panel_weights`.
        labelled: the pairs labelled by people.
    """

    members: list[str]
    labelled: LabelledVotes

    @classmethod
    def from_tables(cls, tables: Tables) -> Self | None:
        """Read a run's votes; None if its judge is no panel.

        A member with one id per tenant is one member.

        Args:
            tables: must contain `verdicts`, `panel_verdicts` and `human_labels`.
        """
        panel_ids = tables.sql("SELECT DISTINCT judge_id FROM verdicts ORDER BY judge_id")["judge_id"].to_pylist()
        panels = [ids for judge_id in panel_ids if (ids := Panel.ids_of_members(judge_id))]
        if not panels:
            return None
        positions = {judge_id: number for ids in panels for number, judge_id in enumerate(ids)}
        names = [f"vote_{number}" for number in range(len(panels[0]))]
        columns = ", ".join(
            f"CAST(max(CAST(relevant AS INTEGER)) FILTER (position = {number}) AS DOUBLE) AS {name}"
            for number, name in enumerate(names)
        )
        with tables.connect() as connection:
            connection.register(
                "positions", pa.table({"judge_id": list(positions), "position": list(positions.values())})
            )
            labelled = connection.sql(LABELLED_SQL.format(columns=columns)).to_arrow_table()
        return cls(
            members=panels[0],
            labelled=LabelledVotes(
                query=labelled["query"].to_numpy().astype(np.int64),
                positive=labelled["positive"].to_numpy(),
                weight=labelled["weight"].to_numpy(),
                votes=_stack(labelled, names),
                panel=_stack(labelled, ["panel"])[:, 0],
            ),
        )


LABELLED_SQL = """
    WITH votes AS (
        SELECT tenant, query_id, chunk_id, {columns} FROM panel_verdicts JOIN positions USING (judge_id)
        SEMI JOIN human_labels USING (tenant, query_id, chunk_id)
        GROUP BY tenant, query_id, chunk_id
    )
    SELECT dense_rank() OVER (ORDER BY tenant, query_id) - 1 AS query, relevance > 0 AS positive,
           coalesce(weight, 1.0) AS weight, CAST(CAST(relevant AS INTEGER) AS DOUBLE) AS panel, votes.*
    FROM human_labels JOIN votes USING (tenant, query_id, chunk_id) JOIN verdicts USING (tenant, query_id, chunk_id)
    ORDER BY tenant, query_id, chunk_id
"""


def _stack(rows: pa.Table, names: list[str]) -> Doubles:
    columns = [rows[name].to_numpy(zero_copy_only=False).astype(np.float64) for name in names]
    return np.stack(columns, axis=1)


def _with_interval(counts: Doubles, figure: Callable[[Doubles], Doubles]) -> list[IntervalEstimate]:
    """Figures of all queries with their intervals."""
    values = figure(counts.sum(axis=0))
    low, high = interval(counts, figure, RESAMPLES, SEED)
    return [IntervalEstimate(*map(float, ends)) for ends in zip(values, low, high, strict=True)]


@dataclass(frozen=True)
class PanelAgreement:
    """Agreement of a panel's members over the pairs labelled by people.

    Attributes:
        with_people: kappa of each member with people.
        with_members: mean kappa of each member with the other members.
        mean_with_people: mean over the members.
        mean_with_members: mean over the members.
        effective_members: effective number of independent members.
    """

    with_people: list[IntervalEstimate]
    with_members: list[IntervalEstimate]
    mean_with_people: IntervalEstimate
    mean_with_members: IntervalEstimate
    effective_members: IntervalEstimate


def panel_agreement(votes: LabelledVotes) -> PanelAgreement:
    """Compare the members with people and with one another, over the same pairs."""
    n_members = votes.votes.shape[1]
    people = [votes.counts(votes.votes[:, member]) for member in range(n_members)]
    member_sides = [_votes_of(votes, other) for other in range(n_members)]
    pairs = [(member, other) for member in range(n_members) for other in range(member)]
    between = [
        member_sides[other].counts(_known(votes.votes[:, member], votes.votes[:, other])) for member, other in pairs
    ]
    has_member = np.array([[member in pair for pair in pairs] for member in range(n_members)], np.float64)

    def figure(counts: Doubles) -> Doubles:
        member_kappas = kappas(counts)
        with_people, between_kappas = member_kappas[..., :n_members], member_kappas[..., n_members:]
        with_members = np.nan_to_num(between_kappas) @ has_member.T / max(n_members - 1, 1)
        means = [np.nanmean(with_people, axis=-1, keepdims=True), with_members.mean(axis=-1, keepdims=True)]
        return np.concatenate([with_people, with_members, *means], axis=-1)

    figures = _with_interval(np.hstack([*people, *between]), figure)
    moments = _error_moments(votes)
    effective = _with_interval(moments, lambda sums: _effective_members(sums, n_members)[..., None])
    return PanelAgreement(
        figures[:n_members], figures[n_members : 2 * n_members], figures[-2], figures[-1], effective[0]
    )


def _votes_of(votes: LabelledVotes, member: int) -> LabelledVotes:
    """The same pairs with a member in the place of people."""
    return LabelledVotes(votes.query, votes.votes[:, member] == 1, votes.weight, votes.votes, votes.panel)


def _known(labels: Doubles, other: Doubles) -> Doubles:
    """The labels where the other has one, too."""
    return np.where(np.isnan(other), np.nan, labels)


def _error_moments(votes: LabelledVotes) -> Doubles:
    """Sums by query over relevant and over not relevant pairs: weight, votes, products of votes.

    Shape (n_queries, 2 (1 + n_members + n_members²)); pairs without a vote of each member are left out.
    """
    complete = votes.take(np.isfinite(votes.votes).min(axis=1))
    n_queries = int(votes.query.max(initial=-1)) + 1
    ones = np.ones((len(complete.query), 1))
    extended = np.hstack([ones, complete.votes])
    products = np.einsum("pm,pn->pmn", complete.votes, complete.votes).reshape(len(ones), -1)
    rows = np.hstack([extended, products]) * complete.weight[:, None]
    moments = np.zeros((n_queries, 2, rows.shape[1]))
    np.add.at(moments, (complete.query, complete.positive.astype(np.int64)), rows)
    return moments.reshape(n_queries, -1)


def _effective_members(sums: Doubles, n_members: int) -> Doubles:
    """n ÷ (1 + (n − 1) r), shape (...), where r is the mean correlation of the members' errors.

    This is the design effect of a cluster (Kish, 1965). Errors are votes less their mean over the pairs with the same
    label by people, so that agreement on the truth does not count as common error. A negative r counts as 0.
    """
    sums = sums.reshape(*sums.shape[:-1], 2, -1)
    weight = sums[..., :1]
    mean = np.divide(sums[..., 1 : 1 + n_members], weight, out=np.zeros_like(sums[..., :n_members]), where=weight > 0)
    products = sums[..., 1 + n_members :].reshape(*sums.shape[:-1], n_members, n_members)
    covariance = (products - weight[..., None] * mean[..., :, None] * mean[..., None, :]).sum(axis=-3)
    deviation = np.sqrt(np.maximum(np.diagonal(covariance, axis1=-2, axis2=-1), 0))
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = covariance / (deviation[..., :, None] * deviation[..., None, :])
    off_diagonal = np.where(np.eye(n_members, dtype=bool), np.nan, correlation)
    finite = np.isfinite(off_diagonal)
    mean_correlation = np.nan_to_num(off_diagonal).sum(axis=(-2, -1)) / np.maximum(finite.sum(axis=(-2, -1)), 1)
    return np.asarray(n_members / (1 + (n_members - 1) * np.maximum(mean_correlation, 0)))


@dataclass(frozen=True)
class VoteComparison:
    """A vote against the panel's best member, on held-out queries.

    Attributes:
        vote: its name.
        kappa: with people.
        difference: kappa less that of the best member.
        weights: fitted on all labels; None for the vote as built.
    """

    vote: str
    kappa: float
    difference: IntervalEstimate
    weights: tuple[float, ...] | None

    @property
    def is_better(self) -> bool:
        """Whether the vote is shown to be better than the best member: the interval is above 0."""
        return self.difference.low > 0


@dataclass(frozen=True)
class PanelComparison:
    """The votes of a panel against its best member.

    Attributes:
        best_member: position of the member that agrees best with people.
        member_kappa: its kappa.
        votes: the votes.
    """

    best_member: int
    member_kappa: float
    votes: list[VoteComparison]

    @property
    def proposed(self) -> VoteComparison | None:
        """The vote with the largest lower end of its difference, if it is better than the best member."""
        nearest = max(self.votes, key=lambda vote: vote.difference.low)
        return nearest if nearest.is_better else None

    @property
    def best_vote(self) -> VoteComparison:
        """The vote with the highest kappa."""
        return max(self.votes, key=lambda vote: vote.kappa)


def compare_votes(panel: PanelVotes, seed: int = SEED) -> PanelComparison | None:
    """Compare a panel's votes with its best member; None with too few labels or queries.

    The weights of the vote `weighted` are fitted on the labels of other queries (five folds). The best member is
    chosen on all labels, which favors it. The interval is that of the paired difference, resampling queries.
    """
    votes = panel.labelled
    if not has_enough_labels(votes.positive) or len(np.unique(votes.query)) < MIN_QUERIES:
        return None
    n_members = len(panel.members)
    votes = votes.take(np.isfinite(votes.votes).max(axis=1))
    fits: dict[str, _Fit] = {
        MAJORITY: lambda _: (1.0,) * n_members,
        WEIGHTED: lambda rows: stack_members(votes.votes[rows], votes.positive[rows]),
    }
    best_member = _best_member(votes)
    compare = partial(_compare, votes, member_labels=votes.votes[:, best_member])
    compared = [compare(AS_BUILT, votes.panel, None)]
    for name, fit in fits.items():
        labels = _cross_validated(votes, fit, seed)
        if not np.array_equal(labels, np.nan_to_num(votes.panel)):
            compared.append(compare(name, labels, fit(np.ones(len(labels), bool))))
    member_kappa = kappas(votes.counts(np.nan_to_num(votes.votes[:, best_member])).sum(axis=0))[0]
    return PanelComparison(best_member, float(member_kappa), compared)


def _best_member(votes: LabelledVotes) -> int:
    """Position of the member with the highest kappa with people."""
    member_kappas = [kappas(votes.counts(member_votes).sum(axis=0))[0] for member_votes in votes.votes.T]
    return int(np.argmax(np.nan_to_num(member_kappas, nan=-1.0)))


def _cross_validated(votes: LabelledVotes, fit: _Fit, seed: int) -> Doubles:
    """Labels of each fold's pairs by the weights fitted on the other folds, shape (n_pairs,)."""
    fold = folds(votes.query, seed)
    labels = np.empty(len(fold))
    for held_out_fold in np.unique(fold):
        is_held_out = fold == held_out_fold
        labels[is_held_out] = weighted_votes(votes.votes[is_held_out], fit(~is_held_out))
    return np.nan_to_num(labels)


def _compare(
    votes: LabelledVotes, name: str, labels: Doubles, weights: tuple[float, ...] | None, member_labels: Doubles
) -> VoteComparison:
    """Compare labels with those of a member; what either cannot label counts as not relevant."""

    def figure(counts: Doubles) -> Doubles:
        both = np.nan_to_num(kappas(counts))
        return np.asarray(both[..., :1] - both[..., 1:])

    counts = np.hstack([votes.counts(np.nan_to_num(part)) for part in (labels, member_labels)])
    difference = _with_interval(counts, figure)[0]
    return VoteComparison(name, float(kappas(counts.sum(axis=0))[0]), difference, weights)
