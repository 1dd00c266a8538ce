"""Caveats of mined runs: which come first, and what they say."""

from datetime import timedelta

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.report.mined_caveats import CLICK_LABELS, ranked_mined_caveats, weak_ranker
from darklode.schemas.settings import Settings
from darklode.schemas.tables import TABLES
from helpers.days import days, garbage, judged
from helpers.runs import put
from helpers.small_log import FIRST


def pair(positive_id: str) -> dict[str, object]:
    """A mined pair; its values are those of its kinds."""
    values: dict[str, object] = {"tenant": "t", "query_id": "q", "positive_id": positive_id}
    for field in TABLES["mined_pairs"].schema:
        if not field.nullable and field.name not in values:
            text = pa.types.is_string(field.type)
            values[field.name] = "x" if text else [] if pa.types.is_list(field.type) else 0
    return values


def test_missing_documents_and_held_days_come_before_what_every_log_has(run: Run) -> None:
    log = days(12)
    log[FIRST + timedelta(10)] = garbage(10)
    judged(run, log)
    put(run, "mined_pairs", pa.Table.from_pylist([pair("nowhere.md")], schema=TABLES["mined_pairs"].schema))
    missing, held, clicks = ranked_mined_caveats(all_tables(run), Settings())
    assert missing.headline == "1 of 1 positives are not among the documents"
    assert "'nowhere.md'" in missing.text
    assert (held.headline, held.figure) == ("Days of the log wait for your decision", "log-days")
    assert f"{FIRST + timedelta(10)} is held back" in held.text
    assert clicks is CLICK_LABELS


def test_an_embedded_ranker_is_told() -> None:
    assert weak_ranker(Settings()) == ""
    assert "not a language model" in weak_ranker(Settings.model_validate({"relevance": {"ranker": "judge"}}))
    learned = {"relevance": {"ranker": "judge"}, "judge": {"kind": "cross_encoder", "model": "owner/name"}}
    assert weak_ranker(Settings.model_validate(learned)) == ""
