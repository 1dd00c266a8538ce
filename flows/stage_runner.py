"""Running the steps of a job, and writing what lies beside the tables: views, dataset card and report."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version

from darklode.flows.executor import executor
from darklode.flows.jobs.registry import job_of_kind
from darklode.flows.prefect.progress import reporter
from darklode.flows.report import write_report
from darklode.flows.runs import read_inputs, read_settings, update_inputs
from darklode.pipeline.base.artifacts import Manifest, Run, Step, call, key_of
from darklode.pipeline.base.duckdb_views import all_tables, views_sql
from darklode.pipeline.report.funnel import FUNNEL_STAGE, funnel
from darklode.schemas.settings import Settings

RETRY_SECONDS = (5.0, 30.0)  # before each retry
VIEWS, CARD, REPORT = "views.sql", "README.md", "report.html"


def run_step(run: Run, step: Step, delays: Sequence[float] = RETRY_SECONDS) -> Manifest:
    """Run a step of the current flow unless it is up to date.

    Args:
        run: the flow's run.
        step: one of its steps.
        delays: seconds before each retry after a failure of a network file system or S3.
    """
    executor().run(run, step, delays)
    manifest = run.manifest(step.stage)
    assert manifest is not None
    return manifest


def report_leakage(run: Run) -> None:
    """Report how much of the validation split is also in training, by measure."""
    rows = run.tables("split_leakage").read("split_leakage").to_pylist()
    shares = [f"{row['shared']:,} of {row['validation']:,} {row['measure']}" for row in rows if row["validation"]]
    if shares:
        reporter().say(f"validation shares with training: {'; '.join(shares)}")


def finish(run: Run, *, report: bool = True) -> None:
    """Write funnel, DuckDB views, dataset card and report of a run whose stages are complete.

    Pages made from the same tables, settings and code are not written again, unless a Prefect server shows them.

    Args:
        run: the run.
        report: write the report, and the figures in the card of a mined run; otherwise a report of an earlier state of
            the run is deleted. `write_pages` adds both later.
    """
    inputs, settings = read_inputs(run), read_settings(run)
    order = job_of_kind(inputs.kind).stages(run, inputs, settings)
    run_step(run, funnel_step(run, list(order)))
    fingerprint = _page_fingerprint(run, settings, order)
    is_current, names = getattr(inputs, "pages", None) == fingerprint, set(run.store.root_names())
    if is_current and {VIEWS, CARD, *([REPORT] if report else [])} <= names and not executor().shows_progress:
        return
    from darklode.pipeline.report.card import card, mined_card
    from darklode.pipeline.report.caveats import caveats

    run.store.write(VIEWS, views_sql(run).encode())
    if inputs.kind == "mined":
        text = mined_card(run, settings, with_tables=report or executor().shows_progress)
    else:
        with all_tables(run).open_local() as tables:
            text = card(run, settings, caveats(tables, settings))
    run.store.write(CARD, text.encode())
    if report or executor().shows_progress:
        write_report(run, show_summary=True)
    elif not is_current:
        run.store.delete(REPORT)
    update_inputs(run, pages=fingerprint)


def write_pages(run: Run) -> str:
    """Write the report of a folder, complete or not, and the full card of a mined run; returns the report's path.

    Raises:
        ArtifactError: as for `write_report`.
    """
    path = write_report(run)
    if read_inputs(run).kind == "mined":
        from darklode.pipeline.report.card import mined_card

        run.store.write(CARD, mined_card(run, read_settings(run)).encode())
    return path


def _page_fingerprint(run: Run, settings: Settings, order: Mapping[str, bool]) -> str:
    """Identifies what the pages are made from: manifests, settings and the code's version."""
    return key_of(run.manifests_hash(), settings.model_dump(mode="json"), list(order.items()), version("darklode"))


def publish(run: Run, page: bytes | None = None, file: str = CARD) -> None:
    """Write the DuckDB views of a folder, and its Markdown page if it has one; operators see the page, too."""
    run.store.write(VIEWS, views_sql(run).encode())
    if page is not None:
        run.store.write(file, page)
        executor().show(run, page.decode)


def funnel_step(run: Run, order: Sequence[str]) -> Step:
    """The step that gathers the row counts of the complete stages, in the order of the job."""
    counts = {name: [asdict(step) for step in manifest.funnel] for name, manifest in run.manifests().items()}
    counts.pop(FUNNEL_STAGE.name, None)
    return Step(FUNNEL_STAGE, call(funnel, order), lambda: {"the other stages": key_of(counts)}, source=run)
