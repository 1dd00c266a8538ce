"""A log of User Behavior Insights through `darklode mine`: without its documents, and with texts made up for them."""

import json
import re
from pathlib import Path

import pytest

from darklode.flows.config import load_settings
from darklode.pipeline.base.artifacts import Run
from helpers.commands import Environment, built, mine_command, mine_without_prefect
from helpers.runs import SHARED

UBI = SHARED / "collections" / "ubi-esci-sample"

pytestmark = pytest.mark.skipif(not UBI.is_dir(), reason=f"{UBI} is not there")

CLICKED = """
    SELECT count(DISTINCT (query_id, doc_id)) AS pairs, count(DISTINCT doc_id) AS docs FROM impressions WHERE clicked
"""


@pytest.mark.slow
@pytest.mark.server
def test_documents_without_the_logs_ids_are_said_to_be_the_wrong_ones(served: Environment, tmp_path: Path) -> None:
    out = tmp_path / "run"
    printed = built(mine_command(out, "--set", "relevance.ranker=none", logs=UBI), served)
    found = re.search(
        r"([\d,]+) of \1 pairs have no triplet because their positives are not among the documents, e\.g\. 'B0\w+'\. "
        r"The log's ids must equal the documents' doc_id "
        r"\(ingest\.documents\.columns\.doc_id, logs\.columns\.doc_id\)\.$",
        printed,
        re.M,
    )
    assert found, printed
    tables = Run(str(out)).tables()
    pairs = tables.rows("mined_pairs")
    assert int(found[1].replace(",", "")) == pairs >= tables.sql(CLICKED)["pairs"][0].as_py() > 100
    assert tables.rows("triplets") == 0
    assert f"**Warning:** {found[1]} of {found[1]} pairs have no triplet" in (out / "README.md").read_text()


@pytest.mark.slow
def test_documents_with_the_logs_ids_give_triplets(tmp_path: Path) -> None:
    events = [json.loads(line) for line in (UBI / "ubi_events.jsonl").read_text().splitlines()]
    objects = [(event["event_attributes"] or {}).get("object") for event in events]
    ids = sorted({shown["object_id"] for shown in objects if shown and "object_id" in shown})
    docs = tmp_path / "docs.jsonl"
    rows = [{"doc_id": id_, "title": f"Article {id_}", "text": f"It lies on shelf {n}."} for n, id_ in enumerate(ids)]
    docs.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    mine_without_prefect(tmp_path / "run", load_settings(), logs=UBI, docs=docs)
    tables = Run(str(tmp_path / "run")).tables()
    assert tables.rows("triplets") == tables.rows("mined_pairs") >= tables.sql(CLICKED)["pairs"][0].as_py() > 100
    triplets = tables.read("triplets").to_pylist()
    assert all(row["positive"].startswith(f"Article {row['positive_id']}\n") for row in triplets)
    assert all(row["negative_ids"] != [row["positive_id"]] for row in triplets)
    assert len({row["query"] for row in triplets} & {(event.get("user_query") or "").lower() for event in events}) > 20
