"""A night without news, with log and run on S3: how often it asks the server."""

from collections import Counter
from datetime import date

import pyarrow.fs as pafs
import pytest

from darklode.flows.executor import DryRun, InProcess, executing
from darklode.flows.jobs.mine_logs import mine_logs
from darklode.flows.prefect.progress import SilentReporter, reporting
from darklode.pipeline.base.artifacts.tables import _DAY_CACHE
from helpers.runs import SAMPLE
from helpers.s3_server import asked, enter, filesystem, s3_server

MOST = 50


def night(executor: InProcess) -> Counter[tuple[str, str]]:
    """Mine what there is; the requests to the server, by kind and key."""
    with asked() as seen, reporting(SilentReporter()), executing(executor):
        mine_logs(
            "s3://quiet/log",
            str(SAMPLE),
            "s3://quiet/run",
            first=date(2026, 3, 1),
            last=date(2026, 3, 4),
            settings={"relevance": {"ranker": "none"}},
        )
    return Counter(seen)


@pytest.mark.slow
def test_a_night_without_news_asks_at_most_fifty_times(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server("quiet") as environment:
        enter(monkeypatch, environment)
        files = filesystem(environment)
        pafs.copy_files(str(SAMPLE / "impressions"), "quiet/log", pafs.LocalFileSystem(), files)
        first = night(InProcess())
        assert first.total() > MOST, "nothing was counted"
        tables = pafs.FileSelector("quiet/run/tables", recursive=True)
        written = {info.path: info.mtime for info in files.get_file_info(tables)}
        _DAY_CACHE.clear()
        quiet = night(DryRun())
        assert quiet.total() <= MOST, quiet
        assert {info.path: info.mtime for info in files.get_file_info(tables)} == written

        files.delete_file("quiet/run/report.html")
        assert night(DryRun())["PUT", "/quiet/run/report.html"] == 1, "a page that is gone is made again"
