"""Are the documents right that queries lend one another? By the paper's rule and by the guarded one.

    python -m benchmarks.lending

On a log with known intents (`benchmarks/intents.py`) and on the labelled collections, as if each relevant document were
a click: the share of lent pairs of a borrower and a lender's positive that are right, and how many of the paper's pairs
are kept. Writes benchmarks/results/lending.md and lending.json, with associations to read.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial

import numpy as np
import pyarrow as pa

from benchmarks.algorithm_1 import Scores, guarded, top
from benchmarks.collections_io import COLLECTIONS, read_jsonl
from benchmarks.intents import intents
from benchmarks.report import machine, markdown_table, write
from darklode.pipeline.base.artifacts import Run, Stage
from darklode.pipeline.base.query_normalization import normal_form
from darklode.pipeline.mine.term_weighting.log import FIT_TERM_WEIGHTS, LogTermWeighter, fit_term_weights
from darklode.schemas.mining import AssociateSettings
from darklode.schemas.tables import TABLES

NAMES = ("intents", "stackfaq", "homedepot", "cranfield", "cisi", "vaswani")
DAY = date(2026, 3, 1)
SHARES = (0.4, 0.5, 0.6, 0.7)
READ = 12
Pairs = list[tuple[int, int]]


@dataclass(frozen=True)
class Labelled:
    """Queries with what is known of documents.

    Attributes:
        documents: doc_id and text.
        queries: their texts.
        grades: of each query, what is known of documents: whether they are relevant.
        complete: whether a document without a grade is taken for irrelevant, else it is left out.
    """

    documents: list[tuple[str, str]]
    queries: list[str]
    grades: list[dict[str, bool]]
    complete: bool


def made_up() -> Labelled:
    """The log of intents."""
    log = intents()
    by_intent: dict[str, list[str]] = defaultdict(list)
    for doc, _, intent in log.documents:
        by_intent[intent].append(doc)
    grades = [dict.fromkeys(by_intent[intent], True) for _, intent in log.queries]
    return Labelled([(doc, text) for doc, text, _ in log.documents], [text for text, _ in log.queries], grades, True)


def collection(name: str) -> Labelled:
    """A collection's judged queries; homedepot's grades from 2 are relevant, and what it did not grade is unknown."""
    folder, graded = COLLECTIONS / name, name == "homedepot"
    docs = [(row["_id"], f"{row.get('title') or ''}\n{row['text']}") for row in read_jsonl(folder / "corpus.jsonl")]
    grades: dict[str, dict[str, bool]] = defaultdict(dict)
    for file in sorted((folder / "qrels").glob("t*.tsv")):
        for line in file.read_text(encoding="utf-8").splitlines()[1:]:
            query, doc, grade = line.split("\t")
            grades[query][doc] = int(grade) >= (2 if graded else 1)
    queries = [row for row in read_jsonl(folder / "queries.jsonl") if row["_id"] in grades]
    return Labelled(docs, [row["text"] for row in queries], [grades[row["_id"]] for row in queries], not graded)


def plans(known: Labelled, through: date | None) -> list[Scores]:
    """Each query's importances by a term weighter learned from documents, and from queries if `through`."""
    n, docs = len(known.queries), [doc for doc, _ in known.documents]
    forms = normal_form(pa.array(known.queries)).to_pylist()
    given = {
        "documents": {
            "doc_id": docs,
            "text": [text for _, text in known.documents],
            "source": docs,
            "content_hash": docs,
        },
        "log_queries": {"query_id": [str(q) for q in range(n)], "text": known.queries, "normal_form": forms}
        | {"date": [DAY] * n},
    }
    with tempfile.TemporaryDirectory() as folder:
        run = Run(folder)
        for name, columns in given.items():
            rows = TABLES[name].rows(columns | {"tenant": ["t"] * len(next(iter(columns.values())))})
            _put(run, name, rows)
        _put(run, "click_evidence", TABLES["click_evidence"].empty())
        tables = run.tables("documents", "log_queries", "click_evidence")
        run.execute(run.plan(FIT_TERM_WEIGHTS, {}), lambda _, output: fit_term_weights(tables, output, through=through))
        weighter = LogTermWeighter(run.tables("planner_terms").read("planner_terms"), "")
    return [{term: np.float32(share) for term, share in weighter.weights("t", form).items()} for form in forms]


