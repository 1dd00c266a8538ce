"""The card of a distilled query tower: retained quality, distance to its teacher, and speed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.card import cell, changed_settings, document, name_of, software, with_front_matter
from darklode.pipeline.towers.evaluation import TOWER_TEST_STAGE
from darklode.pipeline.towers.folder import RETAINED_QUALITY_SQL, sentence
from darklode.pipeline.towers.held_out import CLUSTERS
from darklode.pipeline.towers.queries import QUERIES_STAGE
from darklode.pipeline.towers.teacher_student import TeacherPair
from darklode.pipeline.train.release.adapter import ENCODER_FOLDER
from darklode.pipeline.train.release.card import USAGE_NOTE, licence
from darklode.pipeline.train.release.folder import recorded_difference
from darklode.schemas.settings import Settings

HEALTH_NOTE = """\
`overlap` is the share of the teacher's first ten in the student's first ten, `top_100` their share in its first
hundred. `distance` is the mean ‖q − s‖ of the teacher's and the student's unit vectors; up to a constant it bounds the
loss in ranking quality (ScalingNote, Proposition 3.2). `test`: test queries of the runs, labelled or not. `unseen`:
{unseen}."""

UNSEEN_SOURCE = "queries of {name}, which was held out of training"
UNSEEN_CLUSTERS = (
    "whole clusters of queries that were held out of training, which is optimistic: other queries and passages of the "
    "same collections were not. Expect less on other collections; `--hold-out` measures on another source"
)

CAVEATS = """\
A student reproduces its teacher, including its mistakes: it was trained without labels. Use it for queries
only, and only with the index of its teacher, which is unchanged. Milliseconds and queries per second were measured on
one core of the machine that tested it."""

TRIALS_SQL = "SELECT learning_rate, step, distance FROM distillation_trials ORDER BY trial"
TRAINING_LOG_SQL = """
    SELECT learning_rate, l.step, squared, cosine, l.distance FROM distillation_log l
    JOIN distillation_trials USING (trial) ORDER BY trial, l.step
"""


def card(run: Run, settings: Settings, pair: TeacherPair, sources: list[str]) -> bytes:
    """The card in Markdown.

    Args:
        run: a run with complete stages and the saved folder.
        settings: the settings that the run used.
        pair: teacher and student.
        sources: the runs and files of its training queries, as given.
    """
    tables = run.tables()
    head = [
        f"# {cell(name_of(run, settings))}",
        f"A query tower distilled without labels (ScalingNote, 3.3): {cell(sentence(tables))}.",
        f"Teacher: `{cell(pair.teacher.encoder_id())}`. Student: {cell(pair.identity['begins as'])}.",
        f"Trained on queries and passages of {', '.join(f'`{cell(source)}`' for source in sources)}: {_counts(run)}.",
    ]
    sections = [
        *("## Limits", CAVEATS),
        *("## How to use it", USAGE_NOTE.format(folder=ENCODER_FOLDER, off=recorded_difference(run))),
        *("## Settings that differ from the defaults", changed_settings(settings)),
        *("## Software", software(run), "## Licence", f"Of the initial model: `{cell(licence(pair.student))}`."),
    ]
    front_matter = {"library_name": "sentence-transformers", "license": licence(pair.student)}
    return with_front_matter(document(head, _tables(run, tables), sections), front_matter, {}).encode()


def _tables(run: Run, tables: Tables) -> Iterator[tuple[str, pa.Table, str]]:
    note = "`kept`: the student's value by the teacher's; `low` and `high`: a 95 % interval of the difference."
    yield "Retained quality", tables.sql(RETAINED_QUALITY_SQL), note
    name = _facts(run, QUERIES_STAGE.name)["held out"]
    unseen = UNSEEN_CLUSTERS if name == CLUSTERS else UNSEEN_SOURCE.format(name=f"`{cell(name)}`")
    yield "Agreement with the teacher", tables.read("tower_health"), HEALTH_NOTE.format(unseen=unseen)
    yield "Size and speed", speeds(run), "`numbers`: parameters with embeddings; `megabytes` of the saved folder."
    yield "Trials", tables.sql(TRIALS_SQL), "`distance` on held-out queries."
    yield "Training history", tables.sql(TRAINING_LOG_SQL), ""


def speeds(run: Run) -> pa.Table:
    """Parameters, ms per query and queries per second of teacher and student, and the student's size in MB."""
    facts = _facts(run, TOWER_TEST_STAGE.name)
    size = sum(run.store.sizes(ENCODER_FOLDER, recursive=True).values())
    rows = [{"tower": name, **facts[name], "megabytes": None} for name in ("teacher", "student")]
    rows[1]["megabytes"] = round(size / 1e6, 3)
    return pa.Table.from_pylist(rows)


def _counts(run: Run) -> str:
    facts = _facts(run, QUERIES_STAGE.name)
    splits = ", ".join(f"{facts[side]:,} {side}" for side in ("train", "validation", "unseen", "test"))
    return f"{splits}; {facts['passages']:,} are passages"


def _facts(run: Run, stage: str) -> Mapping[str, Any]:
    return run.manifests()[stage].facts
