"""Several judges as one: the vote, nulls and ties, side by side, and what the stage keeps of each."""

import asyncio
import itertools
import math
import time
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from darklode.pipeline.base.agreement import alpha
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.doubtful_labels import TIED_REASON
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.judge.panel import NO_MEMBER_PROBABILITY, TIED_VOTE, Panel, Vote, pairwise_kappa, panel_alpha
from darklode.pipeline.judge.port import REPLIES
from darklode.pipeline.judge.stage import JUDGE, judge
from darklode.pipeline.report.card import card
from darklode.schemas.judging import JudgeSettings
from darklode.schemas.label_tables import PANEL_VERDICTS
from darklode.schemas.settings import Settings
from helpers.judge_tables import chunks, pool, queries
from helpers.runs import execute, put, read
from helpers.scripted_judge import NOT_RELEVANT, RELEVANT, UNREADABLE, Said, ScriptedJudge, from_table
from helpers.scripted_stream import pairs, replies

YES, NO = {"relevant": True}, {"relevant": False}
NULL = UNREADABLE


def said(relevant: bool, probability: float | None = None) -> Said:
    return {"relevant": relevant, "probability": probability}


def vote(
    *each: Said,
    rule: Literal["majority", "mean", "weighted"] = "majority",
    weights: tuple[float, ...] = (),
    threshold: float = 0.5,
) -> dict[str, Any]:
    """The panel's reply to one pair."""
    pooled = Vote(rule, weights or (1.0,) * len(each), threshold).combine([replies(one) for one in each])
    assert pooled.schema.equals(REPLIES)
    row: dict[str, Any] = pooled.to_pylist()[0]
    return row


def test_a_majority_decides() -> None:
    assert vote(YES, YES, NO)["relevant"] is True
    assert vote(NO, YES, NO)["relevant"] is False
    pooled = vote(said(True, 0.6), said(True, 0.6), said(False, 0.0))
    assert (pooled["relevant"], pooled["probability"], pooled["error"]) == (True, pytest.approx(0.4), None)


def test_a_weighted_majority_counts_weights() -> None:
    assert vote(YES, NO, NO, rule="weighted", weights=(1, 0.4, 0.4))["relevant"] is True
    assert vote(YES, NO, NO, rule="weighted", weights=(1, 0.6, 0.6))["relevant"] is False
    assert vote(YES, NO, NO)["relevant"] is False
    assert vote(NULL, YES, NO, rule="weighted", weights=(1, 0.4, 0.3))["relevant"] is True
    tied = vote(YES, YES, NO, rule="weighted", weights=(0.1, 0.2, 0.3))
    assert (tied["relevant"], tied["error"]) == (None, TIED_VOTE)
    assert vote(said(True, 0.9), said(False, 0.4), rule="weighted")["relevant"] is True, "the mean breaks a tie"


def test_the_id_of_a_panel_names_its_members_in_order() -> None:
    members = [ScriptedJudge(judge_id=name) for name in ("z:1", "a|b:2")]
    panel = Panel(members, Vote("weighted", (0.25, 1.0), 0.5))
    assert Panel.ids_of_members(panel.judge_id) == [member.judge_id for member in members]
    assert Panel.ids_of_members("llm-1:model:[x]") == []


def test_a_null_takes_no_part_and_all_null_is_null_with_every_reason() -> None:
    assert vote(YES, NULL, NULL)["relevant"] is True
    assert vote(NULL, said(False, 0.2), rule="mean")["relevant"] is False
    silent = vote(NULL, {"error": "refused"})
    assert (silent["relevant"], silent["probability"], silent["error"]) == (
        None,
        None,
        "the reply names no label; refused",
    )
    assert vote({**NULL, "probability": 0.9}, said(False, 0.1), rule="mean")["probability"] == pytest.approx(0.1)


def test_a_tie_goes_to_the_mean_probability_if_every_vote_has_one() -> None:
    assert vote(said(True, 0.9), said(False, 0.4))["relevant"] is True
    assert vote(said(True, 0.6), said(False, 0.1))["relevant"] is False
    assert vote(said(True, 0.6), said(False, 0.1), weights=(9, 1))["relevant"] is True
    assert vote(said(True, 0.6), said(False, 0.1), threshold=0.3)["relevant"] is True
    tied = vote(said(True, 0.9), NO)
    assert (tied["relevant"], tied["probability"], tied["error"]) == (None, None, TIED_VOTE)
    assert vote(said(True, 0.9), said(False, 0.4), NULL)["relevant"] is True


