"""The stage that judges unlabelled texts before systems are compared.

Without it, a system that ranks a relevant but unlabelled text in its top ten would be scored as if the text were not
relevant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Run, Stage, Tables
from darklode.pipeline.base.chunk_texts import Digest, TenantChunks
from darklode.pipeline.base.errors import MissingPart
from darklode.pipeline.judge.calibration import calibrated_judge
from darklode.pipeline.judge.factory import Judges, members
from darklode.pipeline.judge.port import PAIRS, Judge
from darklode.pipeline.judge.session import JudgingSession, judge_facts, label_counts
from darklode.pipeline.train.data.sources import TrainingSource, texts_of
from darklode.pipeline.train.release.evaluation import TEST_LABELS_SQL, TEST_QUERIES_SQL
from darklode.pipeline.train.release.headroom import HEADROOM_STAGE
from darklode.schemas.adaptation_tables import UNJUDGED_RESULTS, UNJUDGED_VERDICTS
from darklode.schemas.comparison_tables import COMPARISON_LISTS
from darklode.schemas.tables import TABLES

LABELLED_TABLES = ("adaptation_queries", "adaptation_labels", "adaptation_texts")
WRITES = ("test_queries", "test_labels", UNJUDGED_VERDICTS.name, UNJUDGED_RESULTS.name)
UNJUDGED_STAGE = Stage("unjudged_results", 5, (*LABELLED_TABLES, "test_rankings"), WRITES)
COMPARISON_UNJUDGED_STAGE = Stage("comparison_unjudged_results", 4, (*LABELLED_TABLES, COMPARISON_LISTS.name), WRITES)

DEPTH = 10
"""Ranks to judge: the cutoff of the compared measure, nDCG@10."""
PAIRS_PER_BLOCK = 512
"""Pairs judged and recorded together; after an interruption at most one block is judged again."""

# First the texts of the systems `$1`, then those of the others. Within each, ordered by the best rank that any of
# these systems gives a text, so that a budget that is spent early treats them alike.
UNLABELLED_TEXTS_SQL = f"""
    WITH ranked_texts AS (
        SELECT tenant, query_id, text_id, min(rank) AS rank,
               min(rank) FILTER (list_contains(CAST($1 AS VARCHAR[]), system)) AS first_rank
        FROM {{lists}} WHERE rank <= {DEPTH} GROUP BY tenant, query_id, text_id
    )
    SELECT r.tenant, r.query_id, q.text AS query, r.text_id, r.rank, t.index,
           substr(sha256(q.text), 1, 32) AS query_hash
    FROM ranked_texts r ANTI JOIN adaptation_labels l USING (tenant, query_id, text_id)
    JOIN adaptation_queries q USING (tenant, query_id) JOIN adaptation_texts t USING (tenant, text_id)
    ORDER BY first_rank IS NULL, first_rank, rank, r.query_id, r.text_id
"""

# The queries below read `new_verdicts`, the rows of `unjudged_verdicts` that `judge_unjudged` registers.
ALL_LABELS_SQL = f"""
    SELECT * FROM ({TEST_LABELS_SQL}) UNION ALL
    SELECT tenant, query_id, text_id,
           CASE WHEN NOT relevant THEN 0 WHEN list_contains(CAST($binary AS INTEGER[]), index) THEN 1
                ELSE greatest(coalesce(grade, 1), 1) END
    FROM new_verdicts JOIN adaptation_texts USING (tenant, text_id)
    WHERE relevant IS NOT NULL ORDER BY tenant, query_id, text_id
"""

# A text that the judge finds relevant may be a training positive of another query. The test query then shares a
# positive with training and is reported apart.
ALL_QUERIES_SQL = f"""
    WITH training_texts AS (
        SELECT DISTINCT content_hash FROM adaptation_labels JOIN adaptation_texts USING (tenant, text_id) WHERE learned
    ), shared AS (
        SELECT DISTINCT query_id FROM new_verdicts JOIN adaptation_texts USING (tenant, text_id)
        SEMI JOIN training_texts USING (content_hash) WHERE relevant
    )
    SELECT q.* REPLACE (shares_positive OR s.query_id IS NOT NULL AS shares_positive)
    FROM ({TEST_QUERIES_SQL}) q LEFT JOIN shared s USING (query_id) ORDER BY tenant, query_id
"""

COVERAGE_SQL = f"""
    SELECT system, count(*) AS places, count(l.relevance) AS labelled, count(v.text_id) AS judged,
           count(*) FILTER (v.relevant) AS relevant
    FROM {{lists}} r LEFT JOIN adaptation_labels l USING (tenant, query_id, text_id)
    LEFT JOIN (FROM new_verdicts WHERE relevant IS NOT NULL) v USING (tenant, query_id, text_id)
    WHERE r.rank <= {DEPTH} GROUP BY system ORDER BY system DESC
