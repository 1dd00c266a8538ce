"""darklode browse: explore a run in the browser."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from darklode.flows.commands.options import OpenOption, PortOption, RunArgument, application
from darklode.flows.console import console

if TYPE_CHECKING:
    from darklode.flows.web.browse import Browser
    from darklode.pipeline.base.artifacts import Run

app = application()

PORT = 8766


@app.command(epilog="Example: darklode browse runs/first --open")
def browse(
    run: RunArgument,
    *,
    port: PortOption = PORT,
    open_browser: OpenOption = False,
) -> None:
    """Explore a run in the browser: search queries, pairs, triplets and rejects; read-only."""
    from darklode.flows.runs import existing
    from darklode.flows.web.browse import browse_app
    from darklode.flows.web.server import LOOPBACK, ListenAddress, listen, new_token, serve, show_addresses

    address, token = ListenAddress(LOOPBACK[0], port, ()), new_token()
    existing_run = existing(run)

    def ready() -> None:
        seconds = time.perf_counter() - start
        console.print(f"Loaded in {seconds:.1f} s. The run is not modified. Press Ctrl-C to stop.\n")
        show_addresses(address.addresses(opened, token), open_browser=open_browser)

    with listen(address) as opened:
        start = time.perf_counter()
        with open_browser_pages(existing_run) as browser:
            serve(browse_app(browser, token, address.allowed_hosts), opened, ready)


@contextmanager
def open_browser_pages(run: Run) -> Iterator[Browser]:
    """The pages of a run."""
    from darklode.flows.runs import read_run
    from darklode.flows.web.browse import Browser
    from darklode.pipeline.base.terms import Analyzer
    from darklode.pipeline.browse.catalogue import open_catalogue

    terms = read_run(run).settings.bm25
    with open_catalogue(run) as catalogue:
        yield Browser(catalogue, Analyzer(terms.stemmer, terms.stop_words))
