"""Importances from a file: what they match, and which rows it turns away."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.mine.term_weighting.kinds.table import TableTermWeighter
from darklode.schemas.tables import TABLES


def table_weighter(folder: Path, text: str, name: str = "terms.csv") -> TableTermWeighter:
    (folder / name).write_text(text, encoding="utf-8")
    return TableTermWeighter(str(folder / name))


def test_terms_are_found_by_their_stems_the_longest_first(tmp_path: Path) -> None:
    table = table_weighter(tmp_path, "term,importance\nAPI keys,0.9\nkey,0.4\nrotate,0.6\nhow,0.1\nsingle sign on,1\n")
    assert table.weights("t", "how to rotate an api key") == {"how": 0.1, "rotat": 0.6, "api key": 0.9}
    assert table.weights("t", "keys for single sign on") == {"key": 0.4, "singl sign on": 1.0}
    assert table.weights("t", "nothing") == {}


def test_a_tenants_row_goes_before_one_without(tmp_path: Path) -> None:
    table = table_weighter(tmp_path, "tenant,term,importance\n,key,0.4\na,key,0.8\n,card,0.5\n")
    assert table.weights("a", "key card") == {"key": 0.8, "card": 0.5}
    assert table.weights("b", "key card") == {"key": 0.4, "card": 0.5}


def test_a_query_of_its_own(tmp_path: Path) -> None:
    table = table_weighter(tmp_path, "query,term,importance\n,key,0.4\nReset  Key,reset,0.9\n")
    assert table.weights("t", "reset key") == {"reset": 0.9}
    assert table.weights("t", "reset") == {}


def test_parquet_gives_the_same(tmp_path: Path) -> None:
    pq.write_table(pa.table({"term": ["key"], "importance": [0.25]}), tmp_path / "terms.parquet")
    queries = pa.table({"tenant": ["t", "t"], "query_id": ["a", "b"], "text": ["keys", "none"]})
    rows = TableTermWeighter(str(tmp_path / "terms.parquet")).terms(queries)
    assert rows.schema == TABLES["query_terms"].schema
    assert rows.to_pylist() == [{"tenant": "t", "query_id": "a", "term": "key", "importance": 0.25}]


def test_another_content_is_another_version(tmp_path: Path) -> None:
    one = table_weighter(tmp_path, "term,importance\nkey,0.4\n").version
    assert table_weighter(tmp_path, "term,importance\nkey,0.4\n", "same.csv").version == one
    assert table_weighter(tmp_path, "term,importance\nkey,0.5\n").version != one


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("term,importance\nkey,0.4\ncard,high\n", "row 2: importance 'high' is not a number from 0 to 1"),
        ("term,importance\nkey,1.5\n", "row 1: importance '1.5'"),
        ("term,importance\nkey,nan\n", "row 1: importance 'nan'"),
        ("term,importance\nkey,\n", "row 1: importance ''"),
        ("term,importance\n...,0.4\n", "row 1: term '...' contains no word"),
        ("term,importance\nkey,0.4\nKeys,0.5\n", "row 2: term 'Keys' already has importance 0.4"),
        ("term,weight\nkey,0.4\n", "has no column importance; it has term, weight"),
        ("term,importance\nkey,0.4,more\n", "terms.csv cannot be read"),
        ("", "terms.csv cannot be read"),
    ],
)
def test_a_bad_file_says_where(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=r"terms\.csv") as raised:
        table_weighter(tmp_path, text)
    assert said in str(raised.value)


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"set term_weighting\.table"):
        TableTermWeighter(str(tmp_path / "none.csv"))
