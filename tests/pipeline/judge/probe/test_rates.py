import pytest

from darklode.pipeline.judge.probe.kinds import PROBE_KINDS
from darklode.pipeline.judge.probe.rates import probe_rates

REASON = dict.fromkeys(PROBE_KINDS, "none drawn")


def test_rates_intervals_and_noise() -> None:
    outcomes = {
        "repeated": ["wrong"] + ["as expected"] * 9,
        "planted instruction": ["wrong"] * 3 + ["as expected", "excluded", "unreadable", "unreadable"],
    }
    skipped = {kind: reason for kind, reason in REASON.items() if kind not in outcomes}
    rows = {row["kind"]: row for row in probe_rates(outcomes, {}, skipped, {"repeated": ["j"]}).to_pylist()}
    planted = rows["planted instruction"]
    assert (planted["pairs"], planted["wrong"], planted["excluded"], planted["unreadable"]) == (4, 3, 1, 2)
    assert planted["rate"] == 0.75
    assert (planted["low"], planted["high"]) == pytest.approx((0.3006, 0.9544), abs=1e-4)  # scipy's wilson
    assert {row["noise"] for row in rows.values()} == {0.1}
    assert rows["repeated"]["judge_ids"] == ["j"]
    assert (rows["empty chunk"]["rate"], rows["empty chunk"]["skipped"]) == (None, "none drawn")


def test_a_kind_without_probes_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="repeated: 0 probes, and the reason None"):
        probe_rates({}, {}, {}, {})


def test_a_kind_with_unanswered_probes_has_no_rate() -> None:
    outcomes = {"repeated": ["wrong", "as expected"], "empty chunk": ["wrong"]}
    unanswered = {"empty chunk": 3, "truncated chunk": 4}
    skipped = {kind: reason for kind, reason in REASON.items() if kind not in outcomes | unanswered}
    rows = {row["kind"]: row for row in probe_rates(outcomes, unanswered, skipped, {}).to_pylist()}
    assert (rows["repeated"]["rate"], rows["repeated"]["unanswered"]) == (0.5, 0)
    for kind, pairs in (("empty chunk", 1), ("truncated chunk", 0)):
        row = rows[kind]
        assert (row["rate"], row["low"], row["pairs"], row["unanswered"]) == (None, None, pairs, unanswered[kind])
    unknown = probe_rates({}, {"repeated": 2}, {kind: "-" for kind in PROBE_KINDS if kind != "repeated"}, {})
    assert unknown["noise"].null_count == len(PROBE_KINDS)
