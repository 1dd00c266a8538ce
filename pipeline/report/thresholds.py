"""From which probability on a pair counts as relevant."""

import pyarrow as pa

from pipeline.report.source import Source

FITTED = "SELECT tenant, fitted_threshold FROM calibration WHERE fitted_threshold IS NOT NULL ORDER BY tenant"


def thresholds(source: Source) -> pa.Table:
    """Tenant and threshold: a row for each tenant where it was fitted, else one row whose tenant is null."""
    judge = source.settings.judge
    if judge.threshold == "fitted" and not source.mined:
        return source.tables.sql(FITTED).rename_columns(["tenant", "threshold"])
    return pa.table({"tenant": pa.array([None], pa.string()), "threshold": [float(judge.cut)]})
