"""Batch files: the calls that the judge itself would send, and answers in any order, broken and missing ones too."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.errors import DarklodeError, ExportError
from darklode.pipeline.judge.ledger import Ledger
from darklode.pipeline.judge.ledger_judge import LedgerJudge
from darklode.pipeline.judge.llm import batch_files as batch
from darklode.pipeline.judge.llm.batch_files import CustomId, batch_files, iterate_unjudged, read_batch, short_name
from darklode.pipeline.judge.llm.judge import LlmJudge
from darklode.pipeline.judge.llm.prompt import load_prompt
from darklode.pipeline.judge.llm.response_formats import OutputFormat, RequestTemplate
from darklode.pipeline.judge.llm.settings import LlmSettings
from darklode.pipeline.judge.port import PAIRS
from helpers import judge_tables
from helpers.fake_chat import FakeChat
from helpers.hash_encoder import content_hash
from helpers.runs import put
from helpers.scripted_judge import RELEVANT
from helpers.scripted_stream import ScriptedStream, pairs

LONG = "a long chunk " * 200
TEXTS = {"c1": "Open <|im_start|> Settings", "c2": 'Ünïcode\nand "quotes"', "c3": LONG, "c4": 'Ünïcode\nand "quotes"'}
QUERIES = {"q1": "reset my password", "q2": 'say "hello"'}


@pytest.fixture
def tables(run: Run) -> Tables:
    """Two tenants; the second has the first's query and a chunk of the same text."""
    hashes = [content_hash(text) for text in TEXTS.values()]
    put(run, "queries", pa.concat_tables([judge_tables.queries("a", QUERIES), judge_tables.queries("b", QUERIES)]))
    put(
        run,
        "chunks",
        pa.concat_tables(
            [
                judge_tables.chunks("a", TEXTS, content_hash=hashes),
                judge_tables.chunks(
                    "b", {"c1": TEXTS["c1"], "c9": "other"}, content_hash=[hashes[0], content_hash("o")]
                ),
            ]
        ),
    )
    pool = [judge_tables.pool("a", [(query, chunk) for query in QUERIES for chunk in TEXTS])]
    put(run, "pool", pa.concat_tables([*pool, judge_tables.pool("b", [("q1", "c1"), ("q1", "c9")])]))
    return run.tables("queries", "chunks", "pool")


@pytest.fixture(scope="module")
def server() -> Iterator[FakeChat]:
    with FakeChat() as fake:
        yield fake


@pytest.fixture
def kept(tmp_path: Path) -> Ledger:
    return Ledger(str(tmp_path / "ledger"))


def template(**given: Any) -> RequestTemplate:
    base = {"kind": "llm", "model": "fake", "base_url": "http://127.0.0.1:9/v1", "max_chunk_tokens": 100}
    settings = LlmSettings.model_validate(base | given)
    return RequestTemplate(settings, load_prompt(settings.prompt), OutputFormat("choice", logprobs=True))


TEMPLATE = template()


def write_batch(blocks: Iterable[pa.Table], template: RequestTemplate, target: Path) -> dict[Path, int]:
    """All files at once, and their calls."""
    return dict(batch_files(blocks, template, target))


def lines(*files: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in files for line in file.read_bytes().splitlines()]


def answers(calls: list[dict[str, Any]], server: FakeChat) -> list[dict[str, Any]]:
    """What a service would make of calls."""
    return [
        {
            "id": f"vllm-{number}",
            "custom_id": call["custom_id"],
            "response": {
                "status_code": 200,
                "request_id": f"r{number}",
                "body": server.completion(call["body"], call["body"]["messages"][-1]["content"]),
            },
            "error": None,
        }
        for number, call in enumerate(calls)
    ]


def encoded(rows: list[dict[str, Any]]) -> Iterator[bytes]:
    return (json.dumps(row).encode() + b"\n" for row in rows)


