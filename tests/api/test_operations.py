"""Probes and KServe's endpoints."""

import pytest

from dragoman.service.app import create_app
from dragoman.service.catalog.catalog import ReloadReport
from dragoman.service.settings import Settings
from tests.api.conftest import OpenClient
from tests.api.fakes import FakeCatalog, FakeTranslator, fake_parts


async def test_probes_answer_what_their_callers_read(open_client: OpenClient) -> None:
    """KServe's client reads the fields, Triton's the status; TGI got the first one wrong."""
    async with open_client() as client:
        answers = {
            path: (await client.get(path)).json()
            for path in ("/v2/health/live", "/v2/health/ready", "/healthz", "/readyz")
        }
    assert answers == {
        "/v2/health/live": {"live": True},
        "/v2/health/ready": {"ready": True},
        "/healthz": {"live": True},
        "/readyz": {"ready": True},
    }


@pytest.mark.parametrize(("state", "reason"), [("loaded", "not_ready"), ("draining", "draining")])
async def test_a_server_that_cannot_serve_is_live_but_not_ready(
    open_client: OpenClient, state: str, reason: str
) -> None:
    """Kubernetes must stop sending requests, and must not kill it."""
    async with open_client() as client:
        lifecycle = client.app.state.rooms.lifecycle
        setattr(lifecycle, state, not getattr(lifecycle, state))
        ready, live = await client.get("/readyz"), await client.get("/healthz")
        kserve = await client.get("/v2/health/ready")
    assert (ready.status_code, ready.json()) == (503, {"ready": False, "reason": reason})
    assert (kserve.status_code, live.status_code) == (503, 200)


async def test_a_signal_while_bundles_are_loaded_is_not_forgotten(
    open_client: OpenClient, translator: FakeTranslator
) -> None:
    """A server that was told to leave before it had come must not call itself ready."""
    catalog = FakeCatalog()
    app = create_app(Settings(watch=False), build=fake_parts(translator, catalog))

    def told_to_leave() -> ReloadReport:
        app.state.rooms.lifecycle.draining = True
        return ReloadReport()

    catalog.reload = told_to_leave  # type: ignore[method-assign]
    async with open_client(app) as client:
        ready = await client.get("/readyz")
    assert (ready.status_code, ready.json()) == (503, {"ready": False, "reason": "draining"})


async def test_balancers_may_ask_with_head(open_client: OpenClient) -> None:
    """Some do."""
    async with open_client() as client:
        assert (await client.head("/healthz")).status_code == 200
        assert (await client.head("/readyz")).status_code == 200


async def test_kserve_finds_the_server_and_its_models(open_client: OpenClient) -> None:
    """By name, and by name and version."""
    async with open_client() as client:
        server = (await client.get("/v2")).json()
        model = (await client.get("/v2/models/pt-en")).json()
        paths = ("pt-en/ready", "pt-en/versions/1/ready", "pt-en/versions/1", "pt-en/versions/2", "xx", "xx/ready")
        statuses = [(await client.get(f"/v2/models/{path}")).status_code for path in paths]
    assert (server["name"], server["extensions"]) == ("dragoman", [])
    assert (model["name"], model["versions"]) == ("pt-en", ["1"])
    assert statuses == [200, 200, 200, 404, 404, 404]


async def test_answers_say_close_while_draining(open_client: OpenClient) -> None:
    """A client that keeps its connection would be cut off when the listener closes."""
    async with open_client() as client:
        client.app.state.rooms.lifecycle.draining = True
        response = await client.post("/v1/translate", json={"text": "gato", "target": "en"})
    assert (response.status_code, response.headers["connection"]) == (200, "close")
