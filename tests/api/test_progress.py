"""Progress of a job in a notebook, a terminal and a script."""

import io
import sys

import pyarrow as pa
import pytest

from darklode.api.progress import BarReporter


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run_stage(reporter: BarReporter) -> None:
    reporter.start("search", "it is new")
    reporter.progress("search", 1, 4, "bm25")
    reporter.progress("search", 4, 4, "<i>")
    reporter.say("two queries were left out")
    reporter.table("Estimate", pa.table({"a": [1]}))
    reporter.end()
    reporter.end()


@pytest.mark.parametrize("kernel", [False, True])
def test_a_terminal_or_notebook_gets_a_bar(monkeypatch: pytest.MonkeyPatch, kernel: bool) -> None:
    stream, said = io.StringIO() if kernel else Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "stdout", said)
    if kernel:
        monkeypatch.setitem(sys.modules, "ipykernel.kernelapp", sys)
    reporter = BarReporter(silent=False)
    run_stage(reporter)
    assert "search: " in stream.getvalue()
    assert "/4" in stream.getvalue()
    assert said.getvalue() == "two queries were left out\n"
    assert reporter.sentences == ["two queries were left out"]
    assert list(reporter.tables) == ["Estimate"]


@pytest.mark.parametrize(("silent", "stream"), [(True, Terminal()), (False, io.StringIO())])
def test_silence_shows_nothing_and_keeps_everything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], silent: bool, stream: io.StringIO
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.delitem(sys.modules, "ipykernel.kernelapp", raising=False)
    reporter = BarReporter(silent=silent)
    run_stage(reporter)
    assert (stream.getvalue(), capsys.readouterr().out) == ("", "")
    assert (reporter.sentences, list(reporter.tables)) == (["two queries were left out"], ["Estimate"])
