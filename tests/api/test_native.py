"""The native API over HTTP."""

from tests.api.conftest import OpenClient


async def test_a_text_is_translated(open_client: OpenClient) -> None:
    """The first thing anybody tries."""
    async with open_client() as client:
        response = await client.post("/v1/translate", json={"text": "gato", "source": "pt", "target": "en"})
    assert response.status_code == 200
    assert response.json() == {}
