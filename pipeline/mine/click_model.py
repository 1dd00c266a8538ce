"""Position bias: click share by position (COEC), or examination probability (PBM, the position-based model).

Users click on high positions more often, whatever is shown there. Dividing clicks by the clicks expected at their
positions corrects for this. The stage also learns the distribution of actual over expected clicks across documents:
the prior that shrinks small counts.
"""

from datetime import date

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Output, Stage, Tables, digest
from darklode.pipeline.base.types import Doubles, Ints
from darklode.pipeline.mine.admission.admitted_log import AdmittedRows
from darklode.pipeline.mine.days import days_until
from darklode.pipeline.mine.evidence import Exposures
from darklode.schemas.mined_tables import CLICK_MODEL, CLICK_PRIOR
from darklode.schemas.mining import ClickSettings, LogSettings

CLICK_MODEL_STAGE = Stage("click_model", 2, (), ("click_model", "click_prior"), consults=("impressions", "log_days"))

MAX_PBM_ROWS = 2_000_000
"""Maximum (query, document, position) rows of a tenant to fit the position-based model on, most frequent first: bounds
memory and time."""

EM_ITERATIONS = 50
"""Iterations of expectation maximization; a fixed number, without a test for convergence."""

MAX_CLICK_PROBABILITY = 0.99
"""Maximum probability of a click, so that -log(1 - p) stays finite."""

LOG_BOUNDS = (-5.0, 10.0)
"""Bounds of the log shape and rate of the prior: without variation between documents both would diverge."""

CREATE_POSITION_COUNTS_SQL = """
    CREATE TEMP TABLE position_counts (tenant VARCHAR, query_id VARCHAR, doc_id VARCHAR, position INTEGER,
                            exposures BIGINT, clicks BIGINT)
"""

ADD_POSITION_COUNTS_OF_A_DAY_SQL = """
    INSERT INTO position_counts
    SELECT tenant, query_id, doc_id, position, count(*), count(*) FILTER (clicked)
    FROM {people} WHERE position IS NOT NULL GROUP BY ALL
"""

CLICK_SHARES_SQL = """
    SELECT tenant, position, round(sum(clicks) / sum(exposures), 6) AS expected,
           CAST(sum(exposures) AS BIGINT) AS exposures
    FROM position_counts GROUP BY tenant, position ORDER BY tenant, position
"""

# Joins the position bias that `click_model` has registered under the name `click_model`. Half a click's hazard is
# subtracted: see `gamma_prior`.
CLICK_RATIOS_SQL = """
    WITH pairs AS (
        SELECT tenant, sum(clicks) AS clicks,
               sum((position_counts.exposures - clicks * 0.5) * CAST(hazard AS DECIMAL(18, 6))) AS expected
        FROM position_counts JOIN click_model USING (tenant, position) GROUP BY tenant, query_id, doc_id
    )
    SELECT tenant, CAST(clicks AS DOUBLE) AS clicks, round(CAST(expected AS DOUBLE), 3) AS expected, count(*) AS pairs
    FROM pairs GROUP BY ALL ORDER BY ALL
"""

MOST_SHOWN_PAIRS_SQL = """
    WITH most_shown AS (
        SELECT query_id, doc_id, position, sum(exposures) AS exposures, sum(clicks) AS clicks
        FROM position_counts WHERE tenant = $tenant GROUP BY query_id, doc_id, position
        ORDER BY exposures DESC, query_id, doc_id, position LIMIT $max_rows
    )
    SELECT dense_rank() OVER (ORDER BY query_id, doc_id) - 1 AS pair, position,
           CAST(exposures AS BIGINT) AS exposures, CAST(clicks AS BIGINT) AS clicks
    FROM most_shown ORDER BY pair, position
"""


def click_model(
    tables: Tables, output: Output, click: ClickSettings, logs: LogSettings, *, through: date | None
) -> None:
    """Learn position bias and prior from admitted impressions up to a day; nothing for the model `paper`.

    Args:
        tables: tables that contain `impressions`.
        output: receives `click_model` and `click_prior`.
        click: settings; `model` selects COEC, PBM or none.
        logs: settings; the bot rules decide which sessions do not count.
        through: the last day to learn from; None: no day is settled yet, so there is no model, and any click counts.

    Source: COEC: Zhang and Jones (2007); PBM by expectation maximization: Chuklin, Markov and de Rijke (2015), 4.2.
    """
    if click.model == "paper":
        return
    log = AdmittedRows.from_tables(tables)
    with tables.connect() as connection:
        connection.execute(CREATE_POSITION_COUNTS_SQL)
        for day in days_until(log.digests(), through):
            exposures = Exposures.from_impressions(connection, log.impressions(connection, day), logs)
            connection.execute(ADD_POSITION_COUNTS_OF_A_DAY_SQL.format(people=exposures.people))
            exposures.drop(connection)
        shares: pa.Table = connection.sql(CLICK_SHARES_SQL).to_arrow_table()
        model_rows = _fit_tenants(connection, shares, click.model)
        connection.register("click_model", model_rows)
        priors = _priors(connection.sql(CLICK_RATIOS_SQL).to_arrow_table())
    output.write("click_model", model_rows)
    output.write("click_prior", priors)
    version = digest([*output.parts["click_model"], *output.parts["click_prior"]])
    output.facts |= {"version": f"{click.model}:{version}", "through": through and through.isoformat()}


def _fit_tenants(connection: duckdb.DuckDBPyConnection, shares: pa.Table, model: str) -> pa.Table:
    """Rows of `click_model` for each tenant."""
    tenants = pc.unique(shares["tenant"]).to_pylist()
    return pa.concat_tables(
        [CLICK_MODEL.empty(), *(_fit_tenant(connection, shares, tenant, model) for tenant in tenants)]
    )


