"""Limits against clients that are slow, broken or too many. They are no settings: no operator has to change them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EdgeLimits:
    """Tests make them smaller."""

    body_timeout_seconds: float = 15.0  # for a body to arrive; beyond it 408
    header_timeout_seconds: float = 10.0  # for headers to arrive; beyond it 408, and the connection closes
    max_header_bytes: int = 32_768  # of request line and headers; beyond it 431
    max_live_streams: int = 64  # watchers of `/v1/live` at one time; beyond it 429


DEFAULT_LIMITS = EdgeLimits()
