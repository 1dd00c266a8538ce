"""How far the judges of a panel agree: each two of them, and all together.

Both functions take `views.all_tables(run)`, or tables that hold `panel_verdicts`.
"""

import numpy as np
import pyarrow as pa

from pipeline.artifacts import Tables

PAIRWISE = """
    SELECT one.judge_id, two.judge_id AS other, count(*) AS pairs,
           count(*) FILTER (one.relevant AND two.relevant) AS both_relevant,
           count(*) FILTER (one.relevant AND NOT two.relevant) AS first_alone,
           count(*) FILTER (NOT one.relevant AND two.relevant) AS other_alone,
           count(*) FILTER (NOT one.relevant AND NOT two.relevant) AS neither
    FROM panel_verdicts one JOIN panel_verdicts two USING (tenant, query_id, chunk_id)
    WHERE one.judge_id < two.judge_id AND one.relevant IS NOT NULL AND two.relevant IS NOT NULL
    GROUP BY one.judge_id, two.judge_id
"""

# Of whole numbers: the order of the rows cannot matter.
KAPPAS = f"""
    SELECT *, 2 * (both_relevant::HUGEINT * neither - first_alone::HUGEINT * other_alone) / nullif(
        (both_relevant + first_alone)::HUGEINT * (first_alone + neither)
        + (both_relevant + other_alone)::HUGEINT * (other_alone + neither), 0) AS kappa
    FROM ({PAIRWISE}) ORDER BY judge_id, other
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
    return tables.sql(KAPPAS)


def panel_alpha(tables: Tables) -> pa.Table:
    """Krippendorff's alpha (nominal) of all members over the pairs that at least two of them labelled; see `alpha`.

    One row of pairs, unanimous (how many are labelled alike) and alpha; none where no pair has two labels.
    """
    votes = tables.sql(VOTES)
    yes, no, pairs = (votes[name].to_numpy() for name in ("yes", "no", "pairs"))
    if not len(pairs):
        return pa.table({"pairs": pa.array([], pa.int64())})
    found = alpha(yes, no, pairs)
    like = int(pairs[(yes == 0) | (no == 0)].sum())
    known = None if np.isnan(found) else found
    return pa.table({"pairs": [int(pairs.sum())], "unanimous": [like], "alpha": pa.array([known], pa.float64())})


def alpha(yes: np.ndarray, no: np.ndarray, pairs: np.ndarray) -> float:
    """Krippendorff's alpha of two labels; 1 is agreement, 0 is chance, NaN where only one label was ever given.

    Source: Krippendorff, 2004, chapter 11. Pairs that a member left null count with the labels they have.

    Args:
        yes: votes for relevant of a kind of pair, shape (n_kinds,); so are no and pairs.
        no: votes against; yes + no is at least 2.
        pairs: how many pairs got these votes.
    """
    ones, zeros = float(pairs @ yes), float(pairs @ no)
    if not ones * zeros:
        return float("nan")
    differing = float(np.sum(pairs * 2 * yes * no / (yes + no - 1)))
    return 1 - (ones + zeros - 1) * differing / (2 * ones * zeros)