"""

JUDGE_LABEL_COUNT_SQL = (
    "SELECT count(*) AS n FROM qrels WHERE ($tenant IS NULL OR tenant = $tenant) AND source = 'judge'"
)

SORT_COLUMNS = ("query_id", "text_id")
_FINGERPRINT_COLUMNS = ("query_id", "chunk_id", "query_hash", "chunk_hash")


@dataclass(frozen=True)
class UnjudgedJudges:
    """The judges that label unjudged texts, one per run.

    Attributes:
        runs: each run with the settings of its judge, in the order of the runs' numbers.
        binary: numbers of the runs whose labels are binary, whatever the judge's grades (`labels.binary`).
    """

    runs: tuple[tuple[TrainingSource, Judges], ...]
    binary: tuple[int, ...] = ()

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that can change a verdict besides the content of the runs."""
        return {"judges": [judges.identity for _, judges in self.runs], "binary": list(self.binary)}

    @property
    def sources(self) -> list[TrainingSource]:
        """The runs."""
        return [source for source, _ in self.runs]

    def runs_by_judge(self, tenant: str | None) -> list[int]:
        """Numbers of the runs whose labels come from a judge; runs labelled by people or a log are not judged.

        Args:
            tenant: tenant whose labels are looked at; None: any tenant.
        """
        run_numbers = [
            source.number
            for source, _ in self.runs
            if not source.mined and source.count(JUDGE_LABEL_COUNT_SQL, tenant=tenant)
        ]
        return sorted(run_numbers)

    def check(self, budget: int, tenant: str | None) -> None:
        """Check before training that the judges can run.

        Args:
            budget: maximum number of pairs; 0 asks no judge.
            tenant: as in `runs_by_judge`.

        Raises:
            MissingPart: a judge lacks a key, server, prompt, package or model.
        """
        run_judges = [self.runs[number][1] for number in (self.runs_by_judge(tenant) if budget else ())]
        phrases = {
            f"judge {member.kind}: {phrase}"
            for judges in run_judges
            for member in members(judges.settings)
            for phrase in member.missing()
        }
        if phrases:
            raise MissingPart(
                *(f"{phrase}; --set adapt.unjudged_budget=0 disables the judge" for phrase in sorted(phrases))
            )

    def judge(self, number: int, tenant: str) -> Judge:
        """Open the calibrated judge that made a run's labels."""
        source, judges = self.runs[number]
        tables = source.run.tables()
        return calibrated_judge(tables, judges)(TenantChunks(tables, tenant))


def judge_unjudged(
    tables: Tables,
    output: Output,
    budget: int,
    judges: UnjudgedJudges,
    *,
    lists: str = "test_rankings",
    first: Sequence[str] = (),
) -> None:
    """Judge the unlabelled texts in each system's top ten, and write test queries and labels.

    Texts are judged in the order of their rank until the budget is spent, those of the systems `first` before all
    others; each is judged by the judge that labelled its run. Pairs with unreadable verdicts stay unlabelled. A query
    moves to the queries that share a positive with training if training learned from a text that is now judged
    relevant for it.

    Args:
        tables: the tables of `adaptation_pairs`, and the rankings.
        output: receives `test_queries`, `test_labels`, `unjudged_verdicts` and `unjudged_results`; its facts name the
            judges.
        budget: maximum number of pairs to judge; 0: none.
        judges: the judges of the runs.
        lists: name of the table with each system's rankings.
        first: systems that the budget is spent on first, because the decision compares them.

    Raises:
        ValueError: a judge broke its contract, see `check_replies`.
    """
    unlabelled = tables.sql(UNLABELLED_TEXTS_SQL.format(lists=lists), [list(first)])
    tenant = tables.read("adaptation_queries", ["tenant"])["tenant"][0].as_py()
    judged_runs = judges.runs_by_judge(tenant) if budget else []
    judgeable = unlabelled.filter(pc.is_in(unlabelled["index"], pa.array(judged_runs, pa.int32())))
    verdicts = _judge_rows(judgeable.slice(0, budget), output, judges)
    with tables.connect() as connection:
        connection.register("new_verdicts", verdicts)
        counts_sql = COVERAGE_SQL.format(lists=lists)
        for name, sql, parameters in (
            ("test_queries", ALL_QUERIES_SQL, {}),
            ("test_labels", ALL_LABELS_SQL, {"binary": list(judges.binary)}),
            (UNJUDGED_RESULTS.name, counts_sql, {}),
        ):
            rows = connection.sql(sql, params=parameters).to_arrow_table()
            output.write(name, rows.cast(TABLES[name].schema))
    remaining = {
        "beyond the budget": judgeable.num_rows - verdicts.num_rows,
        "no judge labelled its run": unlabelled.num_rows - judgeable.num_rows,
    }
    remaining = {reason: count for reason, count in remaining.items() if count}
    output.count(
        FunnelStep(
            UNJUDGED_STAGE.name, "texts without a label", unlabelled.num_rows, "verdicts", verdicts.num_rows, remaining
        )
    )


