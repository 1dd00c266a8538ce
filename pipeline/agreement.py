"""How far the judges of a panel agree: each two of them, and all together.

Both functions take `views.all_tables(run)`, or tables that hold `panel_verdicts`.
"""

import pyarrow as pa

from pipeline.artifacts import Tables
from pipeline.raters import Confusion, alpha, cohens_kappa

_COUNTS = ("both_relevant", "first_alone", "other_alone", "neither")

PAIRWISE = """
    SELECT one.judge_id, two.judge_id AS other, count(*) AS pairs,
           count(*) FILTER (one.relevant AND two.relevant) AS both_relevant,
           count(*) FILTER (one.relevant AND NOT two.relevant) AS first_alone,
           count(*) FILTER (NOT one.relevant AND two.relevant) AS other_alone,
           count(*) FILTER (NOT one.relevant AND NOT two.relevant) AS neither
    FROM panel_verdicts one JOIN panel_verdicts two USING (tenant, query_id, chunk_id)
    WHERE one.judge_id < two.judge_id AND one.relevant IS NOT NULL AND two.relevant IS NOT NULL
    GROUP BY one.judge_id, two.judge_id ORDER BY one.judge_id, two.judge_id
"""

VOTES = """
    WITH votes AS (
        SELECT count(*) FILTER (relevant) AS yes, count(*) FILTER (NOT relevant) AS no
        FROM panel_verdicts GROUP BY tenant, query_id, chunk_id
    )
    SELECT yes, no, count(*) AS pairs FROM votes WHERE yes + no > 1 GROUP BY yes, no ORDER BY yes, no
"""


def pairwise_kappa(tables: Tables) -> pa.Table:
    """One row for each two members, over the pairs that both labelled: the four counts and Cohen's kappa (1960).

    kappa is null where both say the same of every pair. An embedded judge is fitted on each tenant anew and has an
    id there of its own.
    """
    found = tables.sql(PAIRWISE)
    counts = Confusion(*(found[name].to_numpy() for name in _COUNTS))
    return found.append_column("kappa", pa.array(cohens_kappa(counts), from_pandas=True))


def panel_alpha(tables: Tables) -> pa.Table:
    """Krippendorff's alpha (nominal) of all members over the pairs that at least two of them labelled.

    One row of pairs, unanimous (how many are labelled alike) and alpha; none where no pair has two labels.
    """
    votes = tables.sql(VOTES)
    yes, no, pairs = (votes[name].to_numpy() for name in ("yes", "no", "pairs"))
    if not len(pairs):
        return pa.table({"pairs": pa.array([], pa.int64())})
    like = int(pairs[(yes == 0) | (no == 0)].sum())
    found = pa.array([float(alpha(yes, no, pairs))], from_pandas=True)
    return pa.table({"pairs": [int(pairs.sum())], "unanimous": [like], "alpha": found})
