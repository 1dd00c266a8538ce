import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ExportError, InputError
from darklode.pipeline.validate.review.assignment import ReviewSession
from darklode.pipeline.validate.review.grades import BINARY, Scale
from darklode.pipeline.validate.review.journal import AnswerJournal, current_answers
from darklode.pipeline.validate.review.pairs import ReviewPairs
from darklode.pipeline.validate.review.sheet import COLUMNS, ImportResult, RefusedRow, export_sheet, import_sheet
from helpers.review_run import opened, review_run, turns_of

IDS = ["=1+1", '"q"\n, ;\r\nx', "-5", "'=", "'", " +a ", "0012", "@a\t", "\tb", "\rc"]
TEXTS = {0: "=HYPERLINK('http://evil')", 1: "+1", 2: "-1", 3: "@x", 4: "\tx", 5: "\rx", 6: 'a "b",\nc', 7: "'x"}

Row = dict[str, str]


@pytest.fixture
def deck(run: Run) -> Iterator[ReviewPairs]:
    with opened(review_run(run.store.url, len(IDS), ids=IDS, texts=TEXTS)) as deck:
        yield deck


@pytest.fixture
def turns(run: Run, deck: ReviewPairs) -> ReviewSession:
    return turns_of(run, deck)


def rows_of(path: Path, delimiter: str = ",") -> list[Row]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def write(path: Path, rows: list[Row], delimiter: str = ",") -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def exported(
    path: Path, deck: ReviewPairs, turns: ReviewSession, reviewer: str = "Ann", *, show_judge: bool = False
) -> list[Row]:
    export_sheet(path, deck, turns, reviewer, show_judge=show_judge)
    return rows_of(path)


def kept(run: Run) -> dict[str, object]:
    return {row["chunk_id"]: row["relevance"] for row in current_answers(AnswerJournal(run.store).read()).to_pylist()}


def counts(done: ImportResult) -> tuple[int, int, int, int]:
    return done.new, done.n_known, done.empty, len(done.refused)


def test_a_sheet_comes_back_as_answers_whatever_the_ids(
    deck: ReviewPairs, turns: ReviewSession, run: Run, tmp_path: Path
) -> None:
    rows = exported(tmp_path / "a.csv", deck, turns)
    assert tuple(rows[0])[: len(COLUMNS)] == COLUMNS
    for number, row in enumerate(rows):
        row["relevance"] = ("1", "0", "skip", " Skip ", "1.0", "0,0", "", "1", "1", "0")[number]
        row["pair"] = ""  # the ids have to do
    sheet = write(tmp_path / "b.csv", rows)
    assert counts(import_sheet(sheet, deck, turns, "Ann", BINARY)) == (9, 0, 1, 0)
    expected = [1, 0, None, None, 1, 0, "nothing", 1, 1, 0]
    assert kept(run) == {name: said for name, said in zip(IDS, expected, strict=True) if said != "nothing"}
    assert counts(import_sheet(sheet, deck, turns, "Ann", BINARY)) == (0, 9, 1, 0)
    assert len(AnswerJournal(run.store).read()) == 9


def test_the_name_of_a_pair_serves_where_a_spreadsheet_changed_the_ids(
    deck: ReviewPairs, turns: ReviewSession, run: Run, tmp_path: Path
) -> None:
    rows = exported(tmp_path / "a.csv", deck, turns)
    row = rows[IDS.index("0012")] | {"chunk_id": "12", "relevance": "1"}
    assert counts(import_sheet(write(tmp_path / "b.csv", [row], ";"), deck, turns, "Ann", BINARY)) == (1, 0, 0, 0)
    assert kept(run) == {"0012": 1}


def test_no_cell_is_a_formula(deck: ReviewPairs, turns: ReviewSession, tmp_path: Path) -> None:
    turns.answer("Ann", deck[0], 1, "=1+1", shown=False)
    rows = exported(tmp_path / "a.csv", deck, turns)
    assert rows[0]["rationale"] == "'=1+1"
    assert [row["chunk"] for row in rows[:8]] == [f"'{text}" if n != 6 else text for n, text in TEXTS.items()]
    assert not [cell for row in rows for cell in row.values() if cell.startswith(tuple("=+-@\t\r"))]


def test_answers_are_filled_in_and_change_nothing_when_they_come_back(
    deck: ReviewPairs, turns: ReviewSession, run: Run, tmp_path: Path
) -> None:
    turns.answer("Ann", deck[0], 1, "-1\nlines", shown=False)
    turns.answer("Ann", deck[1], None, None, shown=False)
    turns.answer("Ben", deck[2], 0, None, shown=False)
    rows = exported(tmp_path / "a.csv", deck, turns)
    assert [(row["relevance"], row["rationale"]) for row in rows[:3]] == [("1", "'-1\nlines"), ("skip", ""), ("", "")]
    assert len(rows) == len(IDS) - 1  # Ben's is not shared
    assert counts(import_sheet(tmp_path / "a.csv", deck, turns, "Ann", BINARY)) == (0, 2, 7, 0)
    assert len(AnswerJournal(run.store).read()) == 3


