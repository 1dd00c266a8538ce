"""Human labels of pairs by majority of reviewers, and reviewers' answers as a table."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, fields
from datetime import UTC

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import FunnelStep, Output, Run, Stage, Store, Tables, key_of
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.majority_labels import MAJORITY_LABELS_SQL, WEIGHTED_LABELS_SQL
from darklode.pipeline.validate.review.journal import ANSWERS_FOLDER, AnswerJournal, current_answers
from darklode.schemas.review_tables import REVIEWS

_Floats = NDArray[np.float64]
_Counts = NDArray[np.int64]
_Flags = NDArray[np.bool_]

REVIEWED_PAIRS_SQL = f"""
    SELECT l.tenant, l.relevance, l.shown, l.yes + l.no AS votes, s.position AS stratum, p.retrievers,
           v.relevant, v.probability, v.grade,
           dense_rank() OVER (ORDER BY l.tenant, l.query_id) - 1 AS query
    FROM ({MAJORITY_LABELS_SQL}) l
    LEFT JOIN review_sample r USING (tenant, query_id, chunk_id)
    LEFT JOIN (SELECT DISTINCT stratum, position FROM review_strata) s USING (stratum)
    LEFT JOIN pool p USING (tenant, query_id, chunk_id)
    LEFT JOIN verdicts v USING (tenant, query_id, chunk_id)
    ORDER BY l.tenant, l.query_id, l.chunk_id
"""


@dataclass(frozen=True)
class ReviewedPairs:
    """Reviewed pairs, sorted by key; each array has the shape (n_pairs,).

    Attributes:
        tenant: name of the tenant.
        query: query index of each pair, from 0.
        stratum: position of the pair's stratum, -1 if the pair is not in the sample.
        votes: number of answers except skips.
        shown: whether a reviewer could see the judge's verdict.
        relevance: human label (0 or a grade), -1 if there is none.
        is_readable: whether the judge's verdict is readable; `relevant` is valid only then.
        relevant: whether the judge labelled the pair relevant.
        probability: the judge's probability of relevance, NaN if missing.
        grade: the judge's grade, NaN if missing.
        found_by: whether each retriever found the pair, shape (n_pairs, n_retrievers).
    """

    tenant: NDArray[np.object_]
    query: _Counts
    stratum: _Counts
    votes: _Counts
    shown: _Flags
    relevance: _Counts
    is_readable: _Flags
    relevant: _Flags
    probability: NDArray[np.float32]
    grade: _Floats
    found_by: _Flags

    @classmethod
    def from_tables(cls, tables: Tables, retrievers: list[str]) -> ReviewedPairs:
        """Read the reviewed pairs from a run's tables.

        Args:
            tables: must contain `reviews`, `review_sample`, `review_strata`, `pool` and `verdicts`.
            retrievers: names of the retrievers, in the order of the columns of `found_by`.
        """
        rows = tables.sql(REVIEWED_PAIRS_SQL)
        return cls(
            tenant=rows["tenant"].to_numpy(zero_copy_only=False),
            query=rows["query"].to_numpy(),
            stratum=pc.fill_null(rows["stratum"], -1).to_numpy().astype(np.int64),
            votes=rows["votes"].to_numpy(),
            shown=rows["shown"].to_numpy(),
            relevance=pc.fill_null(rows["relevance"], -1).to_numpy().astype(np.int64),
            is_readable=pc.is_valid(rows["relevant"]).to_numpy(),
            relevant=pc.fill_null(rows["relevant"], False).to_numpy(),
            probability=pc.fill_null(rows["probability"], float("nan")).to_numpy(),
            grade=pc.fill_null(rows["grade"].cast(pa.float64()), float("nan")).to_numpy(),
            found_by=_membership(rows["retrievers"], retrievers),
        )

    def take(self, rows: _Flags) -> ReviewedPairs:
        """Select the pairs in a mask."""
        return ReviewedPairs(*(getattr(self, field.name)[rows] for field in fields(self)))

    @property
    def is_labelled(self) -> _Flags:
        """Whether each pair has a human label."""
        return np.asarray(self.relevance >= 0)

    @property
    def positive(self) -> _Flags:
        """Whether each pair is labelled relevant by people."""
        return np.asarray(self.relevance > 0)


def _membership(lists: pa.ChunkedArray, names: list[str]) -> _Flags:
    """Whether each list contains each name, shape (n_lists, n_names)."""
    membership = np.zeros((len(lists), len(names)), bool)
    combined = lists.combine_chunks()
    row = pc.list_parent_indices(combined).to_numpy()
    column = pc.index_in(pc.list_flatten(combined), pa.array(names, pa.string()))
    is_valid = column.is_valid().to_numpy(zero_copy_only=False)
    membership[row[is_valid], column.drop_null().to_numpy()] = True
    return membership


def labels_csv(tables: Tables) -> str:
    """Format human labels as CSV for `judge.human_labels`; without ties and skipped pairs.

    The weight of a label is the number of pairs of its stratum ÷ labels of the stratum; empty outside the sample.

    Args:
        tables: must contain `reviews` and `review_sample`.
    """
    rows = tables.sql(f"SELECT * EXCLUDE (stratum) FROM ({WEIGHTED_LABELS_SQL}) ORDER BY tenant, query_id, chunk_id")
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(rows.column_names)
    writer.writerows(zip(*(rows[name].to_pylist() for name in rows.column_names), strict=True))
    return file.getvalue()


KEY_COLUMNS = ("tenant", "query_id", "chunk_id", "reviewer")

REVIEWS_STAGE = Stage("reviews", 1, (), (REVIEWS.name,))


def answers_fingerprint(store: Store) -> str:
    """Compute a fingerprint of a run's answers; each is an immutable file."""
    return key_of(sorted(store.sizes(ANSWERS_FOLDER).items()))


def require_answers(run: Run) -> None:
    """Check that all answers of the last validation still exist.

    Raises:
        ArtifactError: answers are missing, or a journal file is invalid.
    """
    try:
        manifest = run.manifest(REVIEWS_STAGE)
        reviews = run.tables(REVIEWS.name).read(REVIEWS.name).to_pylist() if manifest else []
    except ArtifactError:  # damaged manifests and parts are reported elsewhere
        manifest, reviews = None, []
    answers = AnswerJournal(run.store).read()  # read last, since answers may be added and validated meanwhile
    known_answers = {(*answer.key, answer.answered_at.astimezone(UTC)) for answer in answers}
    keys = [(*(row[name] for name in KEY_COLUMNS), row["answered_at"].astimezone(UTC)) for row in reviews]
    n_validated = sum(step.rows_in for step in manifest.funnel) if manifest else 0
    n_missing = max(sum(key not in known_answers for key in keys), n_validated - len(answers))
    if n_missing:
        message = f"{run.store.path(ANSWERS_FOLDER)} is missing {n_missing:,} of {n_validated:,} validated answers"
        raise ArtifactError(f"{message}; restore the folder from a backup: there is no other copy")


def write_reviews(store: Store, output: Output) -> None:
    """Write each reviewer's last answer to each pair, except retracted ones.

    Args:
        store: the run's files, with the journal of answers.
        output: receives `reviews`.

    Raises:
        ArtifactError: a journal file is invalid.
    """
    answers = AnswerJournal(store).read()
    rows = current_answers(answers)
    output.write(REVIEWS.name, rows)
    dropped = {"replaced or retracted": len(answers) - len(rows)} if len(answers) > len(rows) else {}
    output.count(FunnelStep("reviews", "answers", len(answers), "current answers", len(rows), dropped))