def _put(run: Run, name: str, rows: pa.Table) -> None:
    stage = Stage(f"given_{name}", 1, (), (name,))
    run.execute(run.plan(stage, {}), lambda _, output: output.write(name, rows))


def lenders(planned: Sequence[Scores], asked: Callable[[Scores], list[str]], *, alone: bool) -> Pairs:
    """Borrower and lender by a rule: who holds the asked terms above th_click; `alone`: a single one and no other."""
    least, strong = np.float32(AssociateSettings().th_click), defaultdict(set)
    for q, scores in enumerate(planned):
        for term, score in scores.items():
            if score > least:
                strong[term].add(q)
    sizes = [sum(score > least for score in scores.values()) for scores in planned]
    found = []
    for q, scores in enumerate(planned):
        terms = asked(scores)
        holding = set.intersection(*(strong[term] for term in terms)) - {q} if terms else set()
        found += [(q, other) for other in sorted(holding) if not alone or len(terms) > 1 or sizes[other] == 1]
    return found


def lent(known: Labelled, pairs: Pairs) -> dict[tuple[int, str], bool]:
    """Borrowers and the positives lent to them: whether they are right."""
    found = {}
    for q, lender in pairs:
        for doc, relevant in known.grades[lender].items():
            if relevant and (known.complete or doc in known.grades[q]):
                found[q, doc] = known.grades[q].get(doc, False)
    return found


def share_right(pairs: dict[tuple[int, str], bool]) -> float | None:
    """The share of lent pairs that are right; None where nothing is lent."""
    return round(float(np.mean(list(pairs.values()))), 3) if pairs else None


def measured(name: str) -> tuple[list[dict[str, object]], list[str]]:
    """The rows of one collection, and associations to read."""
    known = made_up() if name == "intents" else collection(name)
    rules: dict[str, tuple[Callable[[Scores], list[str]], bool]] = {"paper": (lambda scores: top(2, scores), False)}
    rules |= {f"guarded {share}": (partial(guarded, share=share), True) for share in SHARES}
    rows = []
    to_read: list[str] = []
    for learned, through in (("documents", None), ("documents and queries", DAY)):
        planned = plans(known, through)
        for rule, (asked, alone) in rules.items():
            pairs = lenders(planned, asked, alone=alone)
            found = lent(known, pairs)
            row = {"on": name, "learned": learned, "rule": rule, "associations": len(pairs)}
            rows.append(row | {"pairs": len(found), "right": share_right(found)})
            if through and rule in ("paper", "guarded 0.5"):
                to_read += _to_read(known, pairs, f"{name}, {rule}")
    return rows, to_read


def _to_read(known: Labelled, pairs: Pairs, title: str) -> Iterator[str]:
    """Associations spread evenly over all."""
    places: list[int] = np.unique(np.linspace(0, len(pairs) - 1, READ).astype(int)).tolist() if pairs else []
    rights = [share_right(lent(known, [pairs[place]])) for place in places]
    rows = [
        (known.queries[pairs[at][0]], known.queries[pairs[at][1]], right)
        for at, right in zip(places, rights, strict=True)
    ]
    yield f"\n### {title}\n\n{markdown_table(('borrower', 'lender', 'right by labels'), rows)}"


def kept(row: dict[str, object], rows: Sequence[dict[str, object]]) -> str:
    """The pairs that are lent, over those by the paper's rule with the same importances."""
    paper = next(
        one for one in rows if one["rule"] == "paper" and all(one[key] == row[key] for key in ("on", "learned"))
    )
    return f"{row['pairs'] / paper['pairs']:.2f}" if paper["pairs"] else ""  # type: ignore[operator]


def main() -> None:
    """Measure everything."""
    present = [name for name in NAMES if name == "intents" or (COLLECTIONS / name).is_dir()]
    rows: list[dict[str, object]] = []
    to_read: list[str] = []
    for name in present:
        found, examples = measured(name)
        rows += found
        to_read += examples
    head = ("on", "importance from", "rule", "associations", "lent pairs", "of the paper's", "right")
    cells = [(*list(row.values())[:5], kept(row, rows), row["right"]) for row in rows]
    text = f"# Are lent documents right?\n\n{machine()}\n\n{markdown_table(head, cells)}\n\n## To read\n" + "\n".join(
        to_read
    )
    write("lending", text, rows)


if __name__ == "__main__":
    main()