def test_the_mean_is_weighted_over_those_that_gave_a_probability() -> None:
    pooled = vote(said(False, 0.2), said(True, 0.8), NULL, rule="mean", weights=(1, 3, 5))
    assert (pooled["relevant"], pooled["probability"]) == (True, pytest.approx(0.65))
    unknown = vote(YES, YES, rule="mean")
    assert (unknown["relevant"], unknown["error"]) == (None, NO_MEMBER_PROBABILITY)
    assert vote(said(True, 0.9), said(False, 0.1), rule="mean", weights=(0, 1))["relevant"] is False


def test_a_label_without_a_probability_that_a_member_doubts_is_contradicted() -> None:
    contradicted, tied = YES | {"contradicted": True}, YES | {"no_probability": TIED_REASON}
    assert vote(contradicted, YES, NO)["contradicted"] is True
    assert vote(tied, YES)["contradicted"] is True
    assert vote(YES, YES)["contradicted"] is None
    assert vote(contradicted, said(True, 0.8))["contradicted"] is None
    undecided = vote(contradicted, NO)
    assert (undecided["relevant"], undecided["contradicted"]) == (None, None)


def test_a_grade_is_the_lower_median_of_the_members_that_agree_with_the_vote() -> None:
    three, two, no_grade = YES | {"grade": 3}, YES | {"grade": 2}, NO | {"grade": 1}
    assert graded_vote(three, two, no_grade) == (True, 2)
    assert graded_vote(three, three, two) == (True, 3)
    assert graded_vote(three, two, YES) == (True, 2), "a binary member gives no grade and lowers none"
    assert graded_vote(no_grade, NO | {"grade": 0}, three) == (False, 0)
    assert graded_vote(NO, NO, three) == (False, None)
    assert graded_vote(UNREADABLE, UNREADABLE) == (None, None)


def test_a_positive_of_binary_members_has_the_lowest_relevant_grade() -> None:
    """With 1 it would gain half of what a graded member's lowest positive gains."""
    assert graded_vote(YES, YES, NO | {"grade": 1}) == (True, 2)


def test_a_pair_that_is_relevant_by_threshold_keeps_its_grade_as_without_a_panel() -> None:
    by_threshold = said(True, 0.4) | {"grade": 1}
    assert graded_vote(by_threshold, by_threshold) == (True, 1)


def graded_vote(*each: Said) -> tuple[bool | None, int | None]:
    pooled = Vote("majority", (1.0,) * len(each), 0.5, grades=(3, 2)).combine([replies(one) for one in each])
    (row,) = pooled.to_pylist()
    return row["relevant"], row["grade"]


def test_tokens_add_up_and_a_cut_anywhere_is_a_cut() -> None:
    one = {**YES, "prompt_tokens": 5, "attempts": 2, "truncated": False, "grade": 3, "raw_reply": "3"}
    two = {**YES, "prompt_tokens": 7, "truncated": True}
    pooled = vote(one, two)
    assert [pooled[name] for name in ("prompt_tokens", "attempts", "completion_tokens", "truncated", "grade")] == [
        12,
        2,
        None,
        True,
        None,
    ]


ANY = st.one_of(
    st.just(NULL),
    st.builds(said, st.booleans(), st.one_of(st.none(), st.integers(0, 8).map(lambda eighths: eighths / 8))),
)


@pytest.mark.slow
@given(st.lists(ANY, min_size=1, max_size=4), st.sampled_from(["majority", "mean"]))
def test_a_vote_is_a_label_or_a_reason_whatever_the_order(each: list[Said], rule: Any) -> None:
    pooled = vote(*each, rule=rule)
    assert (pooled["relevant"] is None) == (pooled["error"] is not None)
    for order in itertools.permutations(each):
        assert vote(*order, rule=rule)["relevant"] is pooled["relevant"]
    labels = [one["relevant"] for one in each if one.get("relevant") is not None]
    if labels and len(set(labels)) == 1 and rule == "majority":
        assert pooled["relevant"] is labels[0]


def panel(*members: ScriptedJudge, **given: Any) -> Panel:
    chosen = {"rule": "majority", "weights": (1.0,) * len(members), "threshold": 0.5} | given
    return Panel(members, Vote(**chosen))


