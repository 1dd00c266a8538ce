"""The stages that say how important a query's terms are, with the planner that the settings name."""

from collections.abc import Iterator
from datetime import date

from flows.steps import Step
from pipeline.artifacts import Output, Run, digest
from pipeline.planners.fit import FIT_PLANNER, fit_planner
from pipeline.planners.llm_planner import LlmPlanner
from pipeline.planners.log_planner import LogPlanner
from pipeline.planners.plan import PLAN_QUERIES, plan_queries
from pipeline.planners.port import Planner
from pipeline.planners.table_planner import TablePlanner
from schemas.mining import PlannerSettings


def planning(run: Run, settings: PlannerSettings, through: date | None, settled: str) -> Iterator[Step]:
    """Learn the planner where there is something to learn, and ask it about the log's queries.

    Args:
        run: holds documents, click evidence and the log's queries.
        settings: which planner.
        through: the last day from which it learns; None: from the documents alone.
        settled: names the days up to that one: a late event in them teaches it anew.
    """
    if settings.kind == "log":
        yield Step(
            FIT_PLANNER,
            {},
            lambda _, output: _fit(run, output, through),
            lambda: {"the settled days": settled},
        )
    planner = planner_of(run, settings)
    yield Step(
        PLAN_QUERIES,
        {"planner": planner.version},
        lambda tables, output: plan_queries(tables, output, planner=planner),
    )


def planner_of(run: Run, settings: PlannerSettings) -> Planner:
    """The planner that the settings name."""
    if settings.kind == "llm":
        return LlmPlanner(settings)
    if settings.kind == "table":
        assert settings.table is not None  # the settings say so
        return TablePlanner(settings.table)
    learned = run.tables("planner_terms")
    return LogPlanner(learned.read("planner_terms"), digest(learned.parts("planner_terms")))


def _fit(run: Run, output: Output, through: date | None) -> None:
    fit_planner(run.tables("documents", "log_queries", "click_evidence"), output, through=through)
    output.facts |= {"version": digest(output.parts["planner_terms"]), "through": through and through.isoformat()}
