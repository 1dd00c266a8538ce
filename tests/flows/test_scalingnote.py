"""The preset that follows the paper: its four sources, its page, and what it says where its model is missing."""

import re
from datetime import date
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from darklode.flows.config import load_settings
from darklode.flows.jobs.mine_logs import mine_logs
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import MissingPart
from helpers.commands import mine_without_prefect
from helpers.runs import REPOSITORY, SAMPLE

MINED = ("click", "relevance", "associate", "mining")
SOURCES = {"click_one_hop", "click_multi_hop", "relevance_one_hop", "relevance_multi_hop"}
FOUND = """
    WITH positives AS (SELECT DISTINCT tenant, query_id, positive_id FROM mined_pairs)
    SELECT (SELECT list(DISTINCT source) FROM triplets) AS sources,
           (SELECT count(*) FROM mined_pairs) AS pairs,
           (SELECT count(DISTINCT (tenant, query_id, positive_id, source)) FROM mined_pairs) AS keys,
           (SELECT count(*) FROM positives) AS positives,
           (SELECT count(*) FROM mined_pairs p JOIN positives o
              ON o.tenant = p.tenant AND o.query_id = p.query_id AND o.positive_id = p.negative_id) AS contradicted,
           (SELECT list(DISTINCT source) FROM mined_test) AS tested
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("sentence_transformers") is None, reason="the extra neural is not installed")
def test_all_four_sources_are_merged_and_lent_pairs_are_tested(tmp_path: Path) -> None:
    from helpers.tiny_bert import tiny_bert

    model = tiny_bert(tmp_path / "tiny", "BertForSequenceClassification", num_labels=1, initializer_range=1.0)
    given = [f"relevance.model={model}", "relevance.device=cpu", "relevance.top_k=2", "relevance.top_t=6"]
    given += ["mining.test_from=2026-03-04", "associate.th_rel=0.05", f"cache.root={tmp_path / 'cache'}"]
    settings = load_settings("scalingnote", assignments=given)
    mine_without_prefect(tmp_path / "run", settings, [date(2026, 3, day) for day in range(1, 9)])
    (found,) = Run(str(tmp_path / "run")).tables().sql(FOUND).to_pylist()
    assert set(found["sources"]) == SOURCES
    assert found["pairs"] == found["keys"] > found["positives"], "a pair is there once for each of its sources"
    assert found["contradicted"] == 0
    assert "click_multi_hop" in found["tested"]


def test_the_page_has_all_that_the_preset_sets_and_what_differs() -> None:
    page = (REPOSITORY / "docs" / "guides" / "mine.md").read_text(encoding="utf-8")
    section = page.split("## ScalingNote's training data\n")[1].split("\n## ")[0]
    table, differences = section.split("### What still differs from the paper\n")
    preset = yaml.safe_load((REPOSITORY / "flows" / "presets" / "scalingnote.yaml").read_text(encoding="utf-8"))
    named = {f"{part}.{name}" for part, values in preset.items() for name in values if part in MINED}
    assert named == set(re.findall(r"`((?:click|relevance|associate|mining)\.\w+)`", table)) - {
        "relevance.top_k",
        "relevance.top_t",
    }
    for difference in ("lender's", "without a negative", "ranker's positive", "9:1"):
        assert difference in differences


def test_a_model_that_is_not_there_is_told_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(MissingPart, match=r"bge-reranker-v2-m3.*--set relevance\.model=NAME"):
        mine_logs(str(SAMPLE), str(SAMPLE), str(tmp_path / "run"), preset="scalingnote")
    assert not (tmp_path / "run").exists()
