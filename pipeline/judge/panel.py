"""A panel of judges as one judge: voting on each pair, and agreement of the members."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.agreement import Confusion, alpha, cohens_kappa
from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.doubtful_labels import is_doubtful
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.judge.embedded import EmbeddedJudge
from darklode.pipeline.judge.port import Judge, Live, replies_of

TIED_VOTE = "the panel is tied, and not all votes have a probability"
NO_MEMBER_PROBABILITY = "no member of the panel gave a probability"
"""Reasons why a panel's vote is undecided, although members gave labels."""

_DECIMALS = 9  # of sums of weights
_SUMMED_COLUMNS = ("prompt_tokens", "cached_tokens", "completion_tokens", "attempts")
_Floats = NDArray[np.float64]
_Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Vote:
    """Voting rule of a panel.

    Attributes:
        rule: `majority` of labels, or `weighted` majority, ties broken by the mean probability; or `mean` probability.
        weights: weights of the members, >= 0, not all 0; `majority` uses them for probabilities only.
        threshold: minimum mean probability of a relevant pair.
        grades: grades of relevant pairs that all graded members share; empty: the panel gives no grades.
    """

    rule: Literal["majority", "mean", "weighted"]
    weights: tuple[float, ...]
    threshold: float
    grades: tuple[int, ...] = ()

    def combine(self, member_replies: Sequence[pa.Table]) -> pa.Table:
        """Combine the members' replies into one per pair; null if all members' replies are unreadable, or if the vote
        is undecided.

        Replies without a label are ignored; replies without a probability are ignored in the mean. A label without a
        mean probability is marked contradicted if a member's label is doubtful. Tokens and attempts are summed;
        rationales are not combined.

        A pair's grade is the lower median of the grades of the members that agree with the panel's label. If none of
        them gives a grade, a relevant pair has the lowest grade of relevant pairs.

        Args:
            member_replies: a table with the columns of `REPLIES` per member, for the same pairs in the same order.
        """
        labels = _stack_column(member_replies, "relevant", np.nan)
        probability = np.where(np.isnan(labels), np.nan, _stack_column(member_replies, "probability", np.nan))
        mean = weighted_mean(probability, self.weights)
        is_decided, relevant = self._by_mean(mean) if self.rule == "mean" else self._by_count(labels, probability, mean)
        reason = np.full(len(mean), NO_MEMBER_PROBABILITY if self.rule == "mean" else TIED_VOTE, dtype=object)
        unlabelled = np.flatnonzero(np.isnan(labels).all(axis=0))
        reason[unlabelled] = _join_errors([reply["error"].take(pa.array(unlabelled)) for reply in member_replies])
        is_doubted = (
            is_decided & np.isnan(mean) & np.any([is_doubtful(reply).to_numpy() for reply in member_replies], axis=0)
        )
        columns = {
            "relevant": pa.array(relevant, mask=~is_decided),
            "contradicted": pa.array(is_doubted, mask=~is_doubted),
            "probability": pa.array(mean.astype(np.float32), mask=np.isnan(mean) | ~is_decided),
            **({"grade": self._grade(member_replies, labels, relevant, is_decided)} if self.grades else {}),
            "truncated": _any_true([reply["truncated"] for reply in member_replies]),
            "error": pa.array(reason, pa.string(), mask=is_decided),
            **{name: _sum_columns([reply[name] for reply in member_replies]) for name in _SUMMED_COLUMNS},
        }
        return replies_of(columns, len(mean))

    def _grade(
        self, member_replies: Sequence[pa.Table], labels: _Floats, relevant: _Mask, is_decided: _Mask
    ) -> pa.Array:
        """Grade of each pair; null if undecided, or not relevant and without a grade."""
        grades = np.where(labels == relevant, _stack_column(member_replies, "grade", np.nan), np.nan)
        median_place = np.maximum(np.isfinite(grades).sum(axis=0) - 1, 0) // 2  # NaN is sorted last
        median = np.take_along_axis(np.sort(grades, axis=0), median_place[None], axis=0)[0]
        grade = np.where(relevant & np.isnan(median), min(self.grades), median)
        is_known = is_decided & np.isfinite(grade)
        return pa.array(np.where(is_known, grade, 0).astype(np.int32), mask=~is_known)

    def _by_mean(self, mean: _Floats) -> tuple[_Mask, _Mask]:
        """Decide by the mean probability: whether each pair is decided, and whether it is relevant."""
        return ~np.isnan(mean), mean.astype(np.float32) >= np.float32(self.threshold)

    def _by_count(self, labels: _Floats, probability: _Floats, mean: _Floats) -> tuple[_Mask, _Mask]:
        """Decide by (weighted) majority, ties by the mean: whether each pair is decided, and whether it is relevant."""
        counts = np.array(self.weights if self.rule == "weighted" else (1.0,) * len(labels))[:, None]
        # Rounded, so that 0.1 + 0.2 ties with 0.3.
        n_relevant, n_not_relevant = ((counts * (labels == label)).sum(axis=0).round(_DECIMALS) for label in (1, 0))
        mean_decides = ~(np.isnan(probability) & ~np.isnan(labels)).any(axis=0) & ~np.isnan(mean) & (n_relevant > 0)
        _, relevant = self._by_mean(mean)
        return (n_relevant != n_not_relevant) | mean_decides, np.where(
            n_relevant == n_not_relevant, relevant, n_relevant > n_not_relevant
        )


