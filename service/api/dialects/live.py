"""`GET /v1/live`: what the engines do right now, as server-sent events for the web page; never anyone's text.

Each event is the whole state: the rows of every batch, what waits, counters since the start, and rates since the
previous event. A watcher is cheap but not free, so their number is limited. Their streams end when the server drains.
It is part of the native dialect.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from dragoman.service.api.api_request import ApiRequest
from dragoman.service.api.context import Rooms
from dragoman.service.api.problems import document_problems
from dragoman.service.api.sse import Event, EventStream, document_events
from dragoman.service.api.validation import document_query, read_query
from dragoman.service.errors import BadRequest, InvalidRequest, RateLimited

RATES = ("requests", "segments", "source_tokens", "target_tokens")

router = APIRouter(prefix="/v1", tags=["native"])


class LiveQuery(BaseModel):
    interval_ms: int = Field(500, ge=50, le=60_000, description="Between events")


@router.get(
    "/live",
    summary="Slot states and aggregates, as they change",
    response_class=Response,
    responses={
        200: {
            "description": "Server-sent events `live`: {engines, totals, per_second, uptime_seconds, draining}",
            "content": document_events("live"),
        },
        **document_problems(BadRequest, InvalidRequest, RateLimited),
    },
    openapi_extra=document_query(LiveQuery),
)
async def get_live(request: ApiRequest) -> Response:
    rooms, query = request.rooms, read_query(request, LiveQuery)
    limit = rooms.limits.max_live_streams
    if rooms.watchers.count >= limit:
        raise RateLimited(f"At most {limit} pages can watch at one time; close another one.", retry_after_seconds=30)
    return EventStream(_events(rooms, query.interval_ms / 1000))


async def _events(rooms: Rooms, interval_seconds: float) -> AsyncGenerator[Event, None]:
    rooms.watchers.count += 1
    try:
        previous, previous_at = rooms.metrics.totals(), rooms.clock()
        while True:
            totals, now = rooms.metrics.totals(), rooms.clock()
            yield "live", _state(rooms, totals, previous, now - previous_at)
            if rooms.lifecycle.draining:
                return
            previous, previous_at = totals, now
            await asyncio.sleep(interval_seconds)
    finally:
        rooms.watchers.count -= 1


def _state(rooms: Rooms, totals: Mapping[str, float], previous: Mapping[str, float], seconds: float) -> dict[str, Any]:
    return {
        "uptime_seconds": round(rooms.clock() - rooms.started_at, 3),
        "draining": rooms.lifecycle.draining,
        "engines": [
            {"pair": pair, **asdict(snapshot), "active_rows": snapshot.active_rows}
            for pair, snapshot in rooms.snapshots().items()
        ],
        "totals": totals,
        "per_second": {
            name: round((totals[name] - previous[name]) / seconds, 3) if seconds > 0 else 0.0 for name in RATES
        },
    }
