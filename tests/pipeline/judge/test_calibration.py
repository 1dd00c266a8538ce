"""The stage: a file of human labels and a judge in, tables, rejects and a funnel step out."""

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from darklode.pipeline.base.agreement import MIN_LABELS, MIN_OF_EACH
from darklode.pipeline.base.artifacts import Manifest, Run
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.judge.calibration import (
    CALIBRATE,
    MAX_BINS,
    calibrate,
    calibrated_judge,
    fitted_thresholds,
    reliability_curve,
    wilson,
)
from darklode.pipeline.judge.factory import Judges
from darklode.pipeline.report.caveats import caveats
from darklode.schemas.judging import JudgeSettings
from darklode.schemas.label_tables import JUDGED_CHUNKS
from darklode.schemas.settings import CacheSettings, Settings
from helpers.calibrating import CHUNKS, HEAD, QUERIES, calibrated, full, given_run, likely
from helpers.runs import execute, put, read
from helpers.scripted_judge import UNREADABLE, Said, ScriptedJudge
from helpers.scripted_stream import pairs


def test_counts_kappa_and_threshold_by_hand(run: Run, tmp_path: Path) -> None:
    # People say relevant from c3 on, the judge from c5 on: of 159 pairs c3 and c4 of 20 queries are missed.
    calibrated(given_run(run), tmp_path / "l.csv", [HEAD, *full("a", 3)])
    (row,) = read(run, "calibration")
    names = ("true_positives", "false_positives", "false_negatives", "true_negatives")
    assert [row[name] for name in names] == [59, 0, 40, 60]
    observed, chance = 119 / 159, (59 * 99 + 100 * 60) / 159**2
    assert row["kappa"] == pytest.approx((observed - chance) / (1 - chance))
    assert (row["labels"], row["unreadable"], row["probabilities"], row["threshold"]) == (159, 0, 159, 0.5)
    assert row["fitted_threshold"] == pytest.approx(0.3)
    assert (row["fitted_kappa"], row["cross_validated_kappa"], row["judge_id"]) == (1.0, 1.0, "scripted")
    shares = [0.05 + 0.1 * chunk for chunk in range(CHUNKS)]
    gaps = [(20 - (chunk == 7)) * abs(share - (chunk >= 3)) for chunk, share in enumerate(shares)]
    assert row["ece"] == pytest.approx(sum(gaps) / 159, abs=1e-6)
    curve = read(run, "reliability")
    assert [one["labels"] for one in curve] == [20] * 7 + [19]
    assert [one["relevant_share"] for one in curve] == [0, 0, 0, 1, 1, 1, 1, 1]


def test_fits_use_the_weights_of_the_labels(run: Run, tmp_path: Path) -> None:
    # Of the chunks c3 and c4, those that people find not relevant were sampled less often.
    labels = [
        f"a,q{query:02},c{chunk},{int(chunk >= 5 or (chunk >= 3 and query % 2))}"
        for query in range(QUERIES)
        for chunk in range(CHUNKS - 1)
    ]
    weights = [8 if "c3,0" in line or "c4,0" in line else 1 for line in labels]
    rows = []
    for number, lines in enumerate(
        (
            [HEAD, *labels],
            [f"{HEAD},weight", *(f"{line},{weight}" for line, weight in zip(labels, weights, strict=True))],
        )
    ):
        calibrated(given_run(run), tmp_path / f"{number}.csv", lines)
        rows.append(read(run, "calibration")[0])
    unweighted, weighted = rows
    assert unweighted["fitted_threshold"] == pytest.approx(0.3), "half of c3 and c4 are relevant"
    assert weighted["fitted_threshold"] == pytest.approx(0.5), "one of nine is"
    odds = [row["intercept"] + row["slope"] * np.log(0.35 / 0.65) for row in rows]
    assert odds[1] < odds[0] - 1
    assert weighted["kappa"] == unweighted["kappa"], "agreement is that of the labelled pairs"


def test_only_labelled_pairs_are_judged(run: Run, tmp_path: Path) -> None:
    _, (judge,) = calibrated(given_run(run), tmp_path / "l.csv", [HEAD, "a,q03,c1,1", "a,q01,c2,0"])
    assert judge.asked == [("a", "q01", "c2"), ("a", "q03", "c1")]


def test_without_human_labels_nothing_is_written_and_nobody_asked(run: Run) -> None:
    def refuse(_chunks: object) -> ScriptedJudge:
        raise AssertionError

    manifest = execute(
        given_run(run),
        CALIBRATE,
        lambda tables, output: calibrate(tables, output, JudgeSettings(), judge_for=refuse, tenant="a", seed=1),
    )
    assert [manifest.rows(table) for table in CALIBRATE.writes] == [0, 0, 0]
    assert manifest.funnel == []


class GradedSettings(JudgeSettings):
    """Of a judge that calls grades from 2 relevant."""

    def verdict_grades(self) -> dict[int, str]:
        return {2: "relevant", 3: "perfect"}