def weighted_mean(values: _Floats, weights: Sequence[float]) -> _Floats:
    """Weighted mean of the known values of each pair, shape (n_pairs,); NaN if their weights sum to 0.

    Args:
        values: shape (n_members, n_pairs), NaN where unknown.
        weights: of the members.
    """
    known_weights = np.array(weights)[:, None] * ~np.isnan(values)
    total = known_weights.sum(axis=0)
    summed = (known_weights * np.nan_to_num(values)).sum(axis=0)
    return np.asarray(np.divide(summed, total, out=np.full(len(total), np.nan), where=total > 0))


def _stack_column(member_replies: Sequence[pa.Table], name: str, missing: float) -> _Floats:
    """Stack a column of every member, shape (n_members, n_pairs); nulls become `missing`."""
    return np.stack([pc.fill_null(reply[name].cast(pa.float64()), missing).to_numpy() for reply in member_replies])


def _join_errors(errors: Sequence[pa.ChunkedArray]) -> NDArray[np.object_]:
    """Join the members' errors for each pair, shape (n_pairs,)."""
    reasons = [pc.fill_null(column, "no reason given") for column in errors]
    return np.asarray(pc.binary_join_element_wise(*reasons, "; ").to_numpy(), dtype=object)


def _any_true(columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    """Whether any column is true, per row; null if none is and one is null."""
    any_true = columns[0]
    for column in columns[1:]:
        any_true = pc.or_kleene(any_true, column)
    return any_true


def _sum_columns(columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    """Sum columns per row, ignoring nulls; null if all are null."""
    first_known = pc.coalesce(*columns)
    total = pc.fill_null(columns[0], 0)
    for column in columns[1:]:
        total = pc.add(total, pc.fill_null(column, 0))
    return pc.if_else(pc.is_valid(first_known), total, None).cast(columns[0].type)


class Panel(Judge):
    """A judge that combines its members' replies by vote; members run concurrently.

    Source: Verga et al., 2024 (several small models instead of a large one).

    Args:
        members: judges, at least one, in the order of the vote's weights.
        vote: combines the replies.
    """

    def __init__(self, members: Sequence[Judge], vote: Vote) -> None:
        self._members = members
        self._vote = vote

    @cached_property
    def member_ids(self) -> list[str]:
        """The members' judge ids, in order.

        Raises:
            SettingsError: two members are the same judge.
        """
        ids = [member.judge_id for member in self._members]
        repeated_ids = {member_id for member_id in ids if ids.count(member_id) > 1}
        if repeated_ids:
            raise SettingsError(
                f"judge.panel names the same judge twice: {', '.join(sorted(repeated_ids))}; leave one out"
            )
        return ids

    @cached_property
    def judge_id(self) -> str:
        """Id of the panel: voting rule, threshold, and each member's id with its weight."""
        weighted_ids = [
            f"{weight:g}*{member_id}" for weight, member_id in zip(self._vote.weights, self.member_ids, strict=True)
        ]
        rule = f"{self._vote.rule}+grades" if self._vote.grades else self._vote.rule
        return f"panel-1:{rule}:{self._vote.threshold:g}:[{' | '.join(weighted_ids)}]"

    @staticmethod
    def ids_of_members(judge_id: str) -> list[str]:
        """The members' judge ids in a panel's `judge_id`, in the order of its weights; empty for another judge."""
        match = re.fullmatch(r"panel-1:[^:]+:[^:]+:\[(.*)\]", judge_id)
        return [weighted_id.partition("*")[2] for weighted_id in match[1].split(" | ")] if match else []

    @property
    def facts(self) -> dict[str, int]:
        """Sum of the members' facts."""
        total = Counter[str]()
        for member in self._members:
            total.update(member.facts)
        return dict(total)

    @property
    def live(self) -> Live | None:
        """Progress of the slowest member that reports any."""
        live_judges = [live for member in self._members if (live := member.live)]
        return min(live_judges, key=lambda live: live.n_answered, default=None)

    async def judge(self, pairs: pa.Table) -> pa.Table:
        """Judge pairs: the members' replies, combined by vote."""
        return self.combine(await self.each(pairs))

    async def each(self, pairs: pa.Table) -> list[pa.Table]:
        """Collect each member's replies, in order; a failure of one cancels the others.

        Raises:
            SettingsError: two members are the same judge.
        """
        # The embedded judge blocks the event loop, so it runs before calls to servers start.
        order = sorted(
            range(len(self.member_ids)), key=lambda position: not isinstance(self._members[position], EmbeddedJudge)
        )
        tasks = {position: asyncio.ensure_future(self._members[position].judge(pairs)) for position in order}
        try:
            return list(await asyncio.gather(*(tasks[position] for position in sorted(tasks))))
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    def combine(self, member_replies: Sequence[pa.Table]) -> pa.Table:
        """Combine the members' replies, as returned by `each`."""
        return self._vote.combine(member_replies)


# Columns of `PAIRWISE_COUNTS_SQL`, in the order of `Confusion`'s fields.
_CONFUSION_COLUMNS = ("both_relevant", "first_alone", "other_alone", "neither")

PAIRWISE_COUNTS_SQL = """
    SELECT a.judge_id, b.judge_id AS other, count(*) AS pairs,
           count(*) FILTER (a.relevant AND b.relevant) AS both_relevant,
           count(*) FILTER (a.relevant AND NOT b.relevant) AS first_alone,
           count(*) FILTER (NOT a.relevant AND b.relevant) AS other_alone,
           count(*) FILTER (NOT a.relevant AND NOT b.relevant) AS neither
    FROM panel_verdicts a JOIN panel_verdicts b USING (tenant, query_id, chunk_id)
    WHERE a.judge_id < b.judge_id AND a.relevant IS NOT NULL AND b.relevant IS NOT NULL
    GROUP BY a.judge_id, b.judge_id ORDER BY a.judge_id, b.judge_id
"""

VOTE_COUNTS_SQL = """
    WITH votes AS (
        SELECT count(*) FILTER (relevant) AS n_relevant, count(*) FILTER (NOT relevant) AS n_not_relevant
        FROM panel_verdicts GROUP BY tenant, query_id, chunk_id
    )
    SELECT n_relevant, n_not_relevant, count(*) AS pairs FROM votes WHERE n_relevant + n_not_relevant > 1
    GROUP BY n_relevant, n_not_relevant ORDER BY n_relevant, n_not_relevant
"""


def pairwise_kappa(tables: Tables) -> pa.Table:
    """Compare every two members, a row each, over pairs with both labels: confusion counts and Cohen's kappa (1960).

    Kappa is null if both always give the same label. An embedded judge is fitted per tenant and has one id per tenant.
    """
    pairwise_counts = tables.sql(PAIRWISE_COUNTS_SQL)
    counts = Confusion(*(pairwise_counts[name].to_numpy() for name in _CONFUSION_COLUMNS))
    return pairwise_counts.append_column("kappa", pa.array(cohens_kappa(counts), from_pandas=True))


def panel_alpha(tables: Tables) -> pa.Table:
    """Compute Krippendorff's alpha (nominal) of all members over pairs with at least two labels.

    One row: pairs, unanimous pairs, alpha; no row if no pair has two labels.
    """
    votes = tables.sql(VOTE_COUNTS_SQL)
    n_relevant, n_not_relevant, pairs = (votes[name].to_numpy() for name in ("n_relevant", "n_not_relevant", "pairs"))
    if not len(pairs):
        return pa.table({"pairs": pa.array([], pa.int64())})
    n_unanimous = int(pairs[(n_relevant == 0) | (n_not_relevant == 0)].sum())
    alpha_column = pa.array([float(alpha(n_relevant, n_not_relevant, pairs))], from_pandas=True)
    return pa.table({"pairs": [int(pairs.sum())], "unanimous": [n_unanimous], "alpha": alpha_column})
