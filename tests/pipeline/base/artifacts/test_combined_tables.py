"""Tables of two folders as one: each is read from the folder that has it."""

from pathlib import Path

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.artifacts.combined_tables import CombinedTables
from helpers.runs import written


def test_sql_views_batches_and_contents_come_from_the_folder_that_has_the_table(tmp_path: Path) -> None:
    own, other = Run(str(tmp_path / "own")), Run(str(tmp_path / "other"))
    for run, name in ((own, "own"), (other, "other")):
        written(run, "judgments", [{"tenant": "t", "query_id": "q", "item_id": name}])
    written(own, "queries", [{"tenant": "t", "query_id": "q", "text": "a query"}])
    tables = CombinedTables(own.tables(), other.tables())
    sql = "SELECT text, item_id FROM queries JOIN judgments USING (tenant, query_id)"
    assert tables.sql(sql).to_pylist() == [{"text": "a query", "item_id": "other"}]
    assert [batch["item_id"].to_pylist() for batch in tables.batches("judgments", ["item_id"])] == [["other"]]
    assert tables.read("queries", ["text"]).to_pylist() == [{"text": "a query"}]
    assert tables.content("judgments") == other.tables().content("judgments") != own.tables().content("judgments")
    assert tables.content("queries") == own.tables().content("queries")
