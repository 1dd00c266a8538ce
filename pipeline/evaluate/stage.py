"""The stage `evaluate`: measures of every system on subsets of the test queries, and pairwise comparisons."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Output, Stage, Tables
from darklode.pipeline.base.types import Doubles as Floats
from darklode.pipeline.base.types import Row
from darklode.pipeline.evaluate.measures import compute_measures, upper_bounds
from darklode.pipeline.evaluate.paired import ResamplingSettings, compare_paired, holm, means
from darklode.schemas.evaluation import EvaluateSettings
from darklode.schemas.tables import TABLES

EVALUATION_STAGE = Stage(
    "evaluate",
    2,
    ("test_queries", "test_labels", "test_rankings"),
    ("evaluation", "evaluation_queries", "evaluation_pairs"),
)

JUDGED_MEASURE = "Judged"
"""Share of judged documents: reported, but not compared between systems, since it measures the labels."""

ComputeMeasures = Callable[[str, pa.Table, list[str]], Floats]


@dataclass(frozen=True)
class EvaluationQueries:
    """The test queries.

    Attributes:
        rows: rows of `test_queries`, by tenant and query_id.
        groups: cluster of each query, from 0, shape (n_queries,).
    """

    rows: pa.Table
    groups: NDArray[np.int64]

    @classmethod
    def from_tables(cls, tables: Tables) -> EvaluationQueries:
        """All test queries of a run."""
        rows = tables.read("test_queries").combine_chunks()
        names = pc.binary_join_element_wise(rows["tenant"], rows["group"], "\x00").combine_chunks()
        return cls(rows, np.asarray(names.dictionary_encode().indices.to_numpy(), np.int64))

    @property
    def tenants(self) -> list[str]:
        """Names of the tenants, sorted."""
        return list(pc.unique(self.rows["tenant"]).sort().to_pylist())

    def of_tenant(self, tenant: str | None) -> NDArray[np.bool_]:
        """Mask of a tenant's queries, shape (n_queries,); None: all queries."""
        if tenant is None:
            return np.ones(self.rows.num_rows, bool)
        return _to_bool(pc.equal(self.rows["tenant"], tenant))

    def parts(self) -> dict[str, NDArray[np.bool_]]:
        """Mask of each subset, shape (n_queries,); empty subsets, and subsets equal to `counted`, are left out."""
        kind, shares = self.rows["kind"], self.rows["shares_positive"]
        counted = _to_bool(pc.or_kleene(pc.is_null(kind), pc.equal(kind, "unseen")))
        parts = {"counted": counted, "all": np.ones(len(counted), bool)}
        parts |= {name: _to_bool(pc.equal(kind, name)) for name in ("unseen", "variant", "seen")}
        parts |= {
            "shared positive": counted & _to_bool(shares),
            "own positive": counted & _to_bool(pc.invert(shares)),
        }
        return {
            name: mask for name, mask in parts.items() if name == "counted" or (mask.any() and (mask != counted).any())
        }


def evaluate(
    tables: Tables,
    output: Output,
    settings: EvaluateSettings,
    *,
    systems: Sequence[str],
    compared: Sequence[tuple[str, str]] | None = None,
    seed: int,
) -> None:
    """Write each system's measures per query, means with intervals, and the differences of systems.

    Memory: 8 bytes per query × measure × system, and the rankings of 128 queries.

    Args:
        tables: must contain `test_queries`, `test_labels` and `test_rankings`.
        output: receives `evaluation`, `evaluation_queries` and `evaluation_pairs`.
        settings: measures, resamples and sign flips.
        systems: names of the systems, in the order of the output rows.
        compared: pairs of a system and the one it is compared with; None: each with every earlier one.
        seed: random seed of resamples and sign flips.
    """
    test_queries, names = EvaluationQueries.from_tables(tables), settings.measures
    chance = ResamplingSettings(settings.n_resamples, settings.permutations, seed)
    labels = tables.read("test_labels")
    upper_bound_values = _by_tenant(test_queries, labels, lambda _, right, ids: upper_bounds(right, ids, names))
    values: dict[str, Floats] = {}
    compared = [(system, other) for other, system in combinations(systems, 2)] if compared is None else compared
    for number, system in enumerate(systems):
        output.progress(number, len(systems), system)
        values[system] = _by_tenant(test_queries, labels, partial(_measure_lists, tables, system, names))
        output.write("evaluation_queries", _of_queries(test_queries.rows, system, names, values[system]))
    rows: list[Row] = []
    pairs: list[Row] = []
    for scope in _scopes(test_queries):
        rows += scope.means(values, upper_bound_values, names, chance)
        pairs += scope.pairs(values, names, chance, compared)
    output.write("evaluation", pa.Table.from_pylist(rows, schema=TABLES["evaluation"].schema))
    output.write("evaluation_pairs", pa.Table.from_pylist(pairs, schema=TABLES["evaluation_pairs"].schema))
    output.facts |= {"systems": list(systems), "queries": test_queries.rows.num_rows}


