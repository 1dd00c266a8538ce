import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.ingest.files import PROSE, look
from helpers.runs import SAMPLE


def test_the_sample_has_all_it_needs() -> None:
    assert look("documents", str(SAMPLE)).format in PROSE
    seen = look("queries", str(SAMPLE))
    assert (seen.files, seen.format, list(seen.missing)) == (1, "csv", [])
    assert "query" in seen.columns
    assert not look("logs", str(SAMPLE / "impressions")).missing


@pytest.mark.parametrize("form", ["csv", "tsv", "csv.gz", "jsonl", "parquet"])
def test_columns_that_play_no_part_by_their_name_are_missed(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"it's [1] *.{form}"
    lines = {"csv": "search term,n\nreset,1\n", "tsv": "search term\tn\nreset\t1\n"}
    if form == "parquet":
        pq.write_table(pa.table({"search term": ["reset"], "n": [1]}), path)
    elif form == "csv.gz":
        path.write_bytes(gzip.compress(lines["csv"].encode()))
    else:
        path.write_text(lines.get(form, json.dumps({"search term": "reset", "n": 1}) + "\n"))
    (tmp_path / f"it's 1 other.{form}").write_bytes(b"no file that the pattern in the name may find")
    seen = look("queries", str(path))
    assert (list(seen.columns), list(seen.missing)) == (["search term", "n"], ["text"])


def test_texts_without_columns_lack_none(tmp_path: Path) -> None:
    (tmp_path / "queries.txt").write_text("reset my key\n")
    assert look("queries", str(tmp_path)) == look("queries", str(tmp_path / "queries.txt"))
    assert list(look("queries", str(tmp_path)).missing) == []


def test_a_log_of_ubi_names_its_own_fields(tmp_path: Path) -> None:
    (tmp_path / "ubi_events.jsonl").write_text(json.dumps({"action_name": "click", "query_id": "1"}) + "\n")
    assert not look("logs", str(tmp_path)).missing
    (tmp_path / "ubi_events.jsonl").write_text(json.dumps({"what": "click", "timestamp": 1}) + "\n")
    assert list(look("logs", str(tmp_path)).missing) == ["query", "doc_id", "clicked"]


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "queries.parquet").write_bytes(b"PAR?")
    with pytest.raises(InputError, match=r"queries\.parquet cannot be read as parquet"):
        look("queries", str(tmp_path))
    with pytest.raises(InputError, match="does not exist"):
        look("logs", str(tmp_path / "nothing"))
