"""Read UBI 1.x logs (User Behavior Insights): events, query texts in a separate file, and result lists."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.types import Mask
from darklode.pipeline.ingest.columns import event_columns, search_columns
from darklode.pipeline.ingest.files import InputFile
from darklode.pipeline.ingest.log_rows import LogRules, LogStaging, mask_personal_data, select_usable
from darklode.pipeline.ingest.readers.tabular import read_tabular
from darklode.pipeline.ingest.rejects import Intake, OtherKind
from darklode.pipeline.ingest.rows import RowBlock, blank_to_null, concat_blocks, drop_faulty, is_blank, mask

IMPRESSION_ACTIONS = ["impression", "view"]  # actions that mean that a document was shown
OTHER_ACTION_REASON = "is neither impression nor click"
MAX_NAME_CHARACTERS, MAX_NAMES = 40, 100  # of other actions, in reject reasons
BLOCK_SEARCHES = 4096  # searches whose result lists are expanded to rows at a time, to bound memory
KEY_SEPARATOR = "\x1f"  # ASCII unit separator, between tenant and query_id


@dataclass(frozen=True)
class UbiFiles:
    """Files of a partition of a UBI log.

    Attributes:
        events: files of events (`ubi_events`).
        searches: files of queries (`ubi_queries`) of the same day.
        earlier: query files of the days before, nearest first; an event may refer to a query of an earlier day.
    """

    events: Sequence[InputFile]
    searches: Sequence[InputFile]
    earlier: Sequence[InputFile] = field(default=())


KNOWN_OTHER_ACTIONS = (
    *("global_click", "search", "on_search", "view_search_results", "type_filter", "brand_filter"),
    *("product_sort", "product_hover", "item_hover", "add_to_cart", "purchase", "product_purchase"),
    *("declined_product", "page_load", "page_exit", "404_redirect", "login", "logout"),
)
"""Actions of UBI's specification and its demonstration data that are not clicks; others are reported as unknown."""


def read_ubi(files: UbiFiles, rules: LogRules, intake: Intake, staging: LogStaging) -> None:
    """Stage impressions and clicks of a partition, and the result lists of searches without an impression.

    The queries of the partition and of the days before are held in memory.

    Raises:
        InputError: a file cannot be read, or lacks a column.
    """
    own_searches = list(_searches(files.searches, rules, intake))
    with intake.paused():
        earlier = list(_searches(files.earlier, rules, intake))
    texts = _QueryTexts([*own_searches, *earlier])
    other_actions = _OtherActions(KNOWN_OTHER_ACTIONS)
    columns = event_columns(rules.settings.columns)
    for file in files.events:
        for block in read_tabular(file, None, columns, intake, rules.ingest.max_row_bytes):
            staging.add(select_usable(_impressions(block, texts, other_actions, rules, intake), rules, intake))
    first_position = 1 - rules.position_shift(has_zero=staging.has_zero_position)
    for block in own_searches:
        for listed_rows in _unseen_lists(block, staging, first_position):
            intake.count_rows(len(listed_rows))
            staging.add(select_usable(listed_rows, rules, intake))


def _searches(files: Sequence[InputFile], rules: LogRules, intake: Intake) -> Iterator[RowBlock]:
    """Yield queries with an id. Queries are not impressions: only rejected ones count as rows."""
    columns = search_columns(rules.settings.columns)
    for file in files:
        for block in read_tabular(file, None, columns, intake, rules.ingest.max_row_bytes):
            searches = drop_faulty(block, [("missing query_id", is_blank(block.columns["search_id"]))], intake)
            intake.count_rows(-len(searches))
            if len(searches):
                yield _fill_sessions(_complete(searches).complete(rules.ingest))


def _complete(block: RowBlock) -> RowBlock:
    """Add null columns for missing roles of a query."""
    roles = ("search_id", "session_id", "user_id", "timestamp", "query", "hits", "tenant")
    columns = {role: block.columns.get(role, block.nulls()) for role in roles}
    return RowBlock(block.files, columns, block.lines)


def _fill_sessions(block: RowBlock) -> RowBlock:
    """Use user_id (UBI: client_id) where session_id is missing."""
    session_ids = blank_to_null(block.columns.get("session_id", block.nulls()))
    user_ids = blank_to_null(block.columns.get("user_id", block.nulls()))
    return RowBlock(block.files, block.columns | {"session_id": pc.coalesce(session_ids, user_ids)}, block.lines)


