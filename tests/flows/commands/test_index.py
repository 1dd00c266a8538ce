"""darklode index: made, searched, checked and brought up to date from the command line."""

import json
from pathlib import Path

import pytest

from helpers.adapted import word
from helpers.commands import Call, one_line
from helpers.indexed import IDS, clustered, copied, put_vectors


@pytest.mark.slow
def test_a_run_is_indexed_and_searched(shipped: Path, tmp_path: Path, call: Call) -> None:
    """The run's flow goes through Prefect, once."""
    out = tmp_path / "index"
    arguments = ("index", shipped / "run", "--encoder", "tiny", "--out", out, "--set", "index.kind=hnsw")
    shown = call(*arguments)
    assert shown.code == 0, shown.err
    assert "204 texts, hnsw" in shown.out
    record = (out / "index.json").read_bytes()
    assert call(*arguments).code == 0
    assert (out / "index.json").read_bytes() == record
    query = (shipped / "run", f"how {word(7)}")
    told = json.loads(call("search", *query, "--encoder", "base", "--index", out, "--json").out)
    exact, found = ([row["text_id"] for row in one["hits"]] for one in told["systems"])
    assert found == exact
    assert call("index", "check", out).code == 0
    alone = json.loads(call("search", *query, "--index", out, "--json").out)
    assert [one["system"] for one in alone["systems"]] == [str(out)]
    adapter = str(shipped / "adapter")
    told = json.loads(call("search", *query, "--encoder", adapter, "--index", out, "--json").out)
    by_adapter, by_index = (one["hits"] for one in told["systems"])
    assert [row["text_id"] for row in by_index] == [row["text_id"] for row in by_adapter]
    assert [row["score"] for row in by_index] != [row["score"] for row in alone["systems"][0]["hits"]]
    facts = json.loads(record)
    facts["encoder"]["weights"] = "another"
    (out / "index.json").write_text(json.dumps(facts))
    refused = call("search", *query, "--encoder", adapter, "--index", out)
    one_line(refused, "has another base encoder than", 3)


def test_an_index_that_was_touched_ends_with_exit_code_3(indexed: Path, tmp_path: Path, call: Call) -> None:
    folder = copied(indexed / "index", tmp_path / "index")
    shown = call("index", "check", folder)
    assert (shown.code, shown.err) == (0, "")
    assert "is unchanged and matches its run and encoder." in shown.out
    (folder / "index.json").write_text((folder / "index.json").read_text().replace('"count": 1500', '"count": 15'))
    refused = call("index", "check", folder, "--json")
    one_line(refused, "differs from its record: count: 1500, recorded 15", 3)
    assert json.loads(refused.out)["fits"] is False
    one_line(call("index", "check", indexed), "contains no finished index")


@pytest.mark.slow
def test_an_index_is_brought_up_to_date(indexed: Path, tmp_path: Path, call: Call) -> None:
    folder = copied(indexed / "index", tmp_path / "index")
    shown = call("index", "update", folder, put_vectors(tmp_path / "now.parquet", IDS[1:], clustered()[1:]))
    assert shown.code == 0, shown.err
    assert "1,499 texts, ivfpq" in shown.out
    assert "since the last training" in shown.out


@pytest.mark.slow
def test_what_is_no_index_is_refused(shipped: Path, indexed: Path, call: Call) -> None:
    one_line(call("index", "update", shipped / "run", shipped / "run"), "contains no finished index")
    one_line(call("report", indexed / "index"), "holds an index, which has no report")