def test_bad_rows_are_refused_with_their_lines_and_good_ones_kept(
    deck: ReviewPairs, turns: ReviewSession, run: Run, tmp_path: Path
) -> None:
    rows = exported(tmp_path / "a.csv", deck, turns)
    good = rows[0] | {"relevance": "1"}
    unknown = rows[2] | {"relevance": "1", "pair": "", "chunk_id": "gone"}
    twice = [rows[3] | {"relevance": "1"}, rows[3] | {"relevance": "0"}]
    again = [rows[4] | {"relevance": "0"}] * 2
    bad = [rows[5] | {"relevance": said} for said in ("2", "yes", "-1", "0.5")]
    sheet = write(tmp_path / "b.csv", [good, unknown, *twice, *again, *bad])
    with sheet.open("a") as file:
        file.write("1,2\n")
    done = import_sheet(sheet, deck, turns, "Ann", BINARY)
    assert kept(run) == {IDS[0]: 1, IDS[4]: 0}
    assert [one.line for one in done.refused] == [3, 4, 5, 8, 10, 12, 14, 16]
    assert done.refused[0].reason.startswith("no such pair in the sample")
    assert done.refused[1].reason == "lines 4 and 5 have different answers to one pair"
    assert done.refused[3:5] == [
        RefusedRow(8, "relevance '2' is none of 0, 1, skip"),
        RefusedRow(10, "relevance 'yes' is none of 0, 1, skip"),
    ]
    assert done.refused[-1].reason == "2 cells instead of 10"


def test_grades_are_those_of_the_scale(deck: ReviewPairs, turns: ReviewSession, run: Run, tmp_path: Path) -> None:
    rows = exported(tmp_path / "a.csv", deck, turns)
    sheet = write(tmp_path / "b.csv", [rows[0] | {"relevance": "3"}])
    import_sheet(sheet, deck, turns, "Ann", Scale({3: "", 2: "", 0: ""}))
    assert kept(run) == {IDS[0]: 3}


def test_a_sheet_is_blind_unless_the_judge_is_shown(run: Run, tmp_path: Path) -> None:
    review_run(run.store.url, 4)
    with opened(run, show_judge=True) as deck:
        turns = turns_of(run, deck)
        assert "judge" not in exported(tmp_path / "a.csv", deck, turns)[0]
        rows = exported(tmp_path / "b.csv", deck, turns, show_judge=True)
        assert [row["judge"] for row in rows] == ["relevant", "not relevant"] * 2
        assert rows[3]["probability"] == "0.900"
        sheet = write(tmp_path / "c.csv", [rows[0] | {"relevance": "1"}])
        import_sheet(sheet, deck, turns, "Ann", BINARY)
        assert [answer.judge_shown for answer in AnswerJournal(run.store).read()] == [True]


def test_a_file_is_not_overwritten(deck: ReviewPairs, turns: ReviewSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("precious")
    with pytest.raises(ExportError, match="exists"):
        export_sheet(tmp_path / "a.csv", deck, turns, "Ann", show_judge=False)
    assert (tmp_path / "a.csv").read_text() == "precious"
    with pytest.raises(ExportError, match="cannot be written"):
        export_sheet(tmp_path / "none" / "a.csv", deck, turns, "Ann", show_judge=False)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "needs the columns"),
        (b"relevance,query_id\n1,q\n", "needs the columns"),
        (b"pair,relevance\n\xff,1\n", "cannot be read"),
    ],
)
def test_a_file_that_is_no_sheet_is_refused(
    deck: ReviewPairs, turns: ReviewSession, tmp_path: Path, content: bytes, reason: str
) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(InputError, match=reason):
        import_sheet(tmp_path / "a.csv", deck, turns, "Ann", BINARY)
    with pytest.raises(InputError, match="cannot be read"):
        import_sheet(tmp_path / "gone.csv", deck, turns, "Ann", BINARY)


def test_a_row_has_title_heading_and_text(run: Run, tmp_path: Path) -> None:
    with opened(review_run(run.store.url, 2, titles={0: "Cables"}, texts={0: "Red ones."})) as deck:
        rows = exported(tmp_path / "sheet.csv", deck, turns_of(run, deck))
        pairs = {deck[number].chunk_id: deck[number] for number in range(2)}
    for row in rows:
        pair = pairs[row["chunk_id"]]
        assert (row["title"], row["heading"]) == (pair.title or "", pair.heading or "")
    assert {row["title"] for row in rows} >= {"Cables"}
