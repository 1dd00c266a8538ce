"""A reply that came over a connection before is refused; the sockets themselves are tested in `test_endpoint`."""

import inspect

import aiohttp

from darklode.pipeline.base.remote.connections import CheckedRequest, CheckedResponse, OutOfStep


def test_requests_and_responses_are_those_of_the_library() -> None:
    """What is overridden must exist there: a renamed method would switch the check off in silence."""
    assert issubclass(CheckedRequest, aiohttp.ClientRequest)
    assert issubclass(CheckedResponse, aiohttp.ClientResponse)
    assert issubclass(OutOfStep, aiohttp.ClientError)
    for kind, name in ((aiohttp.ClientRequest, "send"), (aiohttp.ClientResponse, "start")):
        assert inspect.iscoroutinefunction(getattr(kind, name))
