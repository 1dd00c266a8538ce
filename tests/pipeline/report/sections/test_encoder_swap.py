"""A swap on the page: how much stays, and what goes and comes where most changes."""

from darklode.pipeline.base.artifacts import Run
from helpers.adapted import adapted_tables
from helpers.report_runs import figure, figures, parsed, rendered, rows_of, text_of


def test_queries_are_counted_by_what_stays_and_the_changed_ones_shown(run: Run) -> None:
    root = parsed(rendered(adapted_tables(run)))
    assert [(row["overlap"], row["queries"], row["searches"]) for row in rows_of(root, "swap-overlap")] == [
        ("1", "1", "9"),
        ("10", "1", "2"),
    ]
    (query,) = figure(root, "swap-queries").iter("li")
    assert text_of(query).startswith("<b>how 1 of 2 unchanged9 searches")
    assert [text_of(one) for one in query.iter("div") if "quote" in one.get("class", "")] == ["removedA", "addedC"]


def test_without_a_swap_there_is_no_section(run: Run) -> None:
    adapted_tables(run).store.delete("manifests/given_encoder_swap.json")
    assert not [key for key in figures(parsed(rendered(run))) if key.startswith("swap")]
