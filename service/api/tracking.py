"""The outermost layer: gives a request its id and its record, adds headers to every answer, and closes the record.

A closed record becomes one line in the log, the metrics of requests and, if wanted, a trace.
"""

import logging
import random
import re
from collections.abc import Callable, Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dragoman.service.api.context import Lifecycle, RequestRecord, header_in
from dragoman.service.api.dialects.base import DialectIndex
from dragoman.service.telemetry.logs import ACCESS
from dragoman.service.telemetry.metrics import Metrics, Outcome
from dragoman.service.telemetry.tracing import Stages, Tracing

Header = tuple[bytes, bytes]
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
API_CONTENT_SECURITY_POLICY = "default-src 'none'; frame-ancestors 'none'"
ALWAYS = ((b"x-content-type-options", b"nosniff"), (b"x-frame-options", b"DENY"), (b"referrer-policy", b"no-referrer"))
UNLESS_GIVEN = (
    (b"content-security-policy", API_CONTENT_SECURITY_POLICY.encode()),
    (b"cache-control", b"no-store"),
)

access_log = logging.getLogger(ACCESS)


class Tracking:
    def __init__(
        self,
        app: ASGIApp,
        dialects: DialectIndex,
        metrics: Metrics,
        lifecycle: Lifecycle,
        clock: Callable[[], float],
        log_requests: bool,
        tracing: Tracing | None,
    ) -> None:
        self._app = app
        self._dialects = dialects
        self._metrics = metrics
        self._lifecycle = lifecycle
        self._clock = clock
        self._log_requests = log_requests
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = self._open_record(scope)
        scope.setdefault("state", {})["record"] = record
        try:
            await self._app(scope, receive, self._sender(record, send))
        finally:
            self._close_record(scope, record)

    def _open_record(self, scope: Scope) -> RequestRecord:
        sent_id = header_in(scope, b"x-request-id")
        usable = sent_id is not None and REQUEST_ID.fullmatch(sent_id)
        return RequestRecord(
            request_id=sent_id if sent_id and usable else f"{random.getrandbits(128):032x}",
            dialect=self._dialects.of_path(scope["path"]),
            method=scope["method"],
            address=scope["client"][0] if scope.get("client") else "",
            started_at=self._clock(),
            trace_parent=header_in(scope, b"traceparent"),
        )

    def _sender(self, record: RequestRecord, send: Send) -> Send:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                message["headers"] = self._headers(message.get("headers", ()), record)
            await send(message)

        return send_with_headers

    def _headers(self, own: Sequence[Header], record: RequestRecord) -> list[Header]:
        """An answer's own headers, and those that every answer has."""
        given = dict(own)
        headers = [*own, (b"x-request-id", record.request_id.encode()), *ALWAYS]
        headers += [header for header in UNLESS_GIVEN if header[0] not in given]
        if self._lifecycle.draining:
            headers.append((b"connection", b"close"))
        return headers

    def _close_record(self, scope: Scope, record: RequestRecord) -> None:
        record.route = getattr(scope.get("route"), "path", record.route)  # FastAPI's, of a page
        seconds = self._clock() - record.started_at
        outcome: Outcome = "cancelled" if record.client_left else _outcome(record.status or 500)
        duration = seconds if record.translates else None
        self._metrics.request_finished(record.dialect.label, outcome, duration, record.pair)
        if record.reason is not None:
            self._metrics.rejected(record.reason)
        if self._tracing is not None and record.translates:
            name = f"{record.method} {record.route}"
            self._tracing.export(name, seconds, _stages(record), _attributes(record, outcome), record.trace_parent)
        if self._log_requests and (outcome != "ok" or record.route not in record.dialect.quiet_paths):
            access_log.info("request", extra=_fields(record, outcome, seconds))


def _outcome(status: int) -> Outcome:
    if status < 400:
        return "ok"
    if status in (429, 456, 503, 504):  # 456 is DeepL's status for an exhausted quota
        return "refused"
    return "invalid" if status < 500 else "failed"


def _fields(record: RequestRecord, outcome: Outcome, seconds: float) -> dict[str, object]:
    fields = {
        "request_id": record.request_id,
        "api": record.dialect.label,
        "method": record.method,
        "route": record.route,
        "status": None if record.client_left else record.status,
        "outcome": outcome,
        "reason": record.reason,
        "duration_ms": round(seconds * 1000, 3),
        "address": record.address,
        "key": record.key,
        "pair": record.pair,
        "texts": record.num_texts or None,
        "characters": record.num_characters or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _stages(record: RequestRecord) -> Stages:
    timings = record.timings
    return (
        ("queue", timings.queue_seconds),
        ("encode", timings.encode_seconds),
        ("decode", timings.decode_seconds),
    )


def _attributes(record: RequestRecord, outcome: Outcome) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {
        "http.request.method": record.method,
        "http.route": record.route,
        "http.response.status_code": record.status or 0,
        "dragoman.request_id": record.request_id,
        "dragoman.api": record.dialect.label,
        "dragoman.outcome": outcome,
        "dragoman.texts": record.num_texts,
        "dragoman.characters": record.num_characters,
    }
    return attributes | ({"dragoman.pair": record.pair} if record.pair else {})
