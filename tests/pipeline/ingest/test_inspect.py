import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.ingest.files import PROSE_FORMATS
from darklode.pipeline.ingest.inspect import FormatPreview, Kind, inspect_source
from helpers.ingesting import hide_office
from helpers.runs import SAMPLE


def test_the_sample_has_all_it_needs() -> None:
    assert inspect_source("documents", str(SAMPLE)).format in PROSE_FORMATS
    seen = inspect_source("queries", str(SAMPLE))
    assert (seen.files, seen.format, list(seen.missing)) == (1, "csv", [])
    assert not inspect_source("logs", str(SAMPLE / "impressions")).missing


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
    seen = inspect_source("queries", str(path))
    assert (list(seen.columns), seen.missing) == (["search term", "n"], {"text": "search term"})


def test_texts_without_columns_lack_none(tmp_path: Path) -> None:
    (tmp_path / "queries.txt").write_text("reset my key\n")
    assert inspect_source("queries", str(tmp_path)) == inspect_source("queries", str(tmp_path / "queries.txt"))
    assert inspect_source("queries", str(tmp_path)).missing == {}


def test_a_log_of_ubi_names_its_own_fields(tmp_path: Path) -> None:
    (tmp_path / "ubi_events.jsonl").write_text(json.dumps({"action_name": "click", "query_id": "1"}) + "\n")
    assert inspect_source("logs", str(tmp_path)) == FormatPreview(1, "ubi")


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "queries.parquet").write_bytes(b"PAR?")
    with pytest.raises(InputError, match=r"queries\.parquet is not a valid Parquet file"):
        inspect_source("queries", str(tmp_path))
    with pytest.raises(InputError, match="does not exist"):
        inspect_source("logs", str(tmp_path / "nothing"))


STRANGE = {
    "semicolons.csv": "user;search_term;when;product_id;is_clicked\na;reset;2026-03-01T10:00:00;7;1\n".encode("utf-16"),
    "tabs.csv": b"search_term\twhen\tproduct_id\tis_clicked\nreset\t2026-03-01T10:00:00\t7\t1\n",
    "array.json": b'[{"search_term": "reset", "when": "2026-03-01T10:00:00", "product_id": "7", "is_clicked": true}]',
    "rows.log": b'{"search_term": "reset", "when": "2026-03-01T10:00:00", "product_id": "7", "is_clicked": true}\n',
    "columns.log": b"search_term|when|product_id|is_clicked\nreset|2026-03-01T10:00:00|7|1\n",
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_log_is_guessed_as_its_reader_sees_it(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(STRANGE[name])
    seen = inspect_source("logs", str(tmp_path))
    assert seen.missing == {
        "timestamp": "when",
        "query": "search_term",
        "doc_id": "product_id",
        "clicked": "is_clicked",
    }
    forms = {"array.json": ("jsonl", False), "rows.log": ("jsonl", True), "columns.log": ("csv", True)}
    assert (seen.format, seen.is_declared) == forms.get(name, ("csv", False))
    remarks = " ".join(seen.remarks)
    assert [word in remarks for word in ("UTF-16", "semicolons", "tabs", "bars")] == [
        name == "semicolons.csv",
        name == "semicolons.csv",
        name == "tabs.csv",
        name == "columns.log",
    ]


def test_events_of_ubi_under_another_name_are_a_format_to_say(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text(json.dumps({"action_name": "click", "timestamp": 1, "query_id": "1"}) + "\n")
    seen = inspect_source("logs", str(tmp_path))
    assert (seen.format, seen.is_declared, seen.missing) == ("ubi", True, {})


def test_what_somebody_says_goes_before_what_is_seen(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("words,n\nreset,1\n")
    assert inspect_source("queries", str(tmp_path)).format == "text"
    assert inspect_source("queries", str(tmp_path), form="csv").missing == {"text": "words"}
    assert inspect_source("queries", str(tmp_path), {"text": "words"}, "csv").missing == {}
    with pytest.raises(InputError, match="has no column 'word'"):
        inspect_source("queries", str(tmp_path), {"text": "word"}, "csv")


@pytest.mark.parametrize("kind", ["documents", "queries", "logs"])
def test_a_folder_that_nobody_can_read_is_no_source(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_office(monkeypatch)
    (tmp_path / "blob.bin").write_bytes(bytes(range(256)))
    (tmp_path / "book.xlsx").write_bytes(b"PK\x03\x04")
    with pytest.raises(InputError, match=r"contains no (documents|queries|search log).*book\.xlsx"):
        inspect_source(kind, str(tmp_path))
