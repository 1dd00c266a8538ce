"""FlagEmbedding's training rows: one JSON line per query with its positives and negatives."""

from pathlib import Path

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.export.grouped_triplets import group_triplets, n_without_negative
from darklode.pipeline.export.kinds import Format
from darklode.pipeline.export.writers import JSON_LINES, any_row, append, require_negatives

PROMPT = "Represent this sentence for searching relevant passages: "
"""BGE's query instruction; the trainer uses it only if `--query_instruction_for_retrieval` is given."""

ROWS_SQL = f"""
    SELECT query,
           list_transform(positives, lambda p: p.text) AS pos,
           list_transform(negatives, lambda n: n.text) AS neg,
           {{scores}} '{PROMPT}' AS prompt, 'normal' AS type
    FROM grouped_queries WHERE len(negatives) > 0 ORDER BY tenant, query_id
"""

SCORE_COLUMNS_SQL = """
    list_transform(positives, lambda p: p.score) AS pos_scores,
    list_transform(negatives, lambda n: n.score) AS neg_scores,
"""

MISSING_SCORES_SQL = """
    FROM triplets WHERE positive_score IS NULL OR len(list_filter(negative_scores, lambda s: s IS NULL)) > 0
"""

README = """\
# Training rows for FlagEmbedding

One row per query: `--train_data train.jsonl`. {n_omitted} queries have no negative and are omitted.
{scores}
`prompt` takes the place of `--query_instruction_for_retrieval` where that is given.
"""

SCORES_NOTE = """\
`pos_scores` and `neg_scores` are the retrieval's or the ranker's; `--knowledge_distillation` does better with a
reranker's.
"""

NO_SCORES_NOTE = "There are no `pos_scores` and `neg_scores`: clicks give none.\n"


def flagembedding(tables: Tables, folder: Path) -> None:
    """Write `<split>.jsonl` {query, pos, neg, pos_scores, neg_scores, prompt, type} and a README.md.

    The README counts the queries that are omitted because they have no negative. Where a score is missing, no row has
    scores: a column that is null in one part of a file and a number in another cannot be loaded. Source: the rows that
    `FlagEmbedding.abc.finetune.embedder.AbsDataset` reads.

    Raises:
        ExportError: no triplet has a negative.
    """
    require_negatives(tables)
    n_omitted = 0
    with tables.connect() as connection:
        scored = not any_row(connection, MISSING_SCORES_SQL)
        for split in group_triplets(connection):
            append(
                connection,
                ROWS_SQL.format(scores=SCORE_COLUMNS_SQL if scored else ""),
                folder / f"{split}.jsonl",
                JSON_LINES,
            )
            n_omitted += n_without_negative(connection)
    text = README.format(n_omitted=n_omitted, scores=SCORES_NOTE if scored else NO_SCORES_NOTE)
    (folder / "README.md").write_text(text, encoding="utf-8")


KIND = Format(("triplets",), flagembedding)
