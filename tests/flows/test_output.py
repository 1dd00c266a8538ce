"""Answers as JSON have the keys that docs/reference/json.md promises."""

import json

import pytest

from darklode.flows.config import load_settings
from darklode.flows.output import answering
from darklode.flows.runs import write_run
from darklode.pipeline.base.artifacts import Run
from darklode.schemas.run_inputs import BenchmarkInputs
from helpers.commands import Call
from helpers.finished_run import finished_run
from helpers.json_page import promised
from helpers.runs import SAMPLE


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (["status", "RUN"], {"run", "stages"}),
        (["list", "ROOT"], {"runs"}),
        (["pool", "RUN"], {"retrieval", "candidates", "found_by"}),
        (["diff", "RUN", "OTHER"], {"settings", "rows", "same_rows", "labels", "flipped"}),
        (["diff", "RUN", "RUN"], {"settings", "rows", "same_rows"}),
        (["judge", "stats", "RUN"], {"verdicts"}),
        (["judge", "stats"], {"verdicts"}),
        (["doctor"], {"version", "healthy", "findings"}),
    ],
)
def test_the_keys_are_those_of_the_page(
    call: Call, run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], needed: set[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", f"{run.store.url}-cache")
    finished_run(run.store.url)
    other = finished_run(f"{run.store.url}-other", ("acme",))
    for one in (run, other):
        write_run(one, BenchmarkInputs(docs=str(SAMPLE), queries=str(SAMPLE)), load_settings())
    places = {"RUN": run.store.url, "OTHER": other.store.url, "ROOT": run.store.url.rpartition("/")[0]}
    shown = call(*(places.get(word, word) for word in arguments), "--json")
    assert (shown.code, shown.err) == (0, "")
    found = {key for key in json.loads(shown.out) if not key.startswith("examples_")}
    command = " ".join(word for word in arguments if word not in places)
    assert needed <= found <= promised(command)


def test_a_judge_that_is_not_good_enough_is_told_as_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    def held() -> None:
        with answering(as_json=True) as answer:
            answer.fact("publishable", False)
            answer.fact("share", float("nan"), "a share")
            raise ValueError("held")

    with pytest.raises(ValueError, match="held"):
        held()
    assert json.loads(capsys.readouterr().out) == {"publishable": False, "share": None}
