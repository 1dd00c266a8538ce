"""The stage: a file of human labels and a judge in, tables, rejects and a funnel step out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.artifacts import Manifest, Run
from pipeline.calibration import CALIBRATE, calibrate, fitted_thresholds
from pipeline.calibration.labels import STEP
from pipeline.caveats import caveats
from pipeline.errors import InputError, SettingsError
from pipeline.raters import MIN_LABELS, MIN_OF_EACH
from pipeline.views import all_tables
from schemas.settings import JudgeSettings, Settings
from tests.conftest import execute, put, read
from tests.judge_tables import chunks, pool, queries
from tests.scripted_judge import UNREADABLE, Said, Script, ScriptedJudge

QUERIES, CHUNKS = 20, 8
HEAD = "tenant,query_id,chunk_id,relevance"


def likely(pair: Any) -> Said:
    """Probability by chunk, so that c0 to c7 stand for 0.05 to 0.75; relevant from one half."""
    share = 0.05 + 0.1 * int(pair["chunk_id"][1:])
    return {"relevant": share >= 0.5, "probability": share}


def given_run(run: Run, tenants: Sequence[str] = ("a",)) -> Run:
    texts = {f"q{query:02}": f"query {query}" for query in range(QUERIES)}
    pieces = {f"c{chunk}": f"chunk {chunk}" for chunk in range(CHUNKS)}
    pairs = [(query, chunk) for query in texts for chunk in pieces if (query, chunk) != ("q19", "c7")]
    put(run, "queries", pa.concat_tables(queries(tenant, texts) for tenant in tenants))
    put(run, "chunks", pa.concat_tables(chunks(tenant, pieces) for tenant in tenants))
    put(run, "pool", pa.concat_tables(pool(tenant, pairs) for tenant in tenants))
    return run


def full(tenant: str, relevant_from: int, n: int = QUERIES) -> list[str]:
    """Labels of every pair of n queries: relevant from this chunk on."""
    every = [(query, chunk) for query in range(n) for chunk in range(CHUNKS) if (query, chunk) != (19, 7)]
    return [f"{tenant},q{query:02},c{chunk},{int(chunk >= relevant_from)}" for query, chunk in every]


def calibrated(
    run: Run, file: Path, lines: Sequence[str], script: Script = likely, **settings: Any
) -> tuple[Manifest, list[ScriptedJudge]]:
    file.write_text("\n".join(lines) + "\n")
    given, judges = JudgeSettings(human=str(file), **settings), []

    def judge_for(_chunks: object) -> ScriptedJudge:
        judges.append(ScriptedJudge(script))
        return judges[-1]

    manifest = execute(
        run,
        CALIBRATE,
        lambda tables, output: calibrate(tables, output, given, judge_for=judge_for, tenant="a", seed=13),
    )
    return manifest, judges


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


def test_only_labelled_pairs_are_judged(run: Run, tmp_path: Path) -> None:
    _, (judge,) = calibrated(given_run(run), tmp_path / "l.csv", [HEAD, "a,q03,c1,1", "a,q01,c2,0"])
    assert judge.asked == [("a", "q01", "c2"), ("a", "q03", "c1")]


def test_every_row_is_a_label_or_a_reject_with_file_line_and_reason(run: Run, tmp_path: Path) -> None:
    lines = [
        "\ufeff" + HEAD,
        "a,q00,c0,1",
        "a,q00,c1,maybe",
        "a,q00,c1,-1",
        "a,q99,c1,1",
        "a,q00,c9,1",
        "b,q00,c0,1",
        "",
        "a,q19,c7,1",
        "a,q00",
        'a,q00,"c\n2",1',
        "a,,c1,1",
        "a,q00,c0,1",
        "a,q01,c1,1",
        "a,q01,c1,0",
        ",q02,c2, 3.0",
        "a,q02,c3,0.5",
    ]
    manifest, _ = calibrated(given_run(run), tmp_path / "l.csv", lines)
    assert [(row["query_id"], row["chunk_id"], row["relevance"]) for row in read(run, "human_labels")] == [
        ("q00", "c0", 1),
        ("q02", "c2", 3),
    ]
    rejects = read(run, "rejects")
    assert [(row["line"], row["reason"]) for row in rejects] == [
        (3, "relevance is not a whole number from 0"),
        (4, "relevance is not a whole number from 0"),
        (5, "unknown query_id"),
        (6, "unknown chunk_id"),
        (7, "unknown query_id"),
        (9, "pair is not in the pool"),
        (10, "wrong number of fields"),
        (11, "unknown chunk_id"),
        (13, "missing id"),
        (14, "label repeated"),
        (15, "contradictory labels"),
        (16, "contradictory labels"),
        (18, "relevance is not a whole number from 0"),
    ]
    assert {(row["file"], row["stage"], row["table"]) for row in rejects} == {("l.csv", STEP, "human_labels")}
    assert rejects[0]["payload"] == "a,q00,c1,maybe"
    (step,) = manifest.funnel
    assert (step.rows_in, step.rows_out, sum(step.dropped.values())) == (15, 2, 13)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", r"has no column query_id, chunk_id, relevance; it has none"),
        ("query_id,chunk,relevance\n", r"has no column chunk_id; it has query_id, chunk, relevance"),
        ("query_id,chunk_id,relevance\n", r"labels no pair of the pool \(it is empty\)"),
        ("query_id,chunk_id,relevance\nx,y,1\n", r"labels no pair of the pool \(unknown query_id: 1\)"),
    ],
)
def test_a_file_without_a_usable_label_stops_the_build(run: Run, tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        calibrated(given_run(run), tmp_path / "l.csv", [text.rstrip("\n")] if text else [])


def test_a_file_that_is_no_utf8_is_named(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "l.csv"
    file.write_bytes("query_id,chunk_id,relevance\nqü,c0,1\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"l.csv cannot be read: .*CSV file in UTF-8"):
        execute(
            given_run(run),
            CALIBRATE,
            lambda tables, output: calibrate(
                tables,
                output,
                JudgeSettings(human=str(file)),
                judge_for=lambda _: ScriptedJudge(),
                tenant="a",
                seed=1,
            ),
        )


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


def test_too_few_labels_are_compared_but_nothing_is_fitted(run: Run, tmp_path: Path) -> None:
    lines = full("a", 3)[: MIN_LABELS - 1]
    calibrated(given_run(run), tmp_path / "l.csv", [HEAD, *lines])
    (row,) = read(run, "calibration")
    assert (row["labels"], row["ece"], row["fitted_threshold"], row["cross_validated_kappa"]) == (99, None, None, None)
    assert row["kappa"] > 0
    assert read(run, "reliability") == []
    assert any("Too few human labels of a" in sentence for sentence in caveats(all_tables(run), Settings()))
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
