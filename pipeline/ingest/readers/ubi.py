"""Logs of User Behavior Insights (UBI 1.x): events whose query may be told elsewhere, and lists that were shown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.types import Mask
from darklode.pipeline.ingest.columns import event_columns, search_columns
from darklode.pipeline.ingest.files import InputFile
from darklode.pipeline.ingest.log_rows import LogRules, LogStaging, select_usable, without_personal_data
from darklode.pipeline.ingest.readers.tabular import read_tabular
from darklode.pipeline.ingest.rejects import Intake, SetAside
from darklode.pipeline.ingest.rows import RowBlock, blank, blank_to_null, concat_blocks, drop_faulty, mask

SHOWN = ["impression", "view"]
NEITHER = "is neither impression nor click"
NAME_CHARACTERS, MOST_NAMES = 40, 100
SEARCHES = 4096
SEPARATOR = "\x1f"


@dataclass(frozen=True)
class UbiFiles:
    """What is read for one partition: its events, its queries, and those of the days before, nearest first."""

    events: Sequence[InputFile]
    searches: Sequence[InputFile]
    earlier: Sequence[InputFile] = field(default=())


NO_CLICKS = (
    *("global_click", "search", "on_search", "view_search_results", "type_filter", "brand_filter"),
    *("product_sort", "product_hover", "item_hover", "add_to_cart", "purchase", "product_purchase"),
    *("declined_product", "page_load", "page_exit", "404_redirect", "login", "logout"),
)
"""Actions of UBI's specification and its demonstration data that are no clicks; others are reported as unknown."""


def read_ubi(files: UbiFiles, rules: LogRules, intake: Intake, staging: LogStaging) -> None:
    """Stage a partition's impressions and clicks, and the lists of those searches that have no impression.

    Memory holds the queries of the partition and of the days before.

    Raises:
        InputError: a file cannot be read, or lacks a column.
    """
    own = list(_searches(files.searches, rules, intake))
    with intake.paused():
        earlier = list(_searches(files.earlier, rules, intake))
    texts, other_actions = _QueryTexts([*own, *earlier]), _OtherActions(NO_CLICKS)
    columns = event_columns(rules.settings.columns)
    for file in files.events:
        for block in read_tabular(file, None, columns, intake, rules.ingest.max_row_bytes):
            staging.add(select_usable(_impressions(block, texts, other_actions, rules, intake), rules, intake))
    least = 1 - rules.shift(zero=staging.zero)
    for block in own:
        for hits in _unseen_lists(block, staging, least):
            intake.count_rows(len(hits))
            staging.add(select_usable(hits, rules, intake))


def _searches(files: Sequence[InputFile], rules: LogRules, intake: Intake) -> Iterator[RowBlock]:
    """Queries that have an id. A query is no impression, and counts as a row only where it is turned away."""
    columns = search_columns(rules.settings.columns)
    for file in files:
        for block in read_tabular(file, None, columns, intake, rules.ingest.max_row_bytes):
            searches = drop_faulty(block, [("missing query_id", blank(block.columns["search_id"]))], intake)
            intake.count_rows(-len(searches))
            if len(searches):
                yield _of_session(_complete(searches).complete(rules.ingest))


def _complete(block: RowBlock) -> RowBlock:
    """The block with all roles of a query, also those that its file does not have."""
    roles = ("search_id", "session_id", "client_id", "timestamp", "query", "hits", "tenant")
    columns = {role: block.columns.get(role, block.nulls()) for role in roles}
    return RowBlock(block.files, columns, block.lines)


def _of_session(block: RowBlock) -> RowBlock:
    """The block with its clients for sessions where it names none."""
    own, client = (blank_to_null(block.columns.get(role, block.nulls())) for role in ("session_id", "client_id"))
    return RowBlock(block.files, block.columns | {"session_id": pc.coalesce(own, client)}, block.lines)