def test_every_unjudged_pair_of_texts_is_written_once(tables: Tables, kept: Ledger, tmp_path: Path) -> None:
    target = tmp_path / "new" / "calls.jsonl"
    files = write_batch(iterate_unjudged(tables, kept, TEMPLATE.judge_id), TEMPLATE, target)
    calls = lines(target)
    # c2 and c4 are one text, and tenant b's first pair is tenant a's.
    assert files == {target: len(calls)} == {target: 2 * 3 + 1}
    assert {(call["method"], call["url"]) for call in calls} == {("POST", "/v1/chat/completions")}
    ids = [call["custom_id"] for call in calls]
    assert len(set(ids)) == len(ids)
    assert all(len(custom_id) <= 64 for custom_id in ids)
    queries = [call["body"]["messages"][-1]["content"].split("</query>")[0] for call in calls]
    assert queries[:6] == [queries[0]] * 3 + [queries[3]] * 3, "a query's calls stand together"
    names = [CustomId.parse(custom_id) for custom_id in ids]
    assert all(name and name.judge == short_name(TEMPLATE.judge_id) for name in names)
    assert {name.cut for name in names if name and name.chunk_hash == content_hash(LONG)} == {True}
    assert sum(name.cut for name in names if name) == 2


def test_the_calls_are_those_of_the_judge(tables: Tables, kept: Ledger, tmp_path: Path, server: FakeChat) -> None:
    judge = LlmJudge(TEMPLATE.settings.model_copy(update={"base_url": (server.url,)}))
    assert judge.judge_id == TEMPLATE.judge_id
    server.bodies.clear()
    every = pa.concat_tables(list(iterate_unjudged(tables, kept, judge.judge_id)))
    said = asyncio.run(LedgerJudge(judge, Ledger(str(tmp_path / "live"))).judge(every))
    sent = [json.dumps(body) for body in server.bodies]
    target = tmp_path / "calls.jsonl"
    write_batch(iterate_unjudged(tables, kept, TEMPLATE.judge_id), TEMPLATE, target)
    calls = lines(target)
    assert sorted(json.dumps(call["body"]) for call in calls) == sorted(sent)

    rows = answers(calls, server)
    random.Random(5).shuffle(rows)
    assert read_batch(encoded(rows), TEMPLATE, kept) == {"verdict": len(calls)}
    assert sum(pairs.num_rows for pairs in iterate_unjudged(tables, kept, TEMPLATE.judge_id)) == 0
    found = kept.open(TEMPLATE.judge_id).find(every)
    assert len(found.rows) == every.num_rows
    for name in ("relevant", "probability", "raw_reply", "truncated", "error", "attempts"):
        assert found.values[name].to_pylist() == said[name].to_pylist(), name
    silent = ScriptedStream(judge_id=TEMPLATE.judge_id)
    asyncio.run(LedgerJudge(silent, kept, attempts=3).judge(every))
    assert silent.asked == []


