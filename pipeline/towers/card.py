"""The card of a distilled query tower: retained quality, distance to its teacher, and speed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.card import cell, changed_settings, document, name_of, software, with_front_matter
from darklode.pipeline.towers.evaluation import TESTED
from darklode.pipeline.towers.folder import KEPT, sentence
from darklode.pipeline.towers.queries import QUERIES
from darklode.pipeline.towers.teacher_student import TeacherPair
from darklode.pipeline.train.release.adapter import FOLDER
from darklode.pipeline.train.release.card import READING, licence
from darklode.pipeline.train.release.folder import recorded_difference
from darklode.schemas.settings import Settings

HEALTH = """\
`distance` is the mean ‖q − s‖ of the teacher's and the student's unit vectors: what ranking can lose is at most as
much, up to a constant (ScalingNote, Proposition 3.2). `unseen` are queries that nothing saw before the end, `test`
those that the runs test with, labelled or not. `overlap` is the share of the teacher's first ten that the student finds
in its first ten."""

CAVEATS = """\
A student does what its teacher does, its mistakes included: it learned from queries alone, and from no label. It is for
queries alone, and only against the index of its teacher, which stays as it is. Milliseconds and queries a second are
those of the machine that tested it, on one core."""

TRIALS = "SELECT learning_rate, step, distance FROM distillation_trials ORDER BY trial"
COURSE = """
    SELECT learning_rate, l.step, squared, cosine, l.distance FROM distillation_log l
    JOIN distillation_trials USING (trial) ORDER BY trial, l.step
"""


def card(run: Run, settings: Settings, pair: TeacherPair, sources: list[str]) -> bytes:
    """The card in Markdown.

    Args:
        run: with complete stages and the saved folder.
        settings: in force.
        pair: teacher and student.
        sources: the runs and files of its training queries, as given.
    """
    tables = run.tables()
    head = [
        f"# {cell(name_of(run, settings))}",
        f"A query tower distilled from queries alone (ScalingNote, 3.3): {cell(sentence(tables))}.",
        f"Teacher: `{cell(pair.teacher.encoder_id())}`. Student: {cell(pair.identity['begins as'])}.",
        f"Learned from the queries of {', '.join(f'`{cell(source)}`' for source in sources)}: {_counts(run)}.",
    ]
    last = [
        *("## What it does not say", CAVEATS),
        *("## How to use it", READING.format(folder=FOLDER, off=recorded_difference(run))),
        *("## Settings that differ from the defaults", changed_settings(settings)),
        *("## Software", software(run), "## Licence", f"Of the model it began as: `{cell(licence(pair.student))}`."),
    ]
    front = {"library_name": "sentence-transformers", "license": licence(pair.student)}
    return with_front_matter(document(head, _tables(run, tables), last), front, {}).encode()


def _tables(run: Run, tables: Tables) -> Iterator[tuple[str, pa.Table, str]]:
    note = "`kept` is the student's value by the teacher's; `low` and `high` are a 95 % interval of the difference."
    yield "What the student keeps", tables.sql(KEPT), note
    yield "How near it is", tables.read("tower_health"), HEALTH
    yield "Size and speed", speeds(run), "`numbers` of each, those of tokens included; `megabytes` of the saved folder."
    yield "What was tried", tables.sql(TRIALS), "`distance` on held-out queries."
    yield "How it went", tables.sql(COURSE), ""


def speeds(run: Run) -> pa.Table:
    """Parameters, ms per query and queries per second of teacher and student, and the student's size in MB."""
    facts = _facts(run, TESTED.name)
    size = sum(run.store.sizes(FOLDER, recursive=True).values())
    rows = [{"tower": name, **facts[name], "megabytes": None} for name in ("teacher", "student")]
    rows[1]["megabytes"] = round(size / 1e6, 3)
    return pa.Table.from_pylist(rows)


def _counts(run: Run) -> str:
    facts = _facts(run, QUERIES.name)
    return ", ".join(f"{facts[side]:,} {side}" for side in ("train", "validation", "unseen", "test"))


def _facts(run: Run, stage: str) -> Mapping[str, Any]:
    return run.manifests()[stage].facts
