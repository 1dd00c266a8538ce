"""Runs the stages of `mine-logs` on a simulated log."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.session_log import SessionLog
from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.mine.association.stage import ASSOCIATE, SESSION_TABLES, associate
from darklode.pipeline.mine.click_model import CLICK_MODEL_STAGE, click_model
from darklode.pipeline.mine.evidence import EVIDENCE, LOG_QUERIES_STAGE, evidence, log_queries
from darklode.pipeline.mine.multi_hop import LendingRules
from darklode.pipeline.mine.one_hop import OneHop
from darklode.pipeline.mine.pairs import PAIRS_STAGE, mined_pairs
from darklode.pipeline.mine.splits import MINED_SPLITS, mined_splits
from darklode.pipeline.mine.term_weighting.log import FIT_TERM_WEIGHTS, LogTermWeighter, fit_term_weights
from darklode.pipeline.mine.term_weighting.port import WEIGHT_TERMS, weight_terms
from darklode.schemas.mining import AssociateSettings, ClickSettings, LogSettings
from darklode.schemas.tables import TABLES

NO_TEST_DAY = "9999-12-31"
SEED = 13
KEEP_ALL = LogSettings(bot_queries_per_minute=0, bot_click_share=0)
"""Simulated users are no bots."""


class SimulatedRun:
    """A run of the simulated log, complete up to the term weights.

    Args:
        folder: an empty folder.
        log: the simulated log.
        click: settings of the click model and of the evidence.

    Attributes:
        log: the simulated log.
        texts: normal form of each query id.
    """

    def __init__(self, folder: str, log: SessionLog, click: ClickSettings | None = None) -> None:
        self.log = log
        self._run = Run(folder)
        self._associations: dict[AssociateSettings, pa.Table] = {}
        click = click or ClickSettings()
        days: list[date] = pc.cast(log.impressions["timestamp"], pa.date32()).to_pylist()

        def write_days(_tables: Tables, output: Output) -> None:
            for day in sorted(set(days)):
                is_of_day = pa.array([of_row == day for of_row in days])
                output.write("impressions", log.impressions.filter(is_of_day))

        self._execute(Stage("given_impressions", 1, (), ("impressions",)), write_days)
        self._put("documents", log.documents)
        self._put("relevance_evidence", TABLES["relevance_evidence"].empty())
        through = max(days)
        self._execute(
            CLICK_MODEL_STAGE, lambda tables, output: click_model(tables, output, click, KEEP_ALL, through=through)
        )
        self._execute(EVIDENCE, lambda tables, output: evidence(tables, output, click, KEEP_ALL))
        self._execute(LOG_QUERIES_STAGE, log_queries)
        self._execute(
            MINED_SPLITS,
            lambda tables, output: mined_splits(tables, output, validation_share=0.1, test_from=None, seed=SEED),
        )
        self._execute(FIT_TERM_WEIGHTS, lambda tables, output: fit_term_weights(tables, output, through=through))
        weighter = LogTermWeighter(self._read("learned_term_weights"), "simulated")
        self._execute(WEIGHT_TERMS, lambda tables, output: weight_terms(tables, output, weighter=weighter))
        queries = self._read("log_queries")
        self.texts: dict[str, str] = dict(
            zip(queries["query_id"].to_pylist(), queries["normal_form"].to_pylist(), strict=True)
        )

    def associations(self, settings: AssociateSettings) -> pa.Table:
        """The associations by some settings."""
        if settings not in self._associations:
            self._execute(
                ASSOCIATE.reading(*SESSION_TABLES), lambda tables, output: associate(tables, output, settings), settings
            )
            self._associations[settings] = self._read("associations")
        return self._associations[settings]

    def pairs(self, associations: pa.Table, rules: LendingRules, click: ClickSettings) -> pa.Table:
        """The pairs, own and lent, with these associations."""
        self._put("associations", associations)
        hop = OneHop(click, NO_TEST_DAY, SEED)
        self._execute(
            PAIRS_STAGE,
            lambda tables, output: mined_pairs(tables, output, hop, rules, contains={}),
            (hop.identity, rules),
        )
        return self._read("mined_pairs")

    def _read(self, table: str) -> pa.Table:
        return self._run.tables(table).read(table)

    def _put(self, table: str, rows: pa.Table) -> None:
        stage = Stage(f"given_{table}", 1, (), TABLES[table].files)
        self._execute(stage, lambda _tables, output: output.write(table, rows), rows.num_rows)

    def _execute(self, stage: Stage, work: Callable[[Tables, Output], None], settings: object = None) -> None:
        self._run.execute(self._run.plan(stage, {"settings": repr(settings)}), work)
