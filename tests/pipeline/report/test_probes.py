from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.judge.probe.rates import probe_rates
from darklode.pipeline.report.probes import judge_probe
from helpers.runs import put


def test_the_highest_rate_comes_first_and_unknown_ones_last(run: Run) -> None:
    outcomes = {"repeated": ["as expected"] * 2, "empty chunk": ["wrong", "as expected"], "other tenant": ["wrong"]}
    kinds = ["reworded query", "order of examples", "stuffed query", "planted instruction", "truncated chunk"]
    put(run, "judge_probe", probe_rates(outcomes, {}, dict.fromkeys([*kinds, "other language"], "none"), {}))
    rows = judge_probe(run.tables("judge_probe"))
    assert rows["kind"].to_pylist()[:4] == ["other tenant", "empty chunk", "repeated", "order of examples"]
    assert rows["rate"].to_pylist()[:4] == [1.0, 0.5, 0.0, None]