def test_the_judge_id_names_members_vote_weights_and_threshold() -> None:
    one, two = ScriptedJudge(judge_id="one"), ScriptedJudge(judge_id="two")
    ids = [
        panel(one, two).judge_id,
        panel(one, two, rule="mean").judge_id,
        panel(one, two, weights=(1.0, 2.0)).judge_id,
        panel(one, two, threshold=0.4).judge_id,
        panel(one, ScriptedJudge(judge_id="three")).judge_id,
        panel(one).judge_id,
        panel(one, two, grades=(3, 2)).judge_id,
    ]
    assert ids[0] == "panel-1:majority:0.5:[1*one | 1*two]"
    assert len(set(ids)) == len(ids)


def test_the_same_judge_twice_is_an_error() -> None:
    with pytest.raises(SettingsError, match="the same judge twice: scripted"):
        asyncio.run(panel(ScriptedJudge(), ScriptedJudge()).judge(pairs((0, 0))))


def test_members_wait_side_by_side() -> None:
    slow = [ScriptedJudge(judge_id=f"slow {place}", seconds=0.3) for place in range(4)]
    began = time.monotonic()
    asyncio.run(panel(*slow).judge(pairs((0, 0), (0, 1))))
    assert time.monotonic() - began < 4 * 0.3
    assert all(len(one.batches) == 1 for one in slow)


def test_a_member_that_fails_stops_the_others() -> None:
    slow, failing = ScriptedJudge(judge_id="slow", seconds=30), ScriptedJudge(judge_id="failing", fail_at=1)
    with pytest.raises(ConnectionError):
        asyncio.run(asyncio.wait_for(panel(slow, failing).judge(pairs((0, 0))), 10))


def small(run: Run) -> Run:
    for table, rows in (("queries", queries), ("chunks", chunks)):
        ids = ("q1", "q2") if table == "queries" else ("c1", "c2")
        put(run, table, pa.concat_tables(rows(tenant, {one: f"{tenant} {one}" for one in ids}) for tenant in "ab"))
    every = [(query, chunk) for query in ("q1", "q2") for chunk in ("c1", "c2")]
    put(run, "pool", pa.concat_tables(pool(tenant, every) for tenant in "ab"))
    return run


def test_the_stage_writes_the_vote_as_the_verdict_and_the_members_apart(run: Run) -> None:
    one = ScriptedJudge(from_table({("q1", "c1"): RELEVANT, ("q2", "c2"): UNREADABLE}), "one")
    two = ScriptedJudge(from_table({("q1", "c1"): RELEVANT, ("q1", "c2"): RELEVANT, ("q2", "c2"): UNREADABLE}), "two")
    three = ScriptedJudge(from_table({("q2", "c2"): UNREADABLE}, NOT_RELEVANT), "three")
    judges = panel(one, two, three)
    manifest = execute(
        small(run),
        JUDGE,
        lambda tables, output: judge(tables, output, JudgeSettings(), judge_for=lambda _chunks: judges),
    )
    verdicts = read(run, "verdicts")
    assert {row["judge_id"] for row in verdicts} == {judges.judge_id}
    assert [row["relevant"] for row in verdicts] == [True, False, False, None] * 2
    own = read(run, "panel_verdicts")
    assert len(own) == 3 * len(verdicts)
    assert [row["relevant"] for row in own if row["judge_id"] == "two" and row["tenant"] == "b"] == [
        True,
        True,
        False,
        None,
    ]
    assert manifest.facts["judge_ids"] == [judges.judge_id]
    assert manifest.facts["members"] == ["one", "three", "two"]
    assert manifest.facts["unreadable"] == 2
    tables = all_tables(run)
    assert tables.sql("SELECT count(*) = count(DISTINCT (tenant, query_id, chunk_id)) AS one FROM verdicts")[
        "one"
    ].to_pylist() == [True]


def test_settings_of_a_panel_are_checked() -> None:
    member = {"kind": "cross_encoder", "model": "owner/name"}
    JudgeSettings.model_validate({"panel": [member], "panel_weights": [1, 2], "vote": "mean"})
    for wrong in (
        {"panel": [member], "panel_weights": [1]},
        {"panel": [member], "panel_weights": [0, 0]},
        {"panel_weights": [1, 2]},
        {"panel": [member | {"threshold": "fitted"}]},
        {"panel": [member | {"panel": []}]},
        {"threshold": "fitted"},
        {"panel": [member], "threshold": "fitted", "human_labels": "l.csv", "vote": "majority"},
    ):
        with pytest.raises(ValueError, match=r"weights|fitted|panel"):
            JudgeSettings.model_validate(wrong)


