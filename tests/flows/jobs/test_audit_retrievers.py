import json
import re
from pathlib import Path

import pytest
import yaml

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