def _fit_tenant(connection: duckdb.DuckDBPyConnection, shares: pa.Table, tenant: str, model: str) -> pa.Table:
    """Rows of `click_model` for a tenant: click and examination probability of each position."""
    tenant_shares = shares.filter(pc.equal(shares["tenant"], tenant))
    expected = tenant_shares["expected"].to_numpy()
    exposures = tenant_shares["exposures"].to_numpy()
    examined = expected / max(expected.max(initial=0), 1e-9)
    if model == "pbm":
        parameters = {"tenant": tenant, "max_rows": MAX_PBM_ROWS}
        rows = connection.sql(MOST_SHOWN_PAIRS_SQL, params=parameters).fetchnumpy()
        position_index = np.searchsorted(tenant_shares["position"].to_numpy(), rows["position"])
        examined = examination(rows["pair"], position_index, rows["exposures"], rows["clicks"], expected)
        # Scaled so that the expected clicks add up to the actual clicks.
        expected = examined * (expected @ exposures) / max(examined @ exposures, 1e-9)
    learned = {
        "click_probability": expected,
        "examination_probability": examined,
        "hazard": -np.log1p(-np.minimum(expected, MAX_CLICK_PROBABILITY)),
    }
    rounded = {name: np.round(values, 6) for name, values in learned.items()}
    return CLICK_MODEL.rows({name: tenant_shares[name] for name in ("tenant", "position", "exposures")} | rounded)


def _priors(ratios: pa.Table) -> pa.Table:
    """Rows of `click_prior`, from the joint counts of clicks and expected clicks."""
    rows = []
    for tenant in pc.unique(ratios["tenant"]).to_pylist():
        tenant_ratios = ratios.filter(pc.equal(ratios["tenant"], tenant))
        shape, rate = gamma_prior(*(tenant_ratios[name].to_numpy() for name in ("clicks", "expected", "pairs")))
        rows.append({"tenant": tenant, "shape": shape, "rate": rate})
    return pa.Table.from_pylist(rows, CLICK_PRIOR.schema)


def gamma_prior(clicks: Doubles, expected: Doubles, pairs: Ints) -> tuple[float, float]:
    """Shape and rate of the gamma distribution of actual over expected clicks.

    Clicks are Poisson with mean ratio · expected, so the posterior of a ratio is gamma with shape + clicks and rate +
    expected. A search shows at most one click per document: a position with click probability p adds −ln(1 − p) to the
    expectation, and half of it if there was a click (a Poisson process of which only zero or non-zero is observed).
    Shape and rate maximize the marginal likelihood.

    Args:
        clicks: number of clicks of a (query, document) pair, shape (n_rows,).
        expected: clicks expected at the positions where the pair was shown, shape (n_rows,).
        pairs: number of (query, document) pairs with these two values, shape (n_rows,).

    Source: empirical Bayes after Robbins (1956); the gamma-Poisson shrinker of DuMouchel (1999) with one component.
    """
    # Slow to import, and the model is not fitted every night.
    from scipy.optimize import minimize
    from scipy.special import digamma, gammaln

    def loss(log_parameters: Doubles) -> tuple[float, Doubles]:
        """Negative log likelihood without constants, and its gradient by log shape and log rate."""
        shape, rate = np.exp(log_parameters)
        log_shrinkage = np.log(rate / (rate + expected))
        log_likelihood = (
            gammaln(shape + clicks) - gammaln(shape) + shape * log_shrinkage - clicks * np.log(rate + expected)
        )
        gradient_shape = digamma(shape + clicks) - digamma(shape) + log_shrinkage
        gradient_rate = shape / rate - (shape + clicks) / (rate + expected)
        gradient = np.array([shape * (pairs @ gradient_shape), rate * (pairs @ gradient_rate)])
        return -float(pairs @ log_likelihood), -gradient

    fit = minimize(loss, np.zeros(2), jac=True, method="L-BFGS-B", bounds=[LOG_BOUNDS] * 2)
    shape, rate = np.round(np.exp(fit.x), 4)
    return float(shape), float(rate)


def examination(pair: Ints, position_index: Ints, exposures: Ints, clicks: Ints, first: Doubles) -> Doubles:
    """Probability that a user examines each position, relative to the highest: shape (n_places,), 0 to 1.

    P(click) = examination · attractiveness; both are fitted by expectation maximization.

    Args:
        pair: index of the (query, document), shape (n_rows,).
        position_index: index of the position, shape (n_rows,).
        exposures: how often the pair was shown there, shape (n_rows,).
        clicks: how often it was clicked there, shape (n_rows,).
        first: initial examination, above 0, shape (n_places,).
    """
    examined = np.clip(first / max(first.max(initial=0), 1e-9), 1e-3, 1)
    attractive = np.full(int(pair.max(initial=-1)) + 1, 0.5)
    position_exposures = np.maximum(np.bincount(position_index, exposures, len(examined)), 1)
    pair_exposures = np.maximum(np.bincount(pair, exposures, len(attractive)), 1)
    for _ in range(EM_ITERATIONS):
        # theta and alpha as in the source: examination of the position, attractiveness of the pair.
        theta = examined[position_index]
        alpha = attractive[pair]
        skips_by_probability = (exposures - clicks) / np.maximum(1 - theta * alpha, 1e-9)
        expected_examinations = clicks + skips_by_probability * theta * (1 - alpha)
        expected_attractions = clicks + skips_by_probability * alpha * (1 - theta)
        examined = np.bincount(position_index, expected_examinations, len(examined)) / position_exposures
        attractive = np.bincount(pair, expected_attractions, len(attractive)) / pair_exposures
    relative: Doubles = examined / max(examined.max(initial=0), 1e-9)
    return relative
