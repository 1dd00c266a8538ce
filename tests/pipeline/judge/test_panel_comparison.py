"""A panel against people and its best member: kappas, common errors, votes on held-out queries, tables of a run."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from sklearn.metrics import cohen_kappa_score

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.judge.panel_comparison import (
    AS_BUILT,
    MAJORITY,
    WEIGHTED,
    LabelledVotes,
    PanelVotes,
    compare_votes,
    panel_agreement,
)
from darklode.schemas.label_tables import PANEL_VERDICTS, VERDICTS
from darklode.schemas.review_tables import HUMAN_LABELS
from helpers.runs import put

Floats = NDArray[np.float64]


def labelled(n_queries: int, sensitivity: list[float], common: float, n_pairs: int = 20) -> LabelledVotes:
    """Random pairs; with probability `common` a member repeats the first member's vote."""
    random = np.random.default_rng(7)
    query = np.repeat(np.arange(n_queries), n_pairs)
    positive = random.random(len(query)) < 0.4
    yes = np.where(positive[:, None], sensitivity, 1 - np.array(sensitivity))
    votes = (random.random(yes.shape) < yes).astype(np.float64)
    votes = np.where(random.random(votes.shape) < common, votes[:, :1], votes)
    panel = (votes.mean(axis=1) > 0.5).astype(np.float64)
    return LabelledVotes(query, positive, np.ones(len(query)), votes, panel)


def of_panel(votes: LabelledVotes) -> PanelVotes:
    return PanelVotes([f"judge {number}" for number in range(votes.votes.shape[1])], votes)


def test_kappas_are_those_of_sklearn_and_lie_within_their_intervals() -> None:
    votes = labelled(30, [0.9, 0.8, 0.6], 0.2)
    found = panel_agreement(votes)
    for member in range(3):
        assert found.with_people[member].value == pytest.approx(
            cohen_kappa_score(votes.votes[:, member], votes.positive)
        )
    between = [cohen_kappa_score(votes.votes[:, 0], votes.votes[:, other]) for other in (1, 2)]
    assert found.with_members[0].value == pytest.approx(np.mean(between))
    assert found.mean_with_people.value == pytest.approx(np.mean([figure.value for figure in found.with_people]))
    figures = [*found.with_people, *found.with_members, found.mean_with_people, found.mean_with_members]
    assert all(figure.low < figure.value < figure.high for figure in figures)


def test_weights_count_pairs_several_times() -> None:
    votes = labelled(5, [0.9, 0.7], 0.0)
    doubled = LabelledVotes(votes.query, votes.positive, 1.0 + (votes.query == 2), votes.votes, votes.panel)
    rows = np.concatenate([np.arange(len(votes.query)), np.flatnonzero(votes.query == 2)])
    assert panel_agreement(doubled).with_people[1].value == pytest.approx(
        cohen_kappa_score(votes.votes[rows, 1], votes.positive[rows])
    )


def test_a_pair_without_a_members_vote_is_ignored_for_that_member() -> None:
    votes = labelled(20, [0.9, 0.7], 0.0)
    votes.votes[::4, 1] = np.nan
    known = ~np.isnan(votes.votes[:, 1])
    found = panel_agreement(votes)
    assert found.with_people[1].value == pytest.approx(cohen_kappa_score(votes.votes[known, 1], votes.positive[known]))
    assert found.with_members[0].value == pytest.approx(cohen_kappa_score(votes.votes[known, 0], votes.votes[known, 1]))


@pytest.mark.parametrize(("common", "low", "high"), [(0.0, 4.5, 5.0), (1.0, 1.0, 1.0)])
def test_the_effective_number_is_all_members_or_one(common: float, low: float, high: float) -> None:
    """Independent errors although all agree with people; and copies of one judge."""
    found = panel_agreement(labelled(100, [0.8] * 5, common)).effective_members
    assert low - 1e-9 <= found.value <= high + 1e-9
    assert found.low <= found.value <= found.high + 1e-9


def test_errors_of_known_correlation_give_kishs_number() -> None:
    """A member repeats the first with probability c: correlations c with the first, c² between others."""
    found = panel_agreement(labelled(400, [0.8] * 3, 0.5, n_pairs=100)).effective_members
    mean_correlation = (2 * 0.5 + 0.5**2) / 3
    assert found.value == pytest.approx(3 / (1 + 2 * mean_correlation), rel=0.03)


def test_a_panel_of_equal_independent_judges_is_proposed() -> None:
    compared = compare_votes(of_panel(labelled(60, [0.75] * 5, 0.0)))
    assert compared is not None
    assert compared.votes[0].vote == AS_BUILT
    proposed = compared.proposed
    assert proposed is not None
    assert proposed.difference.low > 0
    assert proposed.kappa - compared.member_kappa == pytest.approx(proposed.difference.value)