def _by_tenant(test_queries: EvaluationQueries, labels: pa.Table, count: ComputeMeasures) -> Floats:
    """Measures computed per tenant, shape (n_queries, n_measures), in the order of the queries."""
    values = []
    for tenant in test_queries.tenants:
        ids = test_queries.rows.filter(pa.array(test_queries.of_tenant(tenant)))["query_id"].to_pylist()
        values.append(count(tenant, labels.filter(pc.equal(labels["tenant"], tenant)), ids))
    return np.concatenate(values)


def _measure_lists(
    tables: Tables, system: str, names: Sequence[str], tenant: str, labels: pa.Table, ids: Sequence[str]
) -> Floats:
    return compute_measures(_lists(tables, system, tenant), labels, ids, names)


def _lists(tables: Tables, system: str, tenant: str) -> Iterator[pa.Table]:
    """A system's rankings of a tenant's queries; each part has one system and tenant."""
    for part in tables.parts("test_rankings"):
        if not part.rows:
            continue
        rows = tables.part(part)
        if (rows["system"][0].as_py(), rows["tenant"][0].as_py()) == (system, tenant):
            yield rows


def _of_queries(queries: pa.Table, system: str, names: Sequence[str], values: Floats) -> pa.Table:
    n, kinds = queries.num_rows, len(names)
    order = pa.array(np.repeat(np.arange(n), kinds))
    return TABLES["evaluation_queries"].rows(
        {
            "tenant": queries["tenant"].take(order),
            "query_id": queries["query_id"].take(order),
            "system": pa.repeat(system, n * kinds),
            "measure": pa.array(list(names) * n),
            "value": pa.array(values.reshape(-1)),
        }
    )


@dataclass(frozen=True)
class _Scope:
    """A subset of the queries."""

    tenant: str | None
    part: str
    chosen: NDArray[np.bool_]
    groups: NDArray[np.int64]

    @property
    def _where(self) -> Row:
        return {"tenant": self.tenant, "part": self.part, "queries": int(self.chosen.sum())}

    def means(
        self, values: dict[str, Floats], upper_bound_values: Floats, names: Sequence[str], chance: ResamplingSettings
    ) -> list[Row]:
        rows: list[Row] = []
        upper_bound_means = upper_bound_values[self.chosen].mean(axis=0)
        for system, system_values in values.items():
            mean, low, high = means(system_values[self.chosen], self.groups, chance)
            for at, measure in enumerate(names):
                row = {"system": system, "measure": measure, "value": mean[at], "ceiling": upper_bound_means[at]}
                rows.append(self._where | row | self._interval_columns(low[at], high[at]))
        return rows

    def pairs(
        self,
        values: dict[str, Floats],
        names: Sequence[str],
        chance: ResamplingSettings,
        compared: Sequence[tuple[str, str]],
    ) -> list[Row]:
        """Systems against others, by all measures but `Judged`."""
        tested = [at for at, name in enumerate(names) if not name.startswith(JUDGED_MEASURE)]
        rows: list[Row] = []
        chance = replace(chance, tests=len(compared) * len(tested))
        for system, other in compared:
            system_values, other_values = (values[name][self.chosen][:, tested] for name in (system, other))
            difference = compare_paired(system_values, other_values, self.groups, chance)
            for at, number in enumerate(tested):
                key_columns = {"system": system, "other": other, "measure": names[number]}
                counts = {"wins": int(difference.wins[at]), "losses": int(difference.losses[at])}
                rows.append(self._where | key_columns | counts | difference.row(at))
        for row, corrected in zip(rows, holm([row["p"] for row in rows]), strict=True):
            row["p_holm"] = corrected
        return rows

    def _interval_columns(self, low: float, high: float) -> Row:
        """The interval; null for a single cluster."""
        return {"low": low, "high": high} if self.groups.any() else {"low": None, "high": None}


def _scopes(test_queries: EvaluationQueries) -> Iterator[_Scope]:
    """All non-empty subsets: of all tenants together, then of each tenant if there are several."""
    several = len(test_queries.tenants) > 1
    for tenant in [None, *(test_queries.tenants if several else [])]:
        tenant_queries = test_queries.of_tenant(tenant)
        for part, chosen in test_queries.parts().items():
            in_scope = tenant_queries & chosen
            if in_scope.any():
                _, groups = np.unique(test_queries.groups[in_scope], return_inverse=True)
                yield _Scope(tenant, part, in_scope, groups.astype(np.int64))


def _to_bool(values: pa.ChunkedArray) -> NDArray[np.bool_]:
    """As NumPy; null becomes false."""
    return np.asarray(pc.fill_null(values, False).to_numpy(), bool)