def _impressions(
    block: RowBlock, texts: "_QueryTexts", other_actions: "_OtherActions", rules: LogRules, intake: Intake
) -> RowBlock:
    """The impressions and clicks among events, with the texts of their queries."""
    actions = pc.utf8_lower(blank_to_null(block.columns["action"]))
    clicks = pc.utf8_lower(pa.array(rules.settings.click_actions, pa.string()))
    shown, clicked = mask(pc.is_in(actions, pa.array(SHOWN))), mask(pc.is_in(actions, clicks))
    is_impression = shown | clicked
    missing = mask(actions.is_null())
    drop_faulty(block, [("missing action", missing)], intake)
    drop_faulty(block, other_actions.reject_reasons(actions, ~is_impression & ~missing), SetAside(intake))
    impressions = block.filter(is_impression)
    truths = pc.if_else(pa.array(clicked[is_impression]), "true", "false")
    doc_ids = impressions.columns.get("doc_id", impressions.nulls())
    block_with_ids = RowBlock(
        impressions.files, impressions.columns | {"clicked": truths, "doc_id": doc_ids}, impressions.lines
    )
    completed = texts.fill(_of_session(block_with_ids.complete(rules.ingest)))
    return drop_faulty(completed, [("its query_id has no query", blank(completed.columns["query"]))], intake)


class _OtherActions:
    """Reject reasons of the actions that are neither impressions nor clicks; the first hundred are named."""

    def __init__(self, ignored: Sequence[str]) -> None:
        self._ignored_actions = {action.lower() for action in ignored}
        self._reasons: dict[str, str] = {}

    def reject_reasons(self, actions: pa.Array, bad: Mask) -> list[tuple[str, Mask]]:
        """The reasons why rows are turned away, and where they hold; together they hold wherever `bad` does."""
        for action in actions.filter(pa.array(bad)).unique().drop_null().to_pylist():
            if action not in self._reasons and len(self._reasons) < MOST_NAMES:
                name = without_personal_data(pa.array([action]))[0].as_py()[:NAME_CHARACTERS]
                unknown = "" if action in self._ignored_actions else ", as far as logs.click_actions knows"
                self._reasons[action] = f"action {name} {NEITHER}{unknown}"
        codes = pc.index_in(actions, pa.array(self._reasons, pa.string()))
        reason_masks = [(reason, mask(pc.equal(codes, at))) for at, reason in enumerate(self._reasons.values())]
        return [*reason_masks, (f"action {NEITHER}", bad)]


def _unseen_lists(block: RowBlock, staging: LogStaging, least: int) -> Iterator[RowBlock]:
    """The documents that searches listed, a row each, for the searches without an impression."""
    listed = block.filter(~blank(block.columns["hits"]))
    unseen = listed.filter(~staging.is_shown(listed.columns["tenant"], blank_to_null(listed.columns["search_id"])))
    for begin in range(0, len(unseen), SEARCHES):
        some = unseen.filter((np.arange(len(unseen)) >= begin) & (np.arange(len(unseen)) < begin + SEARCHES))
        lists = pc.split_pattern(some.columns["hits"], "\n")
        parents = pc.list_parent_indices(lists)
        starts = lists.offsets.to_numpy()[:-1] - lists.offsets[0].as_py()
        places = np.arange(len(parents)) - starts[parents.to_numpy()] + least
        roles = ("tenant", "search_id", "session_id", "timestamp", "query")
        columns = {role: some.columns[role].take(parents) for role in roles}
        columns |= {"doc_id": pc.list_flatten(lists), "position": pa.array(places).cast(pa.string())}
        columns["clicked"] = pa.repeat("false", len(parents))
        yield RowBlock(some.files.take(parents), columns, some.lines.take(parents))


class _QueryTexts:
    """The texts of queries by tenant and query_id; the first that is told counts."""

    def __init__(self, blocks: Sequence[RowBlock]) -> None:
        with_query = [block.filter(~blank(block.columns["query"])) for block in blocks]
        self._keys, self._texts = pa.array([], pa.string()), pa.array([], pa.string())
        if with_query:
            query_rows = concat_blocks(
                [RowBlock(text_block.files, _query_columns(text_block), text_block.lines) for text_block in with_query]
            )
            self._keys, self._texts = _keys(query_rows), query_rows.columns["query"]

    def fill(self, block: RowBlock) -> RowBlock:
        """The block with the texts of those queries that it does not tell itself."""
        query_texts = blank_to_null(block.columns.get("query", block.nulls()))
        if query_texts.null_count:
            looked_up = self._texts.take(pc.index_in(_keys(block), self._keys))
            query_texts = pc.coalesce(query_texts, looked_up)
        return RowBlock(block.files, block.columns | {"query": query_texts}, block.lines)


def _query_columns(block: RowBlock) -> dict[str, pa.Array]:
    return {role: block.columns[role] for role in ("tenant", "search_id", "query")}


def _keys(block: RowBlock) -> pa.Array:
    ids = blank_to_null(block.columns.get("search_id", block.nulls()))
    return pc.binary_join_element_wise(block.columns["tenant"], ids, SEPARATOR)
