"""uvicorn still has the parts that we rely on although it does not promise them.

What they do is tested over sockets, in `test_edges.py` and `test_process.py`; these tests say which part has changed.
"""

import inspect
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import FlowControl, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

OVERRIDDEN = [
    (HttpToolsProtocol, "connection_made", ["self", "transport"]),
    (HttpToolsProtocol, "connection_lost", ["self", "exc"]),
    (HttpToolsProtocol, "data_received", ["self", "data"]),
    (HttpToolsProtocol, "on_message_begin", ["self"]),
    (HttpToolsProtocol, "on_headers_complete", ["self"]),
    (HttpToolsProtocol, "_start_asgi_task", ["self", "cycle", "app"]),
    (uvicorn.Server, "startup", ["self", "sockets"]),
    (uvicorn.Server, "on_tick", ["self", "counter"]),
    (uvicorn.Server, "handle_exit", ["self", "sig", "frame"]),
    (uvicorn.Server, "capture_signals", ["self"]),
    (uvicorn.Server, "_serve", ["self", "sockets"]),  # called by the tests
]


@pytest.mark.parametrize(("owner", "name", "parameters"), OVERRIDDEN)
def test_methods_that_we_override_are_there(owner: type, name: str, parameters: list[str]) -> None:
    """A method that uvicorn renamed would be ours alone, and never be called."""
    assert list(inspect.signature(getattr(owner, name)).parameters) == parameters


@pytest.mark.parametrize(
    ("owner", "name", "calls"),
    [
        (
            HttpToolsProtocol,
            "on_headers_complete",
            ["self._start_asgi_task(", "self.flow.pause_reading"],
        ),
        (HttpToolsProtocol, "on_response_complete", ["self._start_asgi_task(", "self.pipeline.pop()"]),
        (HttpToolsProtocol, "connection_lost", ["self.cycle.disconnected", "message_event.set()"]),
        (uvicorn.Server, "_serve", ["self.startup(", "self.main_loop("]),
        (uvicorn.Server, "main_loop", ["self.on_tick("]),
        (uvicorn.Server, "serve", ["self.capture_signals("]),
    ],
)
def test_uvicorn_still_calls_them(owner: type, name: str, calls: list[str]) -> None:
    """An override that nobody calls limits nothing, and no error would tell."""
    source = inspect.getsource(getattr(owner, name))
    assert [call for call in calls if call not in source] == []


async def test_attributes_that_we_read_are_there() -> None:
    """Of a connection, of the request in work, and of the server."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError

    config = uvicorn.Config(app, lifespan="off", log_config=None)
    protocol = HttpToolsProtocol(config, ServerState(), {})
    protocol.on_message_begin()
    for name in ("loop", "transport", "flow", "pipeline", "scope", "headers", "url"):
        assert hasattr(protocol, name), name
    parameters = dict.fromkeys(list(inspect.signature(RequestResponseCycle).parameters))
    cycle = RequestResponseCycle(**parameters)
    assert (cycle.response_started, cycle.response_complete, cycle.disconnected) == (False, False, False)
    assert hasattr(cycle, "message_event")
    assert hasattr(FlowControl, "resume_reading")
    server = uvicorn.Server(config)
    assert (server.started, server.should_exit) == (False, False)
