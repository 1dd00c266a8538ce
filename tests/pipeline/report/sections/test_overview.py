"""The funnel on the page: bars in proportion, units that change, and reasons that are too many to name."""

from darklode.pipeline.base.artifacts import FunnelStep, Output, Run, Stage, Tables
from darklode.pipeline.report.sections.overview import MAX_REASONS
from helpers.finished_run import finished_run
from helpers.report_runs import figure, parsed, rendered, rows_of, shown, text_of
from helpers.runs import read


def counted(run: Run, stage: str, *steps: FunnelStep) -> None:
    """A complete stage that counted these steps."""

    def work(_tables: Tables, output: Output) -> None:
        for step in steps:
            output.count(step)

    run.execute(run.plan(Stage(stage, 1, (), ()), {}), work)


def test_steps_that_count_the_same_share_a_scale(run: Run) -> None:
    counted(
        run,
        "clean",
        FunnelStep("noise", "queries", 200, "queries", 150, {"no letter": 50}),
        FunnelStep("length", "queries", 150, "queries", 50, {"too long": 70, "too short": 30}),
    )
    (drawn,) = shown(run)["funnel"].drawings
    bars = [[(bar.start, bar.length, bar.tone) for bar in row.marks] for row in drawn.rows]  # type: ignore[union-attr]
    assert bars == [[(0, 75, "a"), (75, 25, "faint")], [(0, 25, "a"), (25, 50, "faint")]]
    assert [(row.value, row.note) for row in drawn.rows] == [  # type: ignore[union-attr]
        ("200 → 150 queries", "no letter 50"),
        ("150 → 50 queries", "too long 70 · too short 30"),
    ]


def test_input_rows_of_documents_and_of_queries_have_a_scale_each(run: Run) -> None:
    counted(
        run,
        "ingest_documents",
        FunnelStep("ingest.documents", "rows", 10_000, "rows", 10_000, {}),
        FunnelStep("ingest.queries", "rows", 100, "rows", 50, {"empty": 50}),
    )
    (drawn,) = shown(run)["funnel"].drawings
    lengths = [[bar.length for bar in row.marks] for row in drawn.rows]  # type: ignore[union-attr]
    assert lengths == [[100], [50, 50]]


def test_a_step_that_changes_the_unit_has_no_bar(run: Run) -> None:
    counted(run, "chunk", FunnelStep("chunk", "documents", 2, "chunks", 9))
    (drawn,) = shown(run)["funnel"].drawings
    (row,) = drawn.rows  # type: ignore[union-attr]
    assert (list(row.marks), row.note) == ([], "2 documents → 9 chunks")


def test_the_commonest_reasons_are_named_and_the_others_counted(run: Run) -> None:
    dropped = {f"reason {number}": number for number in range(1, MAX_REASONS + 3)}
    counted(run, "clean", FunnelStep("noise", "queries", sum(dropped.values()), "queries", 0, dropped))
    (drawn,) = shown(run)["funnel"].drawings
    named = [f"reason {number} {number}" for number in range(MAX_REASONS + 2, 2, -1)]
    assert drawn.rows[0].note == " · ".join([*named, "2 more"])  # type: ignore[union-attr]


def test_sizes_are_those_of_the_tables_by_tenant(run: Run) -> None:
    root = parsed(rendered(finished_run(run.store.url)))
    for row in rows_of(root, "sizes"):
        own = [one for one in read(run, "documents") if one["tenant"] == row["tenant"]]
        assert row["documents"] == str(len(own))
    assert "Number of rows per table" in text_of(figure(root, "sizes"))
