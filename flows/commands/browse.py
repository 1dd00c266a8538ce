"""darklode browse: explore a run in the browser."""

from __future__ import annotations

import time

from darklode.flows.commands.options import OpenOption, PortOption, RunArgument, application
from darklode.flows.console import console

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
    from darklode.flows.runs import existing, read_run
    from darklode.flows.web.browse import Browser, browse_app
    from darklode.flows.web.server import LOOPBACK, ListenAddress, listen, new_token, serve, show_addresses
    from darklode.pipeline.base.terms import Analyzer
    from darklode.pipeline.browse.catalogue import open_catalogue

    address, token = ListenAddress(LOOPBACK[0], port, ()), new_token()
    existing_run = existing(run)
    terms = read_run(existing_run).settings.bm25

    def ready() -> None:
        seconds = time.perf_counter() - start
        console.print(f"Loaded in {seconds:.1f} s. The run is not modified. Press Ctrl-C to stop.\n")
        show_addresses(address.addresses(opened, token), open_browser=open_browser)

    with listen(address) as opened:
        start = time.perf_counter()
        with open_catalogue(existing_run) as catalogue:
            browser = Browser(catalogue, Analyzer(terms.stemmer, terms.stop_words))
            serve(browse_app(browser, token, address.allowed_hosts), opened, ready)
