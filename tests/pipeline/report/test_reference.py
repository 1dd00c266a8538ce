import re

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import query
from darklode.pipeline.export.formats import EXPORTS
from darklode.pipeline.report.funnel import FUNNEL_STAGE, funnel
from darklode.pipeline.report.reference import PAGES, settings_markdown, tables_markdown
from darklode.schemas.pooling import RETRIEVERS
from darklode.schemas.setting_names import known_keys
from darklode.schemas.tables import TABLES
from helpers.finished_run import finished_run
from helpers.runs import REPOSITORY

DATA = (REPOSITORY / "docs" / "reference" / "run-folder.md").read_text(encoding="utf-8")
QUERIES = dict(re.findall(r"### (.+?)\n\n```sql\n(.+?)```", DATA, re.DOTALL))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = finished_run(str(tmp_path_factory.mktemp("reference") / "run"))
    run.execute(run.plan(FUNNEL_STAGE, {}), lambda _tables, output: funnel(run, output, ()))
    return run


@pytest.mark.parametrize("page", PAGES)
def test_the_reference_is_that_of_the_schemas(page: str) -> None:
    written = (REPOSITORY / "docs" / page).read_text(encoding="utf-8")
    assert written == PAGES[page](), "run: python -m darklode.pipeline.report.reference"


def test_every_setting_is_described() -> None:
    page = settings_markdown()
    rows = re.findall(r"^\| `([\w.]+)` \| (.+?) \| (.*) \|$", page, re.MULTILINE)
    assert all(description for _, _, description in rows)
    assert ("pool.depth", "`60`", "Candidates from each retriever (DevRev-Search, 3.3: 60).") in rows
    named = set(re.findall(r"`([\w.]+)`", page))
    alike = {f"{equal}.{key.rpartition('.')[2]}" for equal in ("retrievers.NAME",) for key in named}
    columns = {key for key in known_keys() if f"`{key.rpartition('.')[0]}.COLUMN`" in page}
    assert set(known_keys()) <= named | alike | columns


def test_settings_that_sections_share_have_one_row() -> None:
    page = settings_markdown()
    assert (
        "| `max_steps` | adapt: `null`; distill: `3000`; dual: `2000`; reranker: `1000` | Maximum training steps."
        in page
    )
    assert "Settings as in `bm25`." in page
    assert page.count("\n| `") <= 213


def _anchor(heading: str) -> str:
    return re.sub(r"[^a-z -]", "", heading.lower()).replace(" ", "-")


def test_settings_that_a_guide_describes_are_rows_of_it() -> None:
    external = {name: kind for name in RETRIEVERS.own_kinds() if (kind := RETRIEVERS.load(name)).GUIDE}
    assert "run_file" in external
    for kind in external.values():
        page, _, anchor = kind.GUIDE.partition("#")
        text = (REPOSITORY / "docs" / "reference" / page).resolve().read_text(encoding="utf-8")
        parts = (part.partition("\n") for part in text.split("\n## "))
        (section,) = (part for heading, _, part in parts if _anchor(heading) == anchor)
        rows = {
            name
            for cell in re.findall(r"^\| (`.+?) \|", section, re.MULTILINE)
            for name in re.findall(r"`(\w+)`", cell)
        }
        assert set(kind.model_fields) - {"kind"} <= rows


def test_every_field_is_described() -> None:
    page = tables_markdown()
    assert "| `relevant` | bool? | label; null if the reply could not be parsed |" in page
    assert "| `negatives` | list of string | texts of the hard negatives, same order |" in page
    assert "Key: none, rows have no identity." in page
    assert page.count("\n## ") == len(TABLES)
    assert "Columns as in [verdicts](#verdicts)." in page
    schemas = {table.schema.to_string(): table.schema for table in TABLES.values()}
    assert page.count("\n| `") == sum(map(len, schemas.values()))


def test_every_table_has_its_key() -> None:
    written = (REPOSITORY / "docs" / "reference" / "tables.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (\w+)\n\n(.*)$", written, re.MULTILINE))
    assert list(sections) == list(TABLES)
    for table in TABLES.values():
        key = ", ".join(f"`{name}`" for name in table.key) or "none"
        assert f"Key: {key}" in sections[table.name]


def test_the_page_of_exports_names_every_format() -> None:
    page = (REPOSITORY / "docs" / "guides" / "export.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE) == EXPORTS.own_kinds()


def test_the_page_has_five_queries() -> None:
    assert len(QUERIES) == 5
    assert DATA.count("```sql") == 5


@pytest.mark.parametrize("title", QUERIES)
def test_a_query_of_the_page_answers(title: str, finished: Run) -> None:
    assert query(finished, QUERIES[title]).num_rows > 0


def test_the_queries_say_what_they_promise(finished: Run) -> None:
    answers = [query(finished, sql).to_pylist() for sql in QUERIES.values()]
    assert answers[1] == [
        {"tenant": "acme", "text": 'say "hello"', "judged": 4},
        {"tenant": "b/i rch", "text": 'say "hello"', "judged": 4},
    ]
    assert answers[2] == [{"retriever": "../dense one", "positives": 6}]
    assert answers[4][0] == {"tenant": "acme", "doc_id": "guide/My page.md", "queries": 3}