def _impressions(
    block: RowBlock, texts: "_QueryTexts", other_actions: "_OtherActions", rules: LogRules, intake: Intake
) -> RowBlock:
    """Select impressions and clicks from events, and add query texts."""
    actions = pc.utf8_lower(blank_to_null(block.columns["action"]))
    clicks = pc.utf8_lower(pa.array(rules.settings.click_actions, pa.string()))
    is_shown = mask(pc.is_in(actions, pa.array(IMPRESSION_ACTIONS)))
    is_click = mask(pc.is_in(actions, clicks))
    is_impression = is_shown | is_click
    is_missing = mask(actions.is_null())
    drop_faulty(block, [("missing action", is_missing)], intake)
    drop_faulty(block, other_actions.reject_reasons(actions, ~is_impression & ~is_missing), OtherKind(intake))
    impressions = block.filter(is_impression)
    clicked_texts = pc.if_else(pa.array(is_click[is_impression]), "true", "false")
    doc_ids = impressions.columns.get("doc_id", impressions.nulls())
    block_with_ids = RowBlock(
        impressions.files, impressions.columns | {"clicked": clicked_texts, "doc_id": doc_ids}, impressions.lines
    )
    completed = texts.fill(_fill_sessions(block_with_ids.complete(rules.ingest)))
    return drop_faulty(completed, [("its query_id has no query", is_blank(completed.columns["query"]))], intake)


class _OtherActions:
    """Reject reasons of the actions that are neither impressions nor clicks; the first hundred are named."""

    def __init__(self, ignored: Sequence[str]) -> None:
        self._ignored_actions = {action.lower() for action in ignored}
        self._reasons: dict[str, str] = {}

    def reject_reasons(self, actions: pa.Array, bad: Mask) -> list[tuple[str, Mask]]:
        """Reject reasons with masks of their rows.

        Args:
            actions: action of each event.
            bad: mask of the events to reject; the masks returned cover it.
        """
        for action in actions.filter(pa.array(bad)).unique().drop_null().to_pylist():
            if action not in self._reasons and len(self._reasons) < MAX_NAMES:
                name = mask_personal_data(pa.array([action]))[0].as_py()[:MAX_NAME_CHARACTERS]
                hint = "" if action in self._ignored_actions else "; if it is a click, add it to logs.click_actions"
                self._reasons[action] = f"action {name} {OTHER_ACTION_REASON}{hint}"
        codes = pc.index_in(actions, pa.array(self._reasons, pa.string()))
        reason_masks = [(reason, mask(pc.equal(codes, code))) for code, reason in enumerate(self._reasons.values())]
        return [*reason_masks, (f"action {OTHER_ACTION_REASON}", bad)]


def _unseen_lists(block: RowBlock, staging: LogStaging, first_position: int) -> Iterator[RowBlock]:
    """Yield the documents in the result lists of searches without an impression, one row per document.

    Args:
        block: queries with their result lists (role `hits`, one id per line).
        staging: the staged impressions of the partition.
        first_position: position of the first document of a list.
    """
    with_list = block.filter(~is_blank(block.columns["hits"]))
    without_impression = with_list.filter(
        ~staging.is_shown(with_list.columns["tenant"], blank_to_null(with_list.columns["search_id"]))
    )
    row_numbers = np.arange(len(without_impression))
    for begin in range(0, len(without_impression), BLOCK_SEARCHES):
        searches = without_impression.filter((row_numbers >= begin) & (row_numbers < begin + BLOCK_SEARCHES))
        lists = pc.split_pattern(searches.columns["hits"], "\n")
        parents = pc.list_parent_indices(lists)
        starts = lists.offsets.to_numpy()[:-1] - lists.offsets[0].as_py()
        positions = np.arange(len(parents)) - starts[parents.to_numpy()] + first_position
        roles = ("tenant", "search_id", "session_id", "user_id", "timestamp", "query")
        columns = {role: searches.columns[role].take(parents) for role in roles}
        columns |= {"doc_id": pc.list_flatten(lists), "position": pa.array(positions).cast(pa.string())}
        columns["clicked"] = pa.repeat("false", len(parents))
        yield RowBlock(searches.files.take(parents), columns, searches.lines.take(parents))


class _QueryTexts:
    """Query texts by tenant and query_id, to fill in events that have only the id. The first occurrence is used."""

    def __init__(self, blocks: Sequence[RowBlock]) -> None:
        with_query = [block.filter(~is_blank(block.columns["query"])) for block in blocks]
        self._keys = pa.array([], pa.string())
        self._texts = pa.array([], pa.string())
        if with_query:
            query_rows = concat_blocks(
                [RowBlock(text_block.files, _query_columns(text_block), text_block.lines) for text_block in with_query]
            )
            self._keys = _search_keys(query_rows)
            self._texts = query_rows.columns["query"]

    def fill(self, block: RowBlock) -> RowBlock:
        """Fill missing query texts."""
        query_texts = blank_to_null(block.columns.get("query", block.nulls()))
        if query_texts.null_count:
            looked_up = self._texts.take(pc.index_in(_search_keys(block), self._keys))
            query_texts = pc.coalesce(query_texts, looked_up)
        return RowBlock(block.files, block.columns | {"query": query_texts}, block.lines)


def _query_columns(block: RowBlock) -> dict[str, pa.Array]:
    return {role: block.columns[role] for role in ("tenant", "search_id", "query")}


def _search_keys(block: RowBlock) -> pa.Array:
    """Tenant and query_id of each row, joined; null without a query_id."""
    ids = blank_to_null(block.columns.get("search_id", block.nulls()))
    return pc.binary_join_element_wise(block.columns["tenant"], ids, KEY_SEPARATOR)
