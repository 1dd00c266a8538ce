"""darklode pool: what retrievers gave, on a small run."""

import re

import pytest

from darklode.pipeline.base.artifacts import Run
from helpers.commands import Call, one_line
from helpers.finished_run import finished_run


def test_what_each_retriever_gave_is_shown(call: Call, run: Run) -> None:
    finished_run(run.store.url)
    shown = call("pool", run.store.url)
    assert (shown.code, shown.err) == (0, "")
    for title in ("Retrieval", "Candidates per query", "Candidates by number of retrievers that found them"):
        assert re.search(rf"^{title}$", shown.out, re.M)
    _, sizes, _ = re.split(r"^Candidates (?:per query|by number of retrievers that found them)$", shown.out, flags=re.M)
    assert re.findall(r"\d+", sizes)[0] == str(run.tables("queries").rows("queries"))


@pytest.mark.parametrize("arguments", [[], ["--sett"]])
def test_no_run_no_pool(call: Call, arguments: list[str], tmp_path: object) -> None:
    shown = call("pool", *arguments)
    assert shown.code == 2
    one_line(call("pool", tmp_path), "holds no run")
