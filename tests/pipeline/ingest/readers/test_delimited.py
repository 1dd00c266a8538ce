"""CSV and TSV: quotes, line ends, and rows with a wrong number of fields."""

from pathlib import Path

from helpers.ingesting import documents_of, write


def test_csv_with_quotes_and_bad_rows(tmp_path: Path) -> None:
    data = (
        b'id,title,text\r\n1,"a, ""b""","two\nlines"\r\n\r\n2,only two\r\n3,5" pipe,good\r\n4,a,b,c\r\n'
        b"5,caf\xe9,x\r\n6,n\0l,x\r\n7,t,\r\n1,t,again\r\n8,\xc3\xa9,last"
    )
    got = documents_of(write(tmp_path / "d.csv", data), tmp_path / "run")
    assert [(row["doc_id"], row["title"], row["text"]) for row in got.rows] == [
        ("1", 'a, "b"', "two\nlines"),
        ("3", '5" pipe', "good"),
        ("8", "é", "last"),
    ]
    assert sorted(got.reasons, key=str) == [
        ("NUL byte", 9),
        ("duplicate id", 11),
        ("empty text", 10),
        ("not UTF-8", 8),
        ("wrong number of fields", 5),
        ("wrong number of fields", 7),
    ]


def test_a_quote_that_is_never_closed_costs_one_row(tmp_path: Path) -> None:
    rows = ["id,text", "1,good", '2,"open', *(f"{n},good" for n in range(3, 200))]
    got = documents_of(write(tmp_path / "d.csv", "\n".join(rows)), tmp_path / "run")
    assert (len(got.rows), got.reasons) == (198, [("quote never closed", 3)])


def test_a_lone_carriage_return_in_csv_spoils_its_own_row_only(tmp_path: Path) -> None:
    got = documents_of(write(tmp_path / "d.csv", "id,text\n1,a\n2,b\rc\n3,d\n"), tmp_path / "run")
    assert ([row["doc_id"] for row in got.rows], got.reasons) == (["1", "3"], [("wrong number of fields", 3)])


def test_quoted_rows_across_blocks(tmp_path: Path) -> None:
    rows = "".join(f'{n},"{"line" * 300}\n{n}"\n' for n in range(2500))
    got = documents_of(write(tmp_path / "d.csv", "id,text\n" + rows + "bad\n"), tmp_path / "run")
    assert [row["doc_id"] for row in got.rows] == [str(n) for n in range(2500)]
    assert got.rows[-1]["text"].endswith("line\n2499")
    assert got.reasons == [("wrong number of fields", 5002)]
