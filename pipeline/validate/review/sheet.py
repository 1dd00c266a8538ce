"""Export of pairs to a spreadsheet (CSV), and import of the answers."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from darklode.pipeline.base.errors import ExportError, InputError
from darklode.pipeline.validate.review.assignment import ReviewSession
from darklode.pipeline.validate.review.grades import Scale
from darklode.pipeline.validate.review.journal import clean_rationale, pair_name
from darklode.pipeline.validate.review.pairs import ReviewPair, ReviewPairs

ID_COLUMNS = ("tenant", "query_id", "chunk_id")
COLUMNS = (*ID_COLUMNS, "query", "title", "heading", "chunk", "relevance", "rationale")
JUDGE_COLUMNS = ("judge", "probability")
PAIR_COLUMN = "pair"
SKIP_ANSWER = "skip"

# First characters that make a spreadsheet run a cell as a formula; and the apostrophe, since importing removes one.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")
_GRADE = re.compile(r"(\d{1,9})([.,]0+)?")


@dataclass(frozen=True)
class RefusedRow:
    """A rejected row: line (from 1) and reason."""

    line: int
    reason: str


@dataclass
class ImportResult:
    """Counts of a sheet's rows by outcome."""

    new: int = 0
    n_known: int = 0
    empty: int = 0
    refused: list[RefusedRow] = field(default_factory=list)


@dataclass(frozen=True)
class _SheetRow:
    """A valid row: its line in the file (from 1), the row of its pair, and the answer."""

    line: int
    row: int
    relevance: int | None
    rationale: str | None


def export_sheet(path: Path, pairs: ReviewPairs, session: ReviewSession, reviewer: str, *, show_judge: bool) -> int:
    """Write a reviewer's pairs with the answers so far; returns the number of rows.

    Cells that a spreadsheet would interpret as formulas are prefixed with an apostrophe, which `import_sheet` removes.

    Raises:
        ExportError: the file exists, or cannot be written.
    """
    rows = session.rows_for(reviewer)
    try:
        with path.open("x", encoding="utf-8-sig", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*COLUMNS, *(JUDGE_COLUMNS if show_judge else ()), PAIR_COLUMN])
            for row in rows:
                writer.writerow(
                    map(_escape_formula, _cells(pairs[int(row)], session, reviewer, int(row), show_judge=show_judge))
                )
    except FileExistsError as error:
        raise ExportError(f"{path} exists and may contain answers; choose another name") from error
    except OSError as error:
        raise ExportError(f"{path} cannot be written: {error}") from error
    return len(rows)


def _cells(pair: ReviewPair, session: ReviewSession, reviewer: str, row: int, *, show_judge: bool) -> Iterator[str]:
    """Yield the cells of a pair's row, in the order of `COLUMNS`."""
    yield from (pair.tenant, pair.query_id, pair.chunk_id, pair.query, pair.title or "", pair.heading or "", pair.text)
    answer = session.answer_of(reviewer, row)
    yield "" if answer is None else SKIP_ANSWER if answer.relevance is None else str(answer.relevance)
    yield (answer and answer.rationale) or ""
    if show_judge:
        yield {True: "relevant", False: "not relevant", None: ""}[pair.relevant]
        yield "" if pair.probability is None else f"{pair.probability:.3f}"
    yield pair.name


def import_sheet(path: Path, pairs: ReviewPairs, session: ReviewSession, reviewer: str, scale: Scale) -> ImportResult:
    """Store a sheet's answers for a reviewer; empty rows are skipped, invalid ones rejected.

    A row is identified by its column `pair`, or else by its ids. Importing the same sheet again changes nothing.

    Raises:
        InputError: the file cannot be read, or a column is missing.
    """
    outcome = ImportResult()
    rows_by_pair: dict[int, list[_SheetRow]] = {}
    header, rows = _read(path)
    for line, cells in rows:
        parsed = _parse_row(line, cells, header, pairs, scale)
        if isinstance(parsed, _SheetRow):
            rows_by_pair.setdefault(parsed.row, []).append(parsed)
        elif parsed is None:
            outcome.empty += 1
        else:
            outcome.refused.append(parsed)
    shown = JUDGE_COLUMNS[0] in header
    for row, pair_rows in rows_by_pair.items():
        if len({(sheet_row.relevance, sheet_row.rationale) for sheet_row in pair_rows}) > 1:
            line_numbers = " and ".join(str(sheet_row.line) for sheet_row in pair_rows)
            outcome.refused += [
                RefusedRow(sheet_row.line, f"lines {line_numbers} have different answers to one pair")
                for sheet_row in pair_rows
            ]
            continue
        is_new = session.answer(reviewer, pairs[row], pair_rows[0].relevance, pair_rows[0].rationale, shown=shown)
        outcome.new += is_new
        outcome.n_known += not is_new
    outcome.refused.sort(key=lambda refused_row: refused_row.line)
    return outcome


def _parse_row(
    line: int, cells: list[str], header: list[str], pairs: ReviewPairs, scale: Scale
) -> _SheetRow | RefusedRow | None:
    """Parse a row: its answer, the reason why it is rejected, or None if it has no answer."""
    if len(cells) != len(header):
        return RefusedRow(line, f"{len(cells)} cells instead of {len(header)}")
    cells_by_name = dict(zip(header, map(_unescape_formula, cells), strict=True))
    relevance_text = cells_by_name["relevance"].strip()
    if not relevance_text:
        return None
    name = cells_by_name.get(PAIR_COLUMN, "").strip() or pair_name(
        *(cells_by_name.get(column, "") for column in ID_COLUMNS)
    )
    if name not in pairs.rows:
        return RefusedRow(line, "no such pair in the sample (a spreadsheet may have changed its ids)")
    if relevance_text.casefold() == SKIP_ANSWER:
        return _SheetRow(line, pairs.rows[name], None, clean_rationale(cells_by_name.get("rationale")))
    grade = _GRADE.fullmatch(relevance_text)
    if grade is None or int(grade[1]) not in scale.names:
        grades = ", ".join(map(str, sorted(scale.names)))
        return RefusedRow(line, f"relevance {relevance_text[:20]!r} is none of {grades}, {SKIP_ANSWER}")
    return _SheetRow(line, pairs.rows[name], int(grade[1]), clean_rationale(cells_by_name.get("rationale")))


def _read(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Read the header, and each row with the line it begins on."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter=max(",;\t", key=first.count))
            header = [name.strip() for name in next(reader, [])]
            rows, line = [], reader.line_num
            for cells in reader:
                if cells:
                    rows.append((line + 1, cells))
                line = reader.line_num
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read: {error}; save the sheet as CSV in UTF-8") from error
    if "relevance" not in header or not (PAIR_COLUMN in header or set(ID_COLUMNS) <= set(header)):
        raise InputError(
            f"{path} needs the columns relevance and {PAIR_COLUMN} (or {', '.join(ID_COLUMNS)}); it has {header}"
        )
    return header, rows


def _escape_formula(cell: str) -> str:
    """Prefix cells that look like formulas; undone by `_unescape_formula`."""
    return f"'{cell}" if cell.startswith(_FORMULA) else cell


def _unescape_formula(cell: str) -> str:
    return cell.removeprefix("'")
