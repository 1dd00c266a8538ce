"""darklode serve: try out an index over HTTP or on a web page."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from darklode.flows.commands.options import (
    LOOPBACK,
    AllowHostOption,
    ConfigOption,
    HostOption,
    OpenOption,
    PortOption,
    SetOption,
    TenantOption,
    application,
)
from darklode.flows.console import console, printable

if TYPE_CHECKING:
    from darklode.flows.web.search import SearchConsole

app = application()

PORT = 8767


@app.command(epilog="Example: darklode serve indexes/first --encoder base --encoder student --open")
def serve(
    folder: Annotated[
        str,
        typer.Argument(metavar="INDEX", help="Output folder of `darklode index`, or a run; s3://bucket/prefix works."),
    ],
    *,
    encoder: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Query encoder: `base` (the index's encoder; the default), an encoder from the settings, a "
            "sentence-transformers model, or an output folder of `adapt` or `train-towers`. Repeat it to compare two.",
        ),
    ] = None,
    tenant: TenantOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    port: PortOption = PORT,
    host: HostOption = LOOPBACK,
    allow_host: AllowHostOption = None,
    open_browser: OpenOption = False,
) -> None:
    """Serve an index over HTTP and on a web page, for trying it out; not a production search engine."""
    from darklode.flows.config import changed_values
    from darklode.flows.web.search import SEARCH_PATH, search_app
    from darklode.flows.web.server import ListenAddress, listen, new_token, show_addresses
    from darklode.flows.web.server import serve as answer

    values = changed_values(config, assignments)
    address, token = ListenAddress(host, port, tuple(allow_host or ())), new_token()

    def ready() -> None:
        console.print(f"{console_pages.about}, ready in {time.perf_counter() - start:.1f} s. Press Ctrl-C to stop.\n")
        addresses = address.addresses(opened, token)
        example = f'curl {addresses[0].rstrip("/")}{SEARCH_PATH} -d \'{{"query": "…"}}\''
        show_addresses(addresses, open_browser=open_browser)
        console.print(printable(example), soft_wrap=True)

    with listen(address) as opened:
        start = time.perf_counter()
        with open_console(folder, encoder or [], tenant, values) as console_pages:
            answer(search_app(console_pages, token, address.allowed_hosts), opened, ready)


@contextmanager
def open_console(
    folder: str, encoder: Sequence[str], tenant: str | None, values: Mapping[str, Any]
) -> Iterator[SearchConsole]:
    """The search page and endpoint of an index or run; arguments as for `open_service`."""
    from darklode.flows.open_index import open_service
    from darklode.flows.web.search import MAX_BATCH_QUERIES, MAX_WAITING_QUERIES, SearchConsole
    from darklode.pipeline.base.terms import Analyzer
    from darklode.pipeline.serve.batching import RequestBatcher

    with open_service(folder, encoder, tenant, values) as served:
        terms = served.settings.bm25
        analyzer = Analyzer(terms.stemmer, terms.stop_words)
        batches = RequestBatcher(served.service.answers, max_batch=MAX_BATCH_QUERIES, waiting=MAX_WAITING_QUERIES)
        try:
            yield SearchConsole(folder.rstrip("/"), served.about, served.service, batches, analyzer)
        finally:
            batches.close()
