"""The questions of docs/guides/mine.md: each query runs, and answers on a mined run."""

import re

import pytest

from darklode.pipeline.base.artifacts import Run, Stage
from darklode.pipeline.base.duckdb_views import query
from darklode.schemas.tables import TABLES
from helpers.runs import REPOSITORY, execute
from helpers.small_log import FIRST, Search, mine, random_log

PAGE = (REPOSITORY / "docs" / "guides" / "mine.md").read_text(encoding="utf-8")
QUERIES = dict(re.findall(r"### ([^\n]+)\n\n```sql\n(.+?)```", PAGE, re.DOTALL))


@pytest.fixture(scope="module")
def mined(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two tenants, a bot, and a judge that refutes every second pair."""
    run = Run(str(tmp_path_factory.mktemp("mined") / "run"))
    bot = [Search("default", "bot", 5, f"query {number}", ("d1", "d2")) for number in range(40)]
    log = random_log(3, days=4, searches=25)
    mine(run, {**log, FIRST: [*log[FIRST], *bot, Search("default", "s", 1, "alone", ("d8",), frozenset({1}))]})
    pairs = run.tables("mined_pairs").read("mined_pairs")
    verdicts = {name: pairs[name] for name in ("tenant", "query_id", "positive_id", "source")}
    verdicts |= {"relevant": [n % 2 == 0 for n in range(len(pairs))], "judge_id": ["judge"] * len(pairs)}
    verdicts["tiers"] = [["large"]] * len(pairs)
    rows = TABLES["mined_verdicts"].rows(verdicts)
    execute(run, Stage("verify", 1, (), ("mined_verdicts",)), lambda _, output: output.write("mined_verdicts", rows))
    return run


def test_the_page_has_its_questions() -> None:
    assert len(QUERIES) == PAGE.count("```sql") == 7


@pytest.mark.parametrize("title", QUERIES)
def test_a_question_of_the_page_is_answered(title: str, mined: Run) -> None:
    assert query(mined, QUERIES[title]).num_rows > 0


def test_the_answers_are_what_the_titles_say(mined: Run) -> None:
    by_source = query(mined, QUERIES["How many triplets did each source give, day by day?"]).to_pylist()
    assert sum(row["triplets"] for row in by_source) == mined.tables("triplets").rows("triplets")
    shares = query(mined, QUERIES["What share of each source does the judge confirm?"]).to_pylist()
    assert sum(row["looked_at"] for row in shares) == mined.tables("mined_pairs").rows("mined_pairs")
    bots = query(mined, QUERIES["Which searches were taken for bots?"]).to_pylist()
    assert [row["session"] for row in bots] == ["bot"]
    lacking = query(mined, QUERIES["Which queries have a positive but no hard negative?"]).to_pylist()
    assert "alone" in {row["query"] for row in lacking}
