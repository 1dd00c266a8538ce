"""darklode browse: a run to search and look at, in the browser."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from darklode.flows.commands.options import RunArgument, application
from darklode.flows.console import console, printable

app = application()

PORT = 8766


@app.command(epilog="Example: darklode browse runs/first --open")
def browse(
    run: RunArgument,
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where the pages are; 0 takes a free port.")] = PORT,
    open_browser: Annotated[bool, typer.Option("--open", help="Open them in this machine's browser.")] = False,
) -> None:
    """Search and look at queries, pairs, triplets and rejects, on local web pages."""
    from darklode.flows.runs import existing, recorded
    from darklode.flows.web.browse import Browser, browse_app
    from darklode.flows.web.server import LOOPBACK, Place, listen, new_token, serve
    from darklode.pipeline.base.terms import Analyzer
    from darklode.pipeline.browse.catalogue import open_catalogue

    place, token = Place(LOOPBACK[0], port, ()), new_token()
    there = existing(run)
    terms = recorded(there).settings.bm25

    def ready() -> None:
        (address,) = place.addresses(opened, token)
        console.print(f"Read in {time.perf_counter() - began:.1f} s. Nothing is written to the run. Ctrl-C ends it.\n")
        console.print(printable(address), soft_wrap=True)
        if open_browser:
            typer.launch(address)

    with listen(place) as opened:
        began = time.perf_counter()
        with open_catalogue(there) as catalogue:
            browser = Browser(catalogue, Analyzer(terms.stemmer, terms.stop_words))
            serve(browse_app(browser, token, place.hosts), opened, ready)
