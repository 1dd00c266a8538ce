"""Lists of retrievers and of run files: who is searched again, and when."""

from pathlib import Path

import pytest

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.retrieve.retrievers.kinds.bm25 import Bm25Kind
from helpers.evaluated import TENANTS, TOPICS, build_of, ranked
from helpers.runs import read

BM25, OTHER = Bm25Kind(), Bm25Kind(method="bm25+")


def test_each_system_has_a_list_for_each_tenants_queries(tmp_path: Path) -> None:
    run = build_of(tmp_path / "run")
    ranked(run, {"bm25": BM25, "other": OTHER}, depth=3)
    rows = read(run, "test_rankings")
    firsts = {(row["tenant"], row["system"], row["query_id"]): row["text_id"] for row in rows if row["rank"] == 1}
    assert {key: doc for key, doc in firsts.items() if key[1] == "bm25"} == {
        (tenant, "bm25", f"test {topic}"): f"{topic}#1" for tenant in TENANTS for topic in TOPICS[:7]
    }
    assert {row["system"] for row in rows} == {"bm25", "other"}
    assert max(int(str(row["rank"])) for row in rows) <= 3


def test_another_system_leaves_the_lists_of_the_others(tmp_path: Path) -> None:
    run = build_of(tmp_path / "run")
    before = ranked(run, {"bm25": BM25}).units
    after = ranked(run, {"other": OTHER, "bm25": BM25}).units
    took = [unit["facts"] for unit in after.values()]
    assert all(unit["facts"] in took for unit in before.values())  # seconds, too: nobody searched again
    assert len(after) == 4


def test_two_systems_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="the same name"):
        ranked(build_of(tmp_path / "run"), {"bm25": BM25}, tmp_path / "bm25.txt")
