import csv
import json
import re
from pathlib import Path

import pytest
import yaml

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from helpers.commands import CONTROL, DARKLODE, STAGES, Call, Environment, run_inside, tables_of
from helpers.json_page import promised

pytestmark = pytest.mark.server


@pytest.mark.slow
def test_an_audit_with_other_settings(call: Call, copied: Path, served: Environment) -> None:
    before = tables_of(copied)
    done = run_inside([DARKLODE, "audit", str(copied), "--set", "evaluate.n_resamples=50"], served)
    assert (done.code, done.err) == (0, "")
    assert "audit: n_resamples: 1000 → 50\n✓ audit " in done.out
    assert re.search(r"^bm25 +[01]\.\d{3} ", done.out, re.M)
    assert not CONTROL.search(done.out)
    after = tables_of(copied)
    assert {name.split("/")[0] for name in before.keys() ^ after.keys()} <= {"audit_retrievers"}
    assert yaml.safe_load(call("status", copied, "--settings").out)["evaluate"]["n_resamples"] == 50
    assert call("status", copied).out.count(" up to date ") == len(STAGES)
    told = json.loads(run_inside([DARKLODE, "audit", str(copied), "--json"], served).out)
    assert {"audit"} <= told.keys() <= promised("audit")
    assert {row["retriever"] for row in told["audit"]} >= {"bm25", "ppmi"}


@pytest.mark.slow
def test_audit_and_evaluation_are_corrected_by_answers_that_nobody_validated(
    copied: Path, served: Environment, tmp_path: Path
) -> None:
    sheet = tmp_path / "sheet.csv"
    done = run_inside([DARKLODE, "review", str(copied), "--export-sheet", str(sheet), "--reviewer", "ann"], served)
    assert done.code == 0, done
    with sheet.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    for half in (rows[::2], rows):
        for row in half:
            row["relevance"] = "1"
        with sheet.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
        done = run_inside([DARKLODE, "review", str(copied), "--import-sheet", str(sheet), "--reviewer", "ann"], served)
        assert done.code == 0, done
        for command in ("audit", "evaluate"):
            assert run_inside([DARKLODE, command, str(copied)], served).code == 0
        tables = all_tables(Run(str(copied)))
        assert len(tables.read("reviews")) == len(half)
        assert tables.rows("corrected_audit") > 0
        assert tables.rows("corrected_evaluation") > 0
