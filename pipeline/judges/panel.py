"""Several judges of the same pairs, as one judge."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import pyarrow as pa

from pipeline.errors import SettingsError
from pipeline.judges.embedded import EmbeddedJudge
from pipeline.judges.port import Judge, Live
from pipeline.judges.vote import Vote


class Panel:
    """A judge whose replies are its members' votes; the members ask side by side where they wait for servers.

    Source: Verga et al., 2024, for several small models in the place of a large one.

    Args:
        members: at least one, in the order of the vote's weights.
        vote: how their replies become one.
    """

    def __init__(self, members: Sequence[Judge], vote: Vote) -> None:
        self._members, self._vote = members, vote

    @cached_property
    def member_ids(self) -> list[str]:
        """The members' `judge_id`, in their order.

        Raises:
            SettingsError: two members are the same judge.
        """
        ids = [member.judge_id for member in self._members]
        twice = {one for one in ids if ids.count(one) > 1}
        if twice:
            raise SettingsError(f"judge.panel names the same judge twice: {', '.join(sorted(twice))}; leave one out")
        return ids

    @cached_property
    def judge_id(self) -> str:
        """Vote, threshold and every member with its weight; see `member_ids`."""
        weighed = [f"{weight:g}*{name}" for weight, name in zip(self._vote.weights, self.member_ids, strict=True)]
        return f"panel-1:{self._vote.rule}:{self._vote.threshold:g}:[{' | '.join(weighed)}]"

    @property
    def facts(self) -> dict[str, int]:
        """The members' together."""
        total = Counter[str]()
        for member in self._members:
            total.update(getattr(member, "facts", {}))
        return dict(total)

    @property
    def live(self) -> Live | None:
        """How far the member is that has answered least, of those that say so."""
        known = [live for member in self._members if (live := getattr(member, "live", None))]
        return min(known, key=lambda live: live.answered, default=None)

    async def judge(self, pairs: pa.Table) -> pa.Table:
        """See the port."""
        return self.pooled(await self.each(pairs))

    async def each(self, pairs: pa.Table) -> list[pa.Table]:
        """Every member's own replies (see the port), in their order; a failure of one stops the others.

        Raises:
            SettingsError: two members are the same judge.
        """
        # A formula holds the event loop: it goes first, so that no server waits for it.
        order = sorted(
            range(len(self.member_ids)), key=lambda place: not isinstance(self._members[place], EmbeddedJudge)
        )
        tasks = {place: asyncio.ensure_future(self._members[place].judge(pairs)) for place in order}
        try:
            return list(await asyncio.gather(*(tasks[place] for place in sorted(tasks))))
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    def pooled(self, said: Sequence[pa.Table]) -> pa.Table:
        """The panel's replies from what `each` returned."""
        return self._vote.pooled(said)
