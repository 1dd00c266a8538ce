"""What all flows do with a stage, and what ends each of them.

The report lies on disk, and its first figures are shown by the executor: one list of figures makes both.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version

from darklode.flows.executor import executor
from darklode.flows.runs import note, read_inputs, read_notes
from darklode.pipeline.base.artifacts import Manifest, Run, Step, call, key_of
from darklode.pipeline.base.duckdb_views import all_tables, views_sql
from darklode.pipeline.report.funnel import FUNNEL_STAGE, funnel
from darklode.schemas.settings import Settings

RETRY_SECONDS = (5.0, 30.0)  # before each new try
VIEWS, CARD, REPORT = "views.sql", "README.md", "report.html"
PAGES, PAGES_FILES = "pages", (VIEWS, CARD, REPORT)
"""What is noted of the pages beside the tables: what they were made from."""


def run_step(run: Run, step: Step, delays: Sequence[float] = RETRY_SECONDS) -> Manifest:
    """Run a step of the current flow unless its result stands.

    Args:
        run: the flow's run.
        step: one of its stages.
        delays: seconds before each new try of what a network file system or S3 fails at.
    """
    executor().run(run, step, delays)
    manifest = run.manifest(step.stage)
    assert manifest is not None
    return manifest


def stages(steps: Iterable[Step]) -> dict[str, bool]:
    """The stages of a job in data order, the funnel last, and whether the settings ask for each."""
    return {step.stage.name: step.enabled for step in steps} | {FUNNEL_STAGE.name: True}


def finish(run: Run, settings: Settings, steps: Iterable[Step]) -> None:
    """Write what lies beside the tables: the funnel, the views for DuckDB, the dataset card and the report.

    Pages that were made from the very same stand, unless somebody follows the flow from elsewhere and is to be shown.

    Args:
        run: whose stages are complete.
        settings: in force.
        steps: the job that made it.
    """
    from darklode.pipeline.report.card import card, mined_card
    from darklode.pipeline.report.caveats import caveats

    order = stages(steps)
    run_step(run, funnel_step(run, list(order)))
    made = _made_from(run, settings, order)
    if (
        not executor().shows_progress
        and read_notes(run).get(PAGES) == made
        and set(PAGES_FILES) <= set(run.store.root_names())
    ):
        return
    run.store.write(VIEWS, views_sql(run).encode())
    mined = read_inputs(run).is_mined
    if mined:
        text = mined_card(run, settings)
    else:
        with all_tables(run).open_local() as tables:
            text = card(run, settings, caveats(tables, settings))
    run.store.write(CARD, text.encode())
    publish_report(run, settings, order)
    note(run, {PAGES: made})


def _made_from(run: Run, settings: Settings, order: Mapping[str, bool]) -> str:
    """Identifies all that the pages are made from: what the stages recorded, the settings and the code."""
    records = {name: asdict(manifest) for name, manifest in run.manifests().items()}
    return key_of(records, settings.model_dump(mode="json"), list(order.items()), version("darklode"))


def funnel_step(run: Run, order: Sequence[str]) -> Step:
    """Gather what the complete stages counted, in the order of the job."""
    counted = {name: [asdict(step) for step in manifest.funnel] for name, manifest in run.manifests().items()}
    counted.pop(FUNNEL_STAGE.name, None)
    return Step(FUNNEL_STAGE, call(funnel, order), lambda: {"the other stages": key_of(counted)}, source=run)


def publish_report(run: Run, settings: Settings, order: Mapping[str, bool]) -> None:
    """Write the run's report, and show the part of it that an operator reads."""
    from darklode.pipeline.report.operator import operator_page
    from darklode.pipeline.report.page import FILE, filled_sections, page
    from darklode.pipeline.report.source import open_source

    with open_source(run, settings, order) as source:
        sections = list(filled_sections(source))
        run.store.write(FILE, page(source, sections))
        executor().show(run, lambda: operator_page(run.store.url, source, sections))
