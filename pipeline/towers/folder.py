"""The released folder of a student, loadable by plain sentence-transformers, and its record."""

from __future__ import annotations

from typing import Any

from darklode.pipeline.base.artifacts import Run, Tables, key_of
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.towers.stage import DISTIL_STAGE, load_best_student
from darklode.pipeline.towers.teacher_student import TeacherPair
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.dataset import QuerySet
from darklode.pipeline.train.fit.determinism import deterministic
from darklode.pipeline.train.release.folder import assemble_model, compare_vectors, is_up_to_date, probes, save_folder
from darklode.pipeline.train.release.identity import fingerprint, record
from darklode.schemas.tower_tables import TOWER_QUERIES

SHIPPED_STUDENT = "student"
"""`shipped` in `adapter.json` for a student; for an adapter it is `adapted` or `base`."""

# Retained quality is measured on all counted test queries, also on those that share a positive with training, because a
# student learns from no label. If a whole run was held out, its test queries are reported beside all of them.
RETAINED_QUALITY_SQL = """
    WITH scores AS (FROM evaluation WHERE tenant IS NULL AND part = 'counted'), held_out_runs AS (
        SELECT DISTINCT index FROM tower_queries WHERE split = 'unseen' AND source = 'queries'
        EXCEPT SELECT index FROM tower_queries WHERE split IN ('train', 'validation') AND source = 'queries'
    ), held_out_scores AS (
        SELECT measure, system, avg(value) AS value, count(*) AS queries FROM evaluation_queries
        SEMI JOIN (FROM adaptation_queries SEMI JOIN held_out_runs USING (index)) USING (tenant, query_id)
        GROUP BY ALL
    )
    SELECT 'all' AS test_queries, measure, teachers.value AS teacher, students.value AS student,
           students.value / nullif(teachers.value, 0) AS kept, p.difference, p.low, p.high, teachers.queries
    FROM (FROM scores WHERE system = 'teacher') teachers JOIN (FROM scores WHERE system = 'student') students
        USING (measure)
    JOIN evaluation_pairs p USING (measure) WHERE p.tenant IS NULL AND p.part = 'counted'
    UNION ALL
    SELECT 'held-out run', measure, t.value, s.value, s.value / nullif(t.value, 0), s.value - t.value, NULL, NULL,
           t.queries
    FROM (FROM held_out_scores WHERE system = 'teacher') t JOIN (FROM held_out_scores WHERE system = 'student') s
        USING (measure)
    ORDER BY test_queries, measure DESC
"""


def save(run: Run, pair: TeacherPair) -> None:
    """Write `query_encoder/` unless it is up to date.

    Args:
        run: a run with complete stages.
        pair: teacher and student.

    Raises:
        DarklodeError: the saved folder does not reproduce the vectors of training.
    """
    manifest = run.manifest(DISTIL_STAGE)
    mark = key_of(manifest.fingerprint if manifest else "", pair.identity)
    if is_up_to_date(run.store, mark):
        return
    tables = run.tables(*DISTIL_STAGE.writes, "adaptation_queries")
    with deterministic(0):
        student, queries = load_best_student(tables, pair), QuerySet.from_texts(probes(tables), pair)
        expected = student.vectors(queries)
    save_folder(
        run.store,
        mark,
        assemble_model(student.loaded.to("cpu"), pair.student, []),
        compare_vectors(queries.texts, expected),
        {},
    )


def write_record(run: Run, base: BaseEncoder, settings: SentenceTransformersSettings) -> None:
    """Write `adapter.json`, which `adapt check` and releases read, unless it is up to date.

    Args:
        run: a run with the saved folder.
        base: the encoder of the index, with the runs.
        settings: settings of that encoder.
    """
    tables = run.tables()
    record(run, base, settings, verdict(tables), fingerprint(tables, [TOWER_QUERIES.name]))


def verdict(tables: Tables) -> dict[str, Any]:
    """Summary of the student: tenant, retained quality, and difference in nDCG@10 to the teacher."""
    retained = _retained(tables)
    scores = {name: retained["nDCG@10"][name] for name in ("queries", "difference", "low", "high")}
    rows = tables.sql(
        "SELECT min(tenant) AS tenant, count(*) FILTER (split = 'validation') AS held FROM tower_queries"
    ).to_pylist()
    return {
        "tenant": rows[0]["tenant"],
        "shipped": SHIPPED_STUDENT,
        "reason": sentence(tables),
        "part": "counted",
        "validation_queries": rows[0]["held"],
        **scores,
    }


def sentence(tables: Tables) -> str:
    """Retained quality and agreement with the teacher, as a sentence."""
    retained = _retained(tables)
    parts = [f"{row['kept']:.3f} of {name}" for name, row in retained.items() if row["kept"] is not None]
    summary = f"it retains {', '.join(parts)}" if parts else "its teacher finds no positive"
    health = {row["split"]: row for row in tables.read("tower_health").to_pylist()}
    held_out_health = health.get("unseen") or health["validation"]
    return (
        f"{summary} on {retained['R@100']['queries']:,} labelled test queries; on {held_out_health['queries']:,} "
        f"queries outside of its training it shares {held_out_health['overlap']:.3f} of its teacher's first ten, "
        f"{held_out_health['top_100']:.3f} of which are among its first hundred"
    )


def _retained(tables: Tables) -> dict[str, dict[str, Any]]:
    """Retained quality on all labelled test queries, by measure."""
    rows = tables.sql(RETAINED_QUALITY_SQL).to_pylist()
    return {row["measure"]: row for row in rows if row["test_queries"] == "all"}
