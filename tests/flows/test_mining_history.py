from datetime import date
from pathlib import Path

from darklode.flows.config import load_settings
from darklode.flows.mining_history import are_documents_read, days_read, mining_inputs
from darklode.flows.runs import update_inputs, write_inputs, write_run
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.ingest.documents import INGEST_DOCUMENTS
from darklode.pipeline.ingest.files import source_fingerprint
from darklode.pipeline.ingest.logs import INGEST_LOGS
from darklode.schemas.run_inputs import MinedInputs


def test_inputs_are_empty_before_the_first_night(run: Run) -> None:
    assert mining_inputs(run).refit_through is None
    write_inputs(run, MinedInputs(logs="l", docs="d"))
    update_inputs(run, refit_through=date(2026, 3, 1))
    assert mining_inputs(run) == MinedInputs(logs="l", docs="d", refit_through=date(2026, 3, 1))


def test_days_read_with_other_settings_are_checked_again(run: Run, tmp_path: Path) -> None:
    docs = tmp_path / "docs.csv"
    docs.write_text("doc_id,text\nd1,a text\n")
    usual, other = load_settings(), load_settings(assignments=["logs.first_position=0"])
    assert (days_read(run, usual), are_documents_read(run, str(docs), usual)) == ({}, False), "a new run"

    write_run(run, MinedInputs(logs="l", docs=str(docs)), usual)
    run.execute(run.plan(INGEST_LOGS, {}), lambda _tables, output: output.facts.update(sources={"2026-03-01": "a"}))
    files = {"the documents' files": source_fingerprint(str(docs))}
    run.execute(run.plan(INGEST_DOCUMENTS, {}, files), lambda _tables, _output: None)
    assert (days_read(run, usual), are_documents_read(run, str(docs), usual)) == ({"2026-03-01": "a"}, True)
    assert (days_read(run, other), are_documents_read(run, str(docs), other)) == ({}, False)
    docs.write_text("doc_id,text\nd1,another text\n")
    assert not are_documents_read(run, str(docs), usual)
