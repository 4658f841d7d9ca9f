"""Every refusal and failure that a caller can meet, with its status and reason, in one place.

    DragomanError
    ├── BadRequest            400  bad_request      the bytes could not be read: not JSON, not UTF-8, no such type
    ├── Forbidden             403  forbidden        no key, or one that is not known
    ├── NotFound              404  not_found        no such path
    │   └── UnknownPair       404  unknown_pair     no bundle serves these two languages
    ├── MethodNotAllowed      405  method           the path exists, the verb does not
    ├── SlowBody              408  slow_body        the body did not arrive in time
    ├── TooLarge              413  too_large        body, text or batch above a limit
    ├── InvalidRequest        422  invalid_request  read, but not what the contract asks for
    │   └── StrictRefusal     422  strict           `strict` was asked for, and something would have been lost
    ├── HeadersTooLarge       431  headers          request line and headers above a limit
    ├── RetryLater
    │   ├── RateLimited       429  rate_limited     this key, or this caller, is too fast
    │   ├── QuotaExceeded     429  quota            this key has used up its characters (456 to DeepL clients)
    │   ├── QueueFull         429  queue_full       the engine has all the work it can promise to do
    │   ├── NotReady          503  not_ready        no bundle is loaded yet, or this pair's could not be loaded
    │   └── Draining          503  draining         shutting down: ask another replica
    ├── DeadlineExceeded      504  deadline         the request's own time ran out
    └── InternalError         500  internal         our fault; the log has it, the caller gets the request id

Raise the most specific one with a sentence that says what to do. The sentence goes to the caller, so it never
holds any of the request's text. How an error looks on the wire belongs to each file of `service/api`.
"""

# ruff: noqa: N818 - the names are what happened, as the caller reads them: `QueueFull`, not `QueueFullError`

from collections.abc import Iterator
from typing import ClassVar


class DragomanError(Exception):
    """Root of the tree. `detail` is one sentence for the caller."""

    status: ClassVar[int] = 500
    reason: ClassVar[str] = "internal"
    title: ClassVar[str] = "Internal error"

    retry_after_seconds: float | None = None

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class BadRequest(DragomanError):
    status, reason, title = 400, "bad_request", "Bad request"


class Forbidden(DragomanError):
    status, reason, title = 403, "forbidden", "Forbidden"


class NotFound(DragomanError):
    status, reason, title = 404, "not_found", "Not found"


class UnknownPair(NotFound):
    reason, title = "unknown_pair", "Unknown language pair"


class MethodNotAllowed(DragomanError):
    status, reason, title = 405, "method", "Method not allowed"


class SlowBody(DragomanError):
    status, reason, title = 408, "slow_body", "The body came too slowly"


class TooLarge(DragomanError):
    status, reason, title = 413, "too_large", "Too large"


class InvalidRequest(DragomanError):
    status, reason, title = 422, "invalid_request", "Invalid request"


class StrictRefusal(InvalidRequest):
    reason, title = "strict", "Refused by strict"


class HeadersTooLarge(DragomanError):
    status, reason, title = 431, "headers", "Headers too large"


class RetryLater(DragomanError):
    """The same request may succeed later: `retry_after_seconds` becomes the `Retry-After` header."""

    def __init__(self, detail: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(detail)
        self.retry_after_seconds = retry_after_seconds


class RateLimited(RetryLater):
    status, reason, title = 429, "rate_limited", "Too many requests"


class QuotaExceeded(RetryLater):
    status, reason, title = 429, "quota", "Quota exceeded"


class QueueFull(RetryLater):
    status, reason, title = 429, "queue_full", "Too busy"


class NotReady(RetryLater):
    status, reason, title = 503, "not_ready", "Not ready"


class Draining(RetryLater):
    status, reason, title = 503, "draining", "Shutting down"


class DeadlineExceeded(DragomanError):
    status, reason, title = 504, "deadline", "Deadline exceeded"


class InternalError(DragomanError):
    status, reason, title = 500, "internal", "Internal error"


class ClientLeft(Exception):
    """The caller hung up: there is nobody to answer, so this is outside the tree."""


def error_types(root: type[DragomanError] = DragomanError) -> Iterator[type[DragomanError]]:
    """All leaves and inner nodes that can be raised, for whoever must list every reason (metrics, documents)."""
    for error_type in root.__subclasses__():
        if error_type is not RetryLater:
            yield error_type
        yield from error_types(error_type)