@pytest.mark.parametrize(("sensitivity", "common"), [([0.95, 0.55, 0.55], 0.0), ([0.75] * 5, 1.0)])
def test_no_panel_is_proposed_beside_a_far_better_member_or_of_copies(sensitivity: list[float], common: float) -> None:
    compared = compare_votes(of_panel(labelled(60, sensitivity, common)))
    assert compared is not None
    assert compared.proposed is None
    assert compared.best_member == 0


def test_votes_equal_to_the_one_as_built_are_left_out() -> None:
    votes = labelled(60, [0.75] * 5, 0.3)
    compared = compare_votes(of_panel(votes))
    assert compared is not None
    assert MAJORITY not in {vote.vote for vote in compared.votes}
    other = LabelledVotes(votes.query, votes.positive, votes.weight, votes.votes, votes.votes[:, 0])
    compared = compare_votes(of_panel(other))
    assert compared is not None
    assert [vote.vote for vote in compared.votes][:2] == [AS_BUILT, MAJORITY]
    assert {vote.vote for vote in compared.votes} <= {AS_BUILT, MAJORITY, WEIGHTED}
    assert compared.votes[1].weights == (1.0,) * 5


@pytest.mark.parametrize(("n_queries", "n_pairs"), [(9, 60), (12, 5)])
def test_too_few_queries_or_labels_compare_nothing(n_queries: int, n_pairs: int) -> None:
    assert compare_votes(of_panel(labelled(n_queries, [0.8] * 3, 0.0, n_pairs))) is None


def verdict_rows(judge_id: str, labels: dict[str, bool | None], tenant: str = "a") -> pa.Table:
    columns = {"tenant": [tenant] * len(labels), "query_id": ["q1"] * len(labels), "chunk_id": list(labels)}
    error = ["unreadable" if label is None else None for label in labels.values()]
    return VERDICTS.rows(
        columns | {"judge_id": [judge_id] * len(labels), "relevant": list(labels.values()), "error": error}
    )


def test_the_votes_of_a_run_are_in_the_order_of_its_settings(tmp_path: Path) -> None:
    run = Run(str(tmp_path / "run"))
    labels: dict[str, dict[str, bool | None]] = {
        "zeta": {"c1": True, "c2": False, "c3": True},
        "alpha": {"c1": True, "c2": None, "c3": False},
    }
    put(
        run,
        "panel_verdicts",
        pa.concat_tables(verdict_rows(*row) for row in labels.items()).cast(PANEL_VERDICTS.schema),
    )
    put(run, "verdicts", verdict_rows("panel-1:majority:0.5:[1*zeta | 1*alpha]", {"c1": True, "c2": False, "c3": None}))
    human = {"tenant": ["a"] * 2, "query_id": ["q1"] * 2, "chunk_id": ["c2", "c3"], "relevance": [0, 2]}
    put(run, "human_labels", HUMAN_LABELS.rows(human))
    votes = PanelVotes.from_tables(all_tables(run))
    assert votes is not None
    assert votes.members == ["zeta", "alpha"]
    np.testing.assert_array_equal(votes.labelled.votes, [[0, np.nan], [1, 0]])
    np.testing.assert_array_equal(votes.labelled.positive, [False, True])
    np.testing.assert_array_equal(votes.labelled.panel, [0, np.nan])


def test_a_member_with_an_id_per_tenant_is_one_member(tmp_path: Path) -> None:
    run = Run(str(tmp_path / "run"))
    own = [verdict_rows(f"fitted-{tenant}", {"c1": tenant == "a"}, tenant) for tenant in ("a", "b")]
    shared = [verdict_rows("shared", {"c1": True}, tenant) for tenant in ("a", "b")]
    put(run, "panel_verdicts", pa.concat_tables([*own, *shared]).cast(PANEL_VERDICTS.schema))
    panels = [
        verdict_rows(f"panel-1:majority:0.5:[1*fitted-{tenant} | 1*shared]", {"c1": True}, tenant)
        for tenant in ("a", "b")
    ]
    put(run, "verdicts", pa.concat_tables(panels))
    human = {"tenant": ["a", "b"], "query_id": ["q1"] * 2, "chunk_id": ["c1"] * 2, "relevance": [1, 0]}
    put(run, "human_labels", HUMAN_LABELS.rows(human))
    votes = PanelVotes.from_tables(all_tables(run))
    assert votes is not None
    assert votes.members == ["fitted-a", "shared"]
    assert votes.labelled.votes.tolist() == [[1, 1], [0, 1]]
    assert votes.labelled.query.tolist() == [0, 1]


def test_a_single_judge_is_no_panel(tmp_path: Path) -> None:
    run = Run(str(tmp_path / "run"))
    put(run, "verdicts", verdict_rows("alone", {"c1": True}))
    put(run, "panel_verdicts", PANEL_VERDICTS.empty())
    put(run, "human_labels", HUMAN_LABELS.empty())
    assert PanelVotes.from_tables(all_tables(run)) is None
