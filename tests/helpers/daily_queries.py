"""A log's queries, a part for each date."""

from datetime import date, timedelta
from typing import Any

from darklode.pipeline.base.artifacts import Run, Stage
from darklode.schemas.tables import TABLES


def give(run: Run, *days: list[str]) -> None:
    """Give a run `log_queries`: each day's texts, which are their ids, too."""

    def work(_tables: Any, output: Any) -> None:
        for number, texts in enumerate(days):
            dates = [date(2026, 3, 1) + timedelta(days=number)] * len(texts)
            columns = {"tenant": ["t"] * len(texts), "date": dates}
            named = dict.fromkeys(("query_id", "text", "normal_form"), texts)
            output.write("log_queries", TABLES["log_queries"].rows(columns | named))

    stage = Stage("given", 1, (), ("log_queries",))
    run.execute(run.plan(stage, {"days": len(days)}), work)