def _judge_rows(rows: pa.Table, output: Output, judges: UnjudgedJudges) -> pa.Table:
    """Judge pairs run by run and return their verdicts, as written to `unjudged_verdicts`."""
    verdict_tables = [UNJUDGED_VERDICTS.empty()]
    judges_used: list[Judge] = []
    with JudgingSession(output, rows.num_rows) as session:
        for number in sorted(pc.unique(rows["index"]).to_pylist()):
            run_rows = rows.filter(pc.equal(rows["index"], number)).sort_by(
                [(name, "ascending") for name in SORT_COLUMNS]
            )
            judges_used.append(judges.judge(number, run_rows["tenant"][0].as_py()))
            for start in range(0, run_rows.num_rows, PAIRS_PER_BLOCK):
                block = _UnjudgedBlock(run_rows.slice(start, PAIRS_PER_BLOCK), judges_used[-1], session, output)
                verdict_tables.append(block.judge_block(f"{number}/{start}", judges.sources))
    output.facts |= judge_facts(judges_used)
    return pa.concat_tables(verdict_tables)


NO_JUDGES = UnjudgedJudges(())
"""No runs, so nothing is judged."""


@dataclass(frozen=True)
class _UnjudgedBlock:
    """A block of pairs of one run that are judged and recorded together."""

    rows: pa.Table
    judge: Judge
    session: JudgingSession
    output: Output

    def judge_block(self, name: str, sources: list[TrainingSource]) -> pa.Table:
        """Judge the block, unless a unit with the same judge and pairs is complete; returns its verdicts."""
        pairs = _pairs(self.rows, sources)
        digest = Digest(len(_FINGERPRINT_COLUMNS))
        digest.update(pairs.select(_FINGERPRINT_COLUMNS).columns)
        fingerprint = f"{self.judge.judge_id} {digest.hexdigest()}"
        unit = self.session.unit(name, fingerprint, lambda: self._write(pairs), self.judge)
        return self.output.read_unit(unit, UNJUDGED_VERDICTS.name)

    def _write(self, pairs: pa.Table) -> dict[str, int]:
        """Ask the judge, write the verdicts and count the labels."""
        replies, judge_id = self.session.routed_replies(self.judge, pairs)
        pair_columns = {name: self.rows[name] for name in ("tenant", "query_id", "text_id", "rank")}
        reply_columns = {name: replies[name] for name in ("relevant", "probability", "grade", "error")}
        verdicts = UNJUDGED_VERDICTS.rows(pair_columns | reply_columns | {"judge_id": judge_id})
        self.output.write(UNJUDGED_VERDICTS.name, verdicts)
        return label_counts(verdicts["relevant"])


def _pairs(rows: pa.Table, sources: Iterable[TrainingSource]) -> pa.Table:
    """Add the texts to pairs of a query and a text, in the columns that judges read."""
    texts = texts_of(list(sources), rows)
    columns = {name: rows[name] for name in ("tenant", "query_id", "query", "query_hash")}
    columns |= {name: texts[name] for name in ("title", "heading", "text")}
    columns |= {"chunk_id": rows["text_id"], "chunk_hash": texts["content_hash"]}
    return pa.table([columns[name] for name in PAIRS.names], schema=PAIRS).combine_chunks()


TEST_COUNT_SQL = """
    SELECT count(*) AS n_queries, min(tenant) AS tenant FROM adaptation_queries WHERE split = 'test'
"""


def format_unjudged(run: Run, judges: UnjudgedJudges, budget: int) -> str:
    """Estimate in a sentence how many pairs the judge will be asked for; empty if no judge is used.

    The estimate is the mean number of unlabelled texts that the label-free systems have in the top ten of a query that
    is used for model selection, times the number of test queries.
    """
    manifest = run.manifest(HEADROOM_STAGE)
    assert manifest is not None
    row = run.tables("adaptation_queries").sql(TEST_COUNT_SQL).to_pylist()[0]
    expected = min(budget, round(manifest.facts["unlabelled"] * row["n_queries"]))
    if not expected or not judges.runs_by_judge(row["tenant"]):
        return ""
    limit = f"{budget:,} at most (adapt.unjudged_budget)"
    return f" Before the test is measured about {expected:,} pairs go to the judge, {limit}."
