"""Settings that all search engines behind HTTP have; a preset of an engine declares only what differs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self
from urllib.parse import quote

from pydantic import Field, JsonValue, model_validator

from darklode.pipeline.retrieve.retrievers.json_template import placeholders
from darklode.pipeline.retrieve.retrievers.kinds import LiveKind
from darklode.schemas.section import NoRow
from darklode.schemas.shared import ApiKeyEnv, MaxConcurrency, RetryTimeout, Timeout

if TYPE_CHECKING:
    from darklode.pipeline.retrieve.retrievers.external import LiveSearch


class EngineKind(LiveKind):
    """A search engine with JSON requests and replies over HTTP.

    Attributes:
        VERSION_PATH: path of a GET request for the version of the index; empty: there is none.
        LIST_OPTIONAL: a reply without the list of hits has none.
    """

    VERSION_PATH: ClassVar[str] = ""
    LIST_OPTIONAL: ClassVar[bool] = False

    base_url: str = Field(min_length=1, description="URL of the server, without user name, password or key.")
    index: str = Field("", description="Index, collection or alias; may contain {tenant}.")
    endpoint: str = Field("", description="Path of the search endpoint; may contain {index} and {tenant}.")
    request: dict[str, JsonValue] = Field(
        description="Request body with {query}, {k} and, for an index of several tenants, {tenant} in its strings. "
        '"{k}" alone becomes a number.'
    )
    hits_path: str = Field(description="Path of the list of hits in the reply, such as hits.hits.")
    id_path: str = Field(description="Path of the chunk's or document's id in a hit, such as _id or _source.doc_id.")
    score_path: str = Field("score", description="Path of the score in a hit. A hit without one gets 1/rank.")
    api_key_env: ApiKeyEnv = ""
    auth_header: NoRow[str] = Field(
        "Authorization: Bearer {key}",
        description="Header that carries the key. A key of the form user:password is sent as basic authentication.",
    )
    max_concurrency: MaxConcurrency = 8
    requests_per_minute: NoRow[int | None] = Field(None, gt=0, description="Rate limit. null: none.")
    timeout: Timeout = 30
    retry_timeout: RetryTimeout = 600

    @model_validator(mode="after")
    def _requests_are_complete(self) -> Self:
        if lacking := {"query", "k"} - placeholders(self.request):
            names = " and ".join(f'"{{{name}}}"' for name in sorted(lacking, reverse=True))
            raise ValueError(
                f"request has no {names}: put it where the engine expects the query and the number of hits"
            )
        if "{index}" in self.endpoint and not self.index:
            raise ValueError(f"index is required: the endpoint is {self.endpoint}")
        if ":" not in self.auth_header or "{key}" not in self.auth_header:
            raise ValueError("auth_header must have the form `Name: value` with {key} in the value")
        return self

    def address(self) -> str:
        from darklode.pipeline.base.remote.endpoint import address

        return address(self.base_url, self.api_key_env)

    def missing(self) -> list[str]:
        """A missing key, or a server that does not listen."""
        from darklode.pipeline.base.remote.endpoint import connection_problems

        return connection_problems(self.base_url, self.api_key_env, f"the {self.kind} at {self.base_url}")

    def connect(self, name: str, tenant: str) -> LiveSearch:
        from darklode.pipeline.base.remote.endpoint import Endpoint
        from darklode.pipeline.retrieve.retrievers.http_engine import HttpSearch, IndexVersion, ReplyFormat

        endpoint = Endpoint(
            section=f"retrievers.{name}",
            model=name,
            base_urls=(self.base_url,),
            path=self._path(self.endpoint, tenant),
            api_key_env=self.api_key_env,
            max_concurrency=self.max_concurrency,
            timeout=self.timeout,
            retry_timeout=self.retry_timeout,
            requests_per_minute=self.requests_per_minute,
            auth_header=self.auth_header,
            basic_auth=True,
        )
        return HttpSearch(
            endpoint,
            self.request,
            ReplyFormat(self.hits_path, self.id_path, self.score_path, self.LIST_OPTIONAL, self.reply_problem),
            tenant,
            IndexVersion(self.index_version, self._path(self.VERSION_PATH, tenant), self.read_version),
        )

    def _path(self, path: str, tenant: str) -> str:
        index = self.index.replace("{tenant}", tenant)
        return path.replace("{index}", quote(index, safe=",")).replace("{tenant}", quote(tenant, safe=""))

    @staticmethod
    def reply_problem(_reply: Mapping[str, Any]) -> str:
        """What makes a reply incomplete, as a predicate; empty if it is complete."""
        return ""

    @staticmethod
    def read_version(_reply: Mapping[str, Any]) -> str | None:
        """The version of the index in the reply of `VERSION_PATH`; None if it has none."""
        return None


class LuceneKind(EngineKind):
    """What OpenSearch and Elasticsearch share."""

    VERSION_PATH = "/{index}/_stats?level=shards"

    endpoint: str = Field(
        "/{index}/_search", description="Path of the search endpoint; may contain {index} and {tenant}."
    )
    hits_path: str = Field("hits.hits", description="Path of the list of hits in the reply.")
    id_path: str = Field("_id", description="Path of the chunk's or document's id in a hit, such as _source.doc_id.")
    score_path: str = Field("_score", description="Path of the score in a hit. A hit without one gets 1/rank.")

    @staticmethod
    def reply_problem(reply: Mapping[str, Any]) -> str:
        """Replies with status 200 may lack the hits of some shards."""
        if reply.get("timed_out"):
            return "is incomplete: the search timed out"
        shards = reply.get("_shards")
        failed = shards.get("failed") if isinstance(shards, dict) else 0
        return f"is incomplete: {failed} shards failed" if failed else ""

    @staticmethod
    def read_version(reply: Mapping[str, Any]) -> str | None:
        """The UUIDs of the indexes, and the highest sequence number of each primary shard: every write raises it."""
        from darklode.pipeline.base.artifacts import key_of

        state = [
            (name, index["uuid"], number, copy["seq_no"]["max_seq_no"])
            for name, index in sorted(reply["indices"].items())
            for number, copies in sorted(index["shards"].items())
            for copy in copies
            if copy["routing"]["primary"]
        ]
        return key_of(*(" ".join(map(str, shard)) for shard in state))[:16] if state else None