class Counting(ScriptedJudge):
    """Has facts, and says how far it is."""

    def __init__(self, judge_id: str, answered: int) -> None:
        super().__init__(judge_id=judge_id)
        self.n_answered, self.note = answered, judge_id
        self.facts = {"hits": answered, "asked": 1}
        self.live = self


def test_a_panel_is_as_far_as_its_slowest_member_and_adds_up_what_they_took() -> None:
    three = panel(Counting("one", 5), ScriptedJudge(judge_id="silent"), Counting("two", 3))
    assert three.live is not None
    assert (three.live.n_answered, three.live.note) == (3, "two")
    assert three.facts == {"hits": 8, "asked": 2}
    assert panel(ScriptedJudge()).live is None


LABELS: dict[str, list[bool | None]] = {
    "one": [True, True, True, False, False, False, None, None],
    "two": [True, True, False, False, False, True, True, None],
    "three": [True, None, False, False, True, False, False, True],
}


def give(run: Run, labels: dict[str, list[bool | None]], tenant: str = "t") -> None:
    rows = [
        {"tenant": tenant, "query_id": "q", "chunk_id": f"c{place}", "judge_id": name, "relevant": label}
        for name, said in labels.items()
        for place, label in enumerate(said)
    ]
    put(run, "panel_verdicts", pa.Table.from_pylist(rows, schema=PANEL_VERDICTS.schema))


def test_pairwise_kappa_is_over_the_pairs_that_both_labelled(run: Run) -> None:
    give(run, LABELS)
    found = pairwise_kappa(all_tables(run)).to_pylist()
    assert [(row["judge_id"], row["other"], row["pairs"]) for row in found] == [
        ("one", "three", 5),
        ("one", "two", 6),
        ("three", "two", 6),
    ]
    for row in found:
        both = [
            (one, two)
            for one, two in zip(LABELS[row["judge_id"]], LABELS[row["other"]], strict=True)
            if one is not None and two is not None
        ]
        assert row["kappa"] == pytest.approx(cohen_kappa_score(*zip(*both, strict=True)))
    # one and two: both 2, alone 1 and 1, neither 2: observed 4/6, by chance 1/2.
    assert found[1]["kappa"] == pytest.approx(1 / 3)


def test_alpha_by_hand(run: Run) -> None:
    give(run, {name: LABELS[name] for name in ("one", "two")})
    # 6 pairs, 12 labels, 6 of each; 2 pairs differ: 1 - 11 * (2 * 2) / (2 * 36).
    (row,) = panel_alpha(all_tables(run)).to_pylist()
    assert (row["pairs"], row["unanimous"]) == (6, 4)
    assert row["alpha"] == pytest.approx(1 - 11 * 4 / 72)


def test_alpha_leaves_out_what_only_one_has_labelled(run: Run) -> None:
    give(run, LABELS)
    (row,) = panel_alpha(all_tables(run)).to_pylist()
    assert row["pairs"] == 7


def test_the_example_of_the_literature() -> None:
    # Krippendorff (2011), nominal data of two observers and two values: ten units, alpha 0.095.
    one, two = [0, 1, 0, 0, 0, 0, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
    yes = np.array(one) + np.array(two)
    assert alpha(yes, 2 - yes, np.ones(10, np.int64)) == pytest.approx(0.095, abs=5e-4)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=20))
def test_alpha_is_one_only_without_a_difference(votes: list[tuple[int, int]]) -> None:
    kinds = [(yes, no) for yes, no in votes if yes + no > 1]
    yes, no = np.array([k[0] for k in kinds], np.int64), np.array([k[1] for k in kinds], np.int64)
    found = alpha(yes, no, np.ones(len(kinds), np.int64))
    if not math.isnan(found):
        assert found <= 1
        assert (found == 1) == (not (yes * no).any())


def test_a_large_run_does_not_overflow(run: Run) -> None:
    give(run, {"one": [True] * 3 + [False] * 3, "two": [True] * 3 + [False] * 3})
    (row,) = pairwise_kappa(all_tables(run)).to_pylist()
    assert row["kappa"] == 1
    give(run, {"one": [True] * 3, "two": [True] * 3})
    assert pairwise_kappa(all_tables(run)).to_pylist()[0]["kappa"] is None
    assert panel_alpha(all_tables(run)).to_pylist()[0]["alpha"] is None


def test_the_card_shows_the_agreement(run: Run) -> None:
    assert "Agreement" not in card(run, Settings())
    give(run, LABELS)
    text = card(run, Settings())
    assert "| one | two | 6 | 2 | 1 | 1 | 2 | 0.333 |" in text
    assert "## Agreement of the panel" in text
