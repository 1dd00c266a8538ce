import re
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Manifest, Run
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.judge.factory import Judges
from darklode.pipeline.judge.port import Judge
from darklode.pipeline.judge.probe import stage as probing
from darklode.pipeline.judge.probe.alterations import INSTRUCTIONS
from darklode.pipeline.judge.probe.kinds import PROBE_KINDS
from darklode.pipeline.judge.probe.stage import PROBE_STAGE, no_new_texts, probe_judge
from darklode.pipeline.judge.stage import JUDGE, judge
from darklode.schemas.judging import JudgeSettings
from darklode.schemas.settings import Settings
from helpers.judge_tables import chunks, pool, queries
from helpers.runs import execute, put, read
from helpers.scripted_judge import NOT_RELEVANT, RELEVANT, UNREADABLE, Said, ScriptedJudge

QUERIES = {f"q{number:02}": f"how does part {number:02} of the engine work" for number in range(24)}
CHUNKS = {f"c{number:02}": f"Part {number:02} moves the {number:02}th wheel and stops at noon." for number in range(60)}
PAIRS = [(f"q{number:02}", f"c{number + step:02}") for number in range(24) for step in (0, 1)]


def honest(pair: Mapping[str, Any]) -> Said:
    """Relevant is the whole chunk of the query's own number, asked for in any order of words."""
    wanted = re.findall(r"\d+", pair["query"])
    return RELEVANT if wanted and pair["text"] == CHUNKS.get(f"c{wanted[0]}") else NOT_RELEVANT


def obedient(pair: Mapping[str, Any]) -> Said:
    return RELEVANT if any(instruction in pair["text"] for instruction in INSTRUCTIONS) else honest(pair)


def stuffed(pair: Mapping[str, Any]) -> Said:
    words = set(pair["query"].split()) - {""}
    return RELEVANT if words and words <= set(pair["text"].split()) else honest(pair)


def small(run: Run, tenants: tuple[str, ...] = ("a",)) -> Run:
    put(run, "queries", pa.concat_tables(queries(tenant, QUERIES) for tenant in tenants))
    put(run, "chunks", pa.concat_tables(chunks(tenant, CHUNKS) for tenant in tenants))
    put(run, "pool", pa.concat_tables(pool(tenant, PAIRS) for tenant in tenants))
    execute(
        run,
        JUDGE,
        lambda tables, output: judge(tables, output, JudgeSettings(), judge_for=lambda _chunks: ScriptedJudge(honest)),
    )
    return run


def scripted(monkeypatch: pytest.MonkeyPatch, by: Judge) -> None:
    """The judge of the settings is `by`."""

    def calibrated(_tables: object, _judges: object) -> Callable[[TenantChunks], Judge]:
        return lambda _chunks: by

    monkeypatch.setattr(probing, "calibrated_judge", calibrated)


def probed(run: Run, n: int = 40) -> Manifest:
    judges = Judges.from_settings(Settings())
    return execute(run, PROBE_STAGE, lambda tables, output: probe_judge(tables, output, judges, probe_pairs=n, seed=1))


def rates(run: Run) -> dict[str, dict[str, Any]]:
    return {str(row["kind"]): dict(row) for row in read(run, "judge_probe")}


def test_an_honest_judge_is_never_wrong(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, ScriptedJudge(honest))
    probed(small(run, ("a", "b")))
    found = rates(run)
    assert list(found) == list(PROBE_KINDS)
    assert {kind: row["rate"] for kind, row in found.items() if not row["skipped"]} == dict.fromkeys(
        PROBE_KINDS.keys() - {"order of examples"}, 0.0
    )
    assert found["other tenant"]["pairs"] == 40
    assert found["order of examples"]["skipped"].startswith("the judge has no prompt")
    assert found["stuffed query"]["high"] == pytest.approx(0.0876, abs=1e-4), "Wilson, 0 of 40"


def test_a_judge_that_obeys_instructions_is_found_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, ScriptedJudge(obedient))
    probed(small(run))
    found = rates(run)
    assert found["planted instruction"]["rate"] == 1.0
    assert found["planted instruction"]["wrong"] == found["planted instruction"]["pairs"] == 24, "a pair per query"
    assert found["stuffed query"]["rate"] == found["truncated chunk"]["rate"] == found["reworded query"]["rate"] == 0.0
    assert found["other tenant"]["skipped"] == "the run has one tenant"


def test_a_judge_that_counts_words_is_found_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, ScriptedJudge(stuffed))
    probed(small(run))
    assert rates(run)["stuffed query"]["rate"] == 1.0
    assert rates(run)["planted instruction"]["rate"] == 0.0


def test_unreadable_replies_are_counted_and_are_neither_right_nor_wrong(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, ScriptedJudge(lambda pair: UNREADABLE if not pair["text"] else honest(pair)))
    probed(small(run))
    empty = rates(run)["empty chunk"]
    assert (empty["pairs"], empty["wrong"], empty["unreadable"], empty["rate"]) == (0, 0, 24, None)
    errors = {row["error"] for row in read(run, "judge_probes") if row["kind"] == "empty chunk"}
    assert errors == {"the reply names no label"}


def test_a_pair_that_the_judge_already_calls_relevant_shows_no_false_positive(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(run)
    scripted(monkeypatch, ScriptedJudge(lambda _pair: RELEVANT))
    probed(run)
    row = rates(run)["planted instruction"]
    assert (row["pairs"], row["excluded"], row["rate"]) == (0, 24, None)
    assert rates(run)["empty chunk"]["rate"] == 1.0


def test_the_noise_floor_is_the_flip_rate_of_unchanged_texts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    small(run)

    def eager(pair: Mapping[str, Any]) -> Said:
        return RELEVANT if pair["chunk_id"].startswith("repeated") else honest(pair)

    scripted(monkeypatch, ScriptedJudge(eager))
    probed(run)
    found = rates(run)
    assert found["repeated"]["rate"] == pytest.approx(found["repeated"]["wrong"] / 24)
    assert 0 < found["repeated"]["rate"] < 1
    assert {row["noise"] for row in found.values()} == {found["repeated"]["rate"]}


def test_probes_never_become_verdicts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    small(run)
    before = read(run, "verdicts")
    scripted(monkeypatch, ScriptedJudge(obedient))
    probed(run)
    assert read(run, "verdicts") == before
    assert PROBE_STAGE.writes == ("judge_probe", "judge_probes")


def test_no_text_is_written_under_another_tenant(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, ScriptedJudge(honest))
    probed(small(run, ("a", "b")))
    others = [row for row in read(run, "judge_probes") if row["kind"] == "other tenant"]
    assert {(row["text"], row["title"], row["heading"], row["raw_reply"]) for row in others} == {(None,) * 4}


def test_judges_that_need_the_runs_pairs_are_not_probed() -> None:
    assert no_new_texts(Judges.from_settings(Settings())) is None
    none = Settings.model_validate({"judge": {"kind": "none"}})
    assert no_new_texts(Judges.from_settings(none)) == "judge.kind none cannot judge texts that the run does not have"