@pytest.mark.parametrize(("settings", "relevances"), [(GradedSettings(), [0, 2]), (JudgeSettings(), [1, 2])])
def test_given_grades_below_those_that_the_judge_calls_relevant_are_not(
    run: Run, settings: JudgeSettings, relevances: list[int]
) -> None:
    rows = [{"tenant": "a", "query_id": "q00", "chunk_id": f"c{grade}", "relevance": grade} for grade in (1, 2)]
    put(run, "judged_chunks", pa.Table.from_pylist(rows, schema=JUDGED_CHUNKS.schema))
    execute(
        given_run(run),
        CALIBRATE.reading("judged_chunks"),
        lambda tables, output: calibrate(
            tables, output, settings, judge_for=lambda _: ScriptedJudge(likely), tenant="a", seed=1
        ),
    )
    assert [row["relevance"] for row in read(run, "human_labels")] == relevances


def test_too_few_labels_are_compared_but_nothing_is_fitted(run: Run, tmp_path: Path) -> None:
    lines = full("a", 3)[: MIN_LABELS - 1]
    calibrated(given_run(run), tmp_path / "l.csv", [HEAD, *lines])
    (row,) = read(run, "calibration")
    assert (row["labels"], row["ece"], row["fitted_threshold"], row["cross_validated_kappa"]) == (99, None, None, None)
    assert row["kappa"] > 0
    assert read(run, "reliability") == []
    assert any("Too few human labels for a " in sentence for sentence in caveats(all_tables(run), Settings()))
    calibrated(run, tmp_path / "l.csv", [HEAD, *full("a", 3)[:MIN_LABELS]])
    assert read(run, "calibration")[0]["fitted_threshold"] == pytest.approx(0.3)
    assert not any("Too few human" in sentence for sentence in caveats(all_tables(run), Settings()))


def test_too_few_of_a_kind_are_too_few(run: Run, tmp_path: Path) -> None:
    one_kind = [line[:-1] + "1" if place < MIN_OF_EACH - 1 else line for place, line in enumerate(full("a", 8))]
    calibrated(given_run(run), tmp_path / "l.csv", [HEAD, *one_kind])
    assert read(run, "calibration")[0]["fitted_threshold"] is None


def test_an_unreadable_verdict_and_one_without_a_probability_count_where_they_can(run: Run, tmp_path: Path) -> None:
    def script(pair: Any) -> Said:
        if pair["chunk_id"] == "c0":
            return UNREADABLE
        return {"relevant": True} if pair["chunk_id"] == "c1" else likely(pair)

    calibrated(given_run(run), tmp_path / "l.csv", [HEAD, *full("a", 3)], script)
    (row,) = read(run, "calibration")
    assert (row["labels"], row["unreadable"], row["probabilities"]) == (159, 20, 119)
    names = ("true_positives", "false_positives", "false_negatives", "true_negatives")
    assert [row[name] for name in names] == [59, 20, 40, 20]  # c1 is a false positive, c0 counts nowhere


def test_a_fitted_threshold_is_what_the_counts_are_for(run: Run, tmp_path: Path) -> None:
    calibrated(given_run(run), tmp_path / "l.csv", [HEAD, *full("a", 3)], threshold="fitted")
    (row,) = read(run, "calibration")
    assert row["threshold"] == row["fitted_threshold"] == pytest.approx(0.3)
    assert (row["false_negatives"], row["kappa"]) == (0, 1.0)
    assert fitted_thresholds(all_tables(run)) == {"a": row["threshold"]}


def test_tenants_are_compared_apart_and_neither_changes_the_other(run: Run, tmp_path: Path) -> None:
    both = given_run(run, ("a", "b"))
    calibrated(both, tmp_path / "l.csv", [HEAD, *full("b", 6), *full("a", 3)])
    first, second = read(both, "calibration")
    assert [first["fitted_threshold"], second["fitted_threshold"]] == pytest.approx([0.3, 0.6])
    alone = given_run(Run(str(tmp_path / "alone")))
    calibrated(alone, tmp_path / "l.csv", [HEAD, *full("a", 3)])
    assert read(alone, "calibration") == [first]
    assert read(alone, "reliability") == [row for row in read(both, "reliability") if row["tenant"] == "a"]


def test_a_tenant_without_a_fitted_threshold_stops_the_build(run: Run, tmp_path: Path) -> None:
    calibrated(given_run(run, ("a", "b")), tmp_path / "l.csv", [HEAD, *full("a", 3), "b,q00,c0,1"])
    with pytest.raises(SettingsError, match="none could be fitted for b; at least 100 labelled pairs"):
        fitted_thresholds(all_tables(run))


def test_the_same_labels_in_another_order_give_the_same_tables(run: Run, tmp_path: Path) -> None:
    def parts(manifest: Manifest) -> dict[str, list[str]]:
        return {table: [part.sha256 for part in manifest.outputs[table]] for table in CALIBRATE.writes}

    lines = full("a", 3)
    first, _ = calibrated(given_run(run), tmp_path / "l.csv", [HEAD, *lines])
    again, _ = calibrated(run, tmp_path / "l.csv", [HEAD, *reversed(lines)])
    assert parts(first) == parts(again)