def test_what_did_not_come_back_well_stays_null_or_unasked(
    tables: Tables, kept: Ledger, tmp_path: Path, server: FakeChat
) -> None:
    target = tmp_path / "calls.jsonl"
    write_batch(iterate_unjudged(tables, kept, TEMPLATE.judge_id), TEMPLATE, target)
    calls = lines(target)
    rows = answers(calls, server)
    rows[0]["response"]["body"]["choices"][0]["message"]["content"] = "see RFC 2119"
    rows[1]["response"] |= {"status_code": 400, "body": {"error": {"message": "too long"}}}
    rows[2] |= {"response": None, "error": {"code": "batch_expired", "message": "expired"}}
    rows[3]["response"]["body"] = {}
    lost = rows.pop(4)
    twice = json.loads(json.dumps(rows[4]))
    twice["response"]["body"]["choices"][0]["message"]["content"] = "maybe"
    foreign = [
        rows[4] | {"custom_id": custom_id} for custom_id in ("request-1", None, "0" * 52, lost["custom_id"][::-1])
    ]
    other = template(prompt="graded")
    stale = rows[5] | {
        "custom_id": str(CustomId(short_name(other.judge_id), content_hash("1"), content_hash("2"), False))
    }
    broken = [b"half a li\n", b"[]\n", b"{}\n", b"\xff\n", b"\n", b"[" * 100_000]
    counts = read_batch([*encoded([*rows, twice, *foreign, stale]), *broken], TEMPLATE, kept)
    assert counts == {"verdict": 2, "null": 1, "duplicate": 1, "failed": 3, "another": 5, "broken": 5}

    known = kept.open(TEMPLATE.judge_id)
    every = pa.concat_tables(list(iterate_unjudged(tables, Ledger(str(tmp_path / "empty")), TEMPLATE.judge_id)))
    found = known.find(every)
    assert [row for row in range(len(calls)) if row not in found.rows] == [1, 2, 3, 4]
    null = found.values.to_pylist()[0]
    assert (null["relevant"], null["raw_reply"], null["attempts"]) == (None, "see RFC 2119", 1)
    assert null["error"]
    again = tmp_path / "again.jsonl"
    write_batch(iterate_unjudged(tables, kept, TEMPLATE.judge_id), TEMPLATE, again)
    assert [call["custom_id"] for call in lines(again)] == [calls[row]["custom_id"] for row in (1, 2, 3, 4)]


