"""Queries are written in units, with train queries alone as examples."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Output, Run, Tables
from darklode.pipeline.base.sharding import Spread, here
from darklode.pipeline.generate import generation
from darklode.pipeline.generate.generation import WRITE_STAGE, write_queries
from darklode.pipeline.generate.port import QueryWriter, query_table
from darklode.pipeline.generate.source_texts import TEXTS_STAGE, sample_texts
from darklode.pipeline.train.data.sources import TrainingSource
from helpers.adapted import SIDES, TENANT, build_to_adapt
from helpers.elsewhere import Elsewhere
from helpers.runs import execute, read


class Recorder(QueryWriter):
    """Asks with a text's first word, and remembers what it was shown; after `most` calls it breaks."""

    generator_id = "recorder 1"

    def __init__(self, most: int = 100) -> None:
        self.seen: list[tuple[list[str], list[str]]] = []
        self.draws: dict[str, int] = {}
        self._most = most

    def write(self, texts: pa.Table, examples: list[str], on_progress: Callable[[int], None]) -> pa.Table:
        """See `Writer`."""
        if len(self.seen) == self._most:
            raise KeyboardInterrupt
        self.seen.append((texts["chunk_id"].to_pylist(), examples))
        self.draws |= dict(zip(texts["chunk_id"].to_pylist(), texts["draw"].to_pylist(), strict=True))
        on_progress(texts.num_rows)
        return query_table([text.split()[0] for text in texts["text"].to_pylist()])


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A folder with texts to write for."""
    monkeypatch.setattr(generation, "TEXTS_PER_UNIT", 8)
    source = TrainingSource(build_to_adapt(tmp_path / "run"), 0, mined=False, text_characters=100)
    found = Run(str(tmp_path / "out"))
    execute(found, TEXTS_STAGE, lambda _, output: sample_texts(source, output, max_texts=20, seed=13))
    return found


def written(run: Run, writer: QueryWriter, spread: Spread = here) -> list[dict[str, object]]:
    execute(run, WRITE_STAGE, lambda tables, output: write_queries(tables, output, writer, spread, seed=13))
    return read(run, "written_queries")


def test_examples_are_train_queries_and_each_text_has_its_own_draw(run: Run) -> None:
    writer = Recorder()
    rows = written(run, writer)
    assert len(rows) == len({row["query_id"] for row in rows}) == 20
    assert {len(examples) for _, examples in writer.seen} == {SIDES["train"]}
    train = {row["text"] for row in read(run, "real_queries") if row["split"] == "train"}
    assert all(set(examples) <= train for _, examples in writer.seen)
    assert len(set(writer.draws.values())) == 20


def test_a_killed_writing_goes_on_with_the_next_unit(run: Run) -> None:
    with pytest.raises(KeyboardInterrupt):
        written(run, Recorder(most=2))
    after = Recorder()
    assert len(written(run, after)) == 20
    assert sum(len(ids) for ids, _ in after.seen) == 4, "two units of eight stood"


def stopping(run: Run, writer: QueryWriter) -> list[dict[str, object]]:
    def work(tables: Tables, output: Output) -> None:
        write_queries(tables, output, writer, Elsewhere(run.store, 4), seed=13, min_new_share=0.5)

    execute(run, WRITE_STAGE, work)
    return read(run, "written_queries")


class Repeater(Recorder):
    """Asks the same about each text."""

    generator_id = "repeater 1"

    def write(self, texts: pa.Table, examples: list[str], on_progress: Callable[[int], None]) -> pa.Table:
        super().write(texts, examples, on_progress)
        return query_table(["always the same question"] * texts.num_rows)


def test_a_tenants_generation_stops_when_nothing_new_comes(run: Run) -> None:
    writer = Repeater()
    assert len(stopping(run, writer)) == 16, "two units of eight; a third one would repeat them"
    assert len(writer.seen) == 2
    manifest = run.manifest(WRITE_STAGE)
    assert manifest is not None
    assert manifest.facts["stopped"] == {TENANT: 16}
    (step,) = manifest.funnel
    assert step.dropped == {"generation stopped early": 4}


def test_a_killed_generation_stops_at_the_same_text(run: Run) -> None:
    with pytest.raises(KeyboardInterrupt):
        stopping(run, Repeater(most=1))
    after = Repeater()
    rows = stopping(run, after)
    assert len(rows) == 16
    assert len(after.seen) == 1, "the first unit stood"


def test_new_queries_do_not_stop_it(run: Run) -> None:
    assert len(stopping(run, Recorder())) == 20


def test_unreached_documents_come_first_in_random_order(run: Run) -> None:
    writer = Recorder()
    written(run, writer)
    order = [chunk for ids, _ in writer.seen for chunk in ids]
    reached = {row["chunk_id"]: row["reached"] for row in read(run, "generation_texts")}
    flags = [bool(reached[chunk]) for chunk in order]
    assert flags == sorted(flags)
    unreached = [chunk for chunk, flag in zip(order, flags, strict=True) if not flag]
    assert unreached == sorted(unreached, key=lambda chunk: writer.draws[chunk])
    assert order != sorted(order)


def test_what_waits_by_another_version_of_the_stage_is_not_taken(run: Run) -> None:
    waited = []
    for stage in (WRITE_STAGE, replace(WRITE_STAGE, version=WRITE_STAGE.version + 1)):
        elsewhere = Elsewhere(run.store, 4)
        execute(run, stage, lambda tables, output: write_queries(tables, output, Recorder(), elsewhere, seed=13))  # noqa: B023
        waited += elsewhere.waited
    assert len(set(waited)) == len(waited) == 6


def test_written_elsewhere_it_is_the_same_and_only_what_is_missing_goes_there(run: Run) -> None:
    whole = written(run, Recorder())
    run.store.delete("manifests/written_queries.json")
    run.store.delete_folder("progress/written_queries")
    with pytest.raises(KeyboardInterrupt):
        written(run, Recorder(most=1))
    elsewhere = Elsewhere(run.store, 4)
    assert written(run, Recorder(), elsewhere) == whole
    assert elsewhere.names == [
        f"generate queries for {TENANT} from text {first} and 0 more blocks" for first in (8, 16)
    ]