PAIRS = st.lists(st.tuples(st.sampled_from(np.linspace(0, 1, 37).tolist()), st.booleans()), min_size=1, max_size=80)


def test_ece_by_hand() -> None:
    # Ten bins of two pairs; nine of them say 0.1 and 0.3 … and are right by half, the last says 0.9 and 1.0.
    probability = np.arange(20, dtype=np.float32) / 20
    positive = np.array([False, True] * 10)
    curve = reliability_curve(probability, positive)
    means = np.array([0.025 + 0.1 * place for place in range(10)])
    assert curve.mean_probability == pytest.approx(means, abs=1e-7)
    assert curve.relevant_share.tolist() == [0.5] * 10
    # |0.025-0.5| + |0.125-0.5| + … + |0.925-0.5| = 0.475+0.375+0.275+0.175+0.075+0.025+0.125+0.225+0.325+0.425 = 2.5
    assert curve.ece == pytest.approx(0.25, abs=1e-7)


def test_probabilities_that_mean_what_they_say_have_no_error() -> None:
    probability = np.repeat(np.array([0.25, 0.75], dtype=np.float32), 40)
    positive = np.array(([True] + [False] * 3) * 10 + ([True] * 3 + [False]) * 10)
    curve = reliability_curve(probability, positive)
    assert curve.labels.tolist() == [40, 40]
    assert curve.ece == 0


@given(PAIRS)
def test_every_pair_is_in_one_bin_and_equal_probabilities_in_the_same(pairs: list[tuple[float, bool]]) -> None:
    probability = np.array([one for one, _ in pairs], dtype=np.float32)
    positive = np.array([label for _, label in pairs])
    curve = reliability_curve(probability, positive)
    assert curve.labels.sum() == len(pairs)
    assert 1 <= len(curve.labels) <= MAX_BINS
    assert (curve.highest[:-1] < curve.lowest[1:]).all()
    assert np.sum(curve.labels * curve.relevant_share) == pytest.approx(positive.sum())
    assert 0 <= curve.ece <= 1
    assert (curve.share_low <= curve.relevant_share + 1e-12).all()
    assert (curve.share_high >= curve.relevant_share - 1e-12).all()


@given(PAIRS, st.randoms(use_true_random=False))
def test_the_order_of_the_pairs_does_not_matter(pairs: list[tuple[float, bool]], random: "np.random.Generator") -> None:
    mixed = list(pairs)
    random.shuffle(mixed)  # type: ignore[arg-type]
    first, second = (
        reliability_curve(np.array([p for p, _ in some], dtype=np.float32), np.array([y for _, y in some]))
        for some in (pairs, mixed)
    )
    assert first.relevant_share.tolist() == second.relevant_share.tolist()
    assert first.ece == second.ece


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (10, 10), (3, 10), (50, 200), (1, 1)])
def test_wilson_is_scipys(hits: int, n: int) -> None:
    known = binomtest(hits, n).proportion_ci(method="wilson")
    low, high = wilson(np.array([hits]), np.array([n]))
    assert (low[0], high[0]) == pytest.approx((known.low, known.high), abs=1e-12)


class Scored(JudgeSettings):
    """A judge with scores."""

    HAS_SCORES: ClassVar[bool] = True


def test_grades_of_a_judge_with_scores_are_fitted_per_tenant_and_given(run: Run, tmp_path: Path) -> None:
    """People grade tenant a by the score and label tenant b without grades."""
    graded = [line if line.endswith(",0") else f"{line[:-1]}{1 + (int(line[-3]) >= 6)}" for line in full("a", 4)]
    given_run(run, ["a", "b"])
    lines = [HEAD, *graded, *full("b", 4)]
    calibrated(run, tmp_path / "l.csv", lines, settings_class=Scored)
    by_tenant = {row["tenant"]: row for row in read(run, "calibration")}
    assert by_tenant["a"]["grades"] == [1, 2]
    assert by_tenant["a"]["grade_thresholds"] == [pytest.approx(0.6)]
    assert by_tenant["a"]["grade_kappa"] == pytest.approx(1.0)
    assert by_tenant["b"]["grades"] is None

    tables = run.tables("queries", "chunks", "pool", "calibration")
    settings = Scored(threshold=0.4)
    judges = _ScriptedJudges(settings, CacheSettings())
    for tenant, grades in (("a", [0, 1, 2]), ("b", [None, None, None])):
        judge = calibrated_judge(tables, judges)(TenantChunks(tables, tenant))
        replies = asyncio.run(judge.judge(pairs((0, 3), (0, 5), (0, 6))))
        assert replies["grade"].to_pylist() == grades
    unscored = calibrated_judge(tables, _ScriptedJudges(JudgeSettings(), CacheSettings()))(TenantChunks(tables, "a"))
    assert isinstance(unscored, ScriptedJudge)


class _ScriptedJudges(Judges):
    """Builds scripted judges."""

    def __call__(self, _chunks: TenantChunks) -> ScriptedJudge:
        return ScriptedJudge(likely)
