"""The effort is chosen on one half; drift is told from noise."""

from pathlib import Path
from typing import Any

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.serve.vectors.recall import advice, held_out
from helpers.indexed import made
from helpers.runs import read


def test_the_least_effort_that_reaches_the_target_on_its_half_is_in_use(indexed: Path, tmp_path: Path) -> None:
    rows = [row for row in read(Run(str(indexed / "index")), "index_recall") if row["depth"] == 100]
    chosen_on = {row["effort"]: row["recall"] for row in rows if row["half"] == "chosen on"}
    (chosen,) = {row["effort"] for row in rows if row["chosen"]}
    assert chosen == min(effort for effort, recall in chosen_on.items() if recall >= 0.9)  # type: ignore[operator]
    assert chosen == max(chosen_on)
    assert [row["queries"] for row in rows] == [30] * len(rows)


def part(recall: float, error: float) -> dict[str, Any]:
    return {"base": {100: {"recall": recall, "error": error}}}


def test_advice_is_given_where_recall_fell_beyond_noise() -> None:
    assert advice(part(0.95, 0.001), part(0.94, 0.001), 0.0, None) == []
    assert advice(part(0.95, 0.05), part(0.90, 0.05), 0.0, 1.2) == []
    (said,) = advice(part(0.95, 0.001), part(0.92, 0.001), 0.0, None)
    assert said == "recall@100 of base queries fell from 0.950 to 0.920: fit anew"
    assert len(advice(part(0.95, 0.001), part(0.95, 0.001), 0.3, 2.0)) == 2


def test_without_stored_vectors_codes_alone_decide(indexed: Path, tmp_path: Path) -> None:
    from helpers.adapted import model_in

    model_in(tmp_path)
    folder = made(tmp_path, str(indexed / "vectors.parquet"), rerank=1)
    rows = Run(str(folder)).tables("index_recall").read("index_recall")
    alone = held_out(rows)["base"][100]["recall"]
    better = held_out(Run(str(indexed / "index")).tables("index_recall").read("index_recall"))["base"][100]["recall"]
    assert not (folder / "stored").exists()
    assert 0.3 < alone < better