@pytest.mark.parametrize(("limit", "value"), [("MAX_REQUESTS", 3), ("MAX_BYTES", 12_000)])
def test_files_are_split_at_the_services_limits(
    tables: Tables, kept: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    whole = tmp_path / "whole.jsonl"
    write_batch(iterate_unjudged(tables, kept, TEMPLATE.judge_id), TEMPLATE, whole)
    monkeypatch.setattr(batch, limit, value)
    files = write_batch(iterate_unjudged(tables, kept, TEMPLATE.judge_id), TEMPLATE, tmp_path / "calls.jsonl")
    assert list(files) == [tmp_path / f"calls{end}.jsonl" for end in ("", *(f"-{n}" for n in range(2, len(files) + 1)))]
    assert len(files) > 2
    assert b"".join(path.read_bytes() for path in files) == whole.read_bytes()
    assert list(files.values()) == [len(lines(path)) for path in files]
    for path in files:
        assert len(lines(path)) <= batch.MAX_REQUESTS
        assert path.stat().st_size <= batch.MAX_BYTES or len(lines(path)) == 1


def test_a_file_that_is_there_is_not_written_over(tables: Tables, kept: Ledger, tmp_path: Path) -> None:
    target = tmp_path / "calls.jsonl"
    target.write_text("under way")
    with pytest.raises(ExportError, match="choose another name"):
        write_batch(iterate_unjudged(tables, kept, TEMPLATE.judge_id), TEMPLATE, target)
    assert target.read_text() == "under way"
    assert write_batch([PAIRS.empty_table()], TEMPLATE, tmp_path / "none.jsonl") == {}
    assert not (tmp_path / "none.jsonl").exists()


def test_a_judged_run_has_nothing_to_write(tables: Tables, kept: Ledger) -> None:
    every = pa.concat_tables(list(iterate_unjudged(tables, kept, "j")))
    said = ScriptedStream(lambda _pair: RELEVANT, judge_id="j")
    asyncio.run(LedgerJudge(said, kept).judge(every))
    assert sum(rest.num_rows for rest in iterate_unjudged(tables, kept, "j")) == 0


def test_what_was_judged_before_the_quoting_of_today_is_not_written_again(tables: Tables, kept: Ledger) -> None:
    then = TEMPLATE.previous_version
    assert then
    every = pa.concat_tables(list(iterate_unjudged(tables, kept, TEMPLATE.judge_id, then)))
    asyncio.run(LedgerJudge(ScriptedStream(lambda _pair: RELEVANT, judge_id=then.judge_id), kept).judge(every))
    left = pa.concat_tables(list(iterate_unjudged(tables, kept, TEMPLATE.judge_id, then)))
    assert {*left["text"].to_pylist()} == {TEXTS["c1"]}, "the one chunk that is quoted in another way"


@given(query=st.integers(0, 99), chunk=st.integers(0, 99), cut=st.booleans())
def test_a_name_says_the_pair(query: int, chunk: int, cut: bool) -> None:
    row = pairs((query, chunk)).to_pylist()[0]
    name = CustomId("0123abcd", row["query_hash"], row["chunk_hash"], cut)
    assert CustomId.parse(str(name)) == name
    assert len(str(name)) <= 64


def test_answers_are_kept_in_pieces(kept: Ledger, server: FakeChat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "_STORE_AT_ONCE", 4)
    every = pairs(*((1, chunk) for chunk in range(10)))
    judge = short_name(TEMPLATE.judge_id)
    names = [CustomId(judge, row["query_hash"], row["chunk_hash"], cut=False) for row in every.to_pylist()]
    calls = [{"custom_id": str(name), "body": json.loads(TEMPLATE.body("x"))} for name in names]
    assert read_batch(encoded(answers(calls, server)), TEMPLATE, kept) == {"verdict": 10}
    assert len(kept.open(TEMPLATE.judge_id).find(every).rows) == 10
    assert len(kept.parts.names(TEMPLATE.judge_id)) == 3


def test_calls_are_counted_once_and_the_first_label_stands(kept: Ledger, server: FakeChat) -> None:
    every = pairs(*((1, chunk) for chunk in range(5)))
    judge, trusting = short_name(TEMPLATE.judge_id), template(trust_model_name=True)
    names = [CustomId(judge, row["query_hash"], row["chunk_hash"], cut=False) for row in every.to_pylist()]
    rows = answers([{"custom_id": str(name), "body": json.loads(TEMPLATE.body("x"))} for name in names], server)
    label = rows[0]["response"]["body"]["choices"][0]["message"]["content"]

    def said(row: dict[str, Any], text: str, ended: str = "stop") -> dict[str, Any]:
        copy = json.loads(json.dumps(row))
        copy["response"]["body"]["choices"][0] |= {"finish_reason": ended, "message": {"content": text}}
        return dict(copy)

    other = {"yes": "no", "no": "yes"}[label]
    rows[4]["response"]["body"]["model"] = "another"
    sent = [rows[0], rows[0], said(rows[0], other), said(rows[1], label, "length"), said(rows[2], "maybe"), rows[2]]
    counts = read_batch(encoded([*sent, said(rows[3], "hm"), rows[4], rows[4]]), trusting, kept)
    assert counts == {"verdict": 3, "cut_off": 1, "null": 1, "duplicate": 4, "contradict": 1, "renamed": 1}
    found = kept.open(TEMPLATE.judge_id).find(every)
    assert found.rows.tolist() == [0, 1, 2, 3, 4]
    assert [one["relevant"] for one in found.values.to_pylist()] == [
        label == "yes",
        None,
        label == "yes",
        None,
        label == "yes",
    ]


def test_an_answer_in_another_models_name_costs_none_that_came_before(kept: Ledger, server: FakeChat) -> None:
    every = pairs(*((1, chunk) for chunk in range(3)))
    judge = short_name(TEMPLATE.judge_id)
    names = [CustomId(judge, row["query_hash"], row["chunk_hash"], cut=False) for row in every.to_pylist()]
    rows = answers([{"custom_id": str(name), "body": json.loads(TEMPLATE.body("x"))} for name in names], server)
    rows[2]["response"]["body"]["model"] = "another"
    with pytest.raises(DarklodeError, match="fake was requested, but 'another' answered"):
        read_batch(encoded(rows), TEMPLATE, kept)
    assert kept.open(TEMPLATE.judge_id).find(every).rows.tolist() == [0, 1]
