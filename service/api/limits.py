"""How much a caller may ask for: requests per minute, and characters per month.

Rates are counted in memory, by each replica on its own. Characters are counted per key and calendar month (UTC) and
kept in the state directory across restarts; without a state directory they are counted from the start of the process.
A replica needs a state directory of its own: two that share one overwrite each other's counts.
"""

import json
import logging
import math
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from dragoman.service.api.keys import Key, KeyRing, replace_file
from dragoman.service.errors import ClientLeft, Forbidden, QuotaExceeded, RateLimited

USAGE_FILE = "usage.json"
MAX_CALLERS = 10_000  # remembered at one time; the one not seen for longest is forgotten first

log = logging.getLogger("dragoman.limits")


class RateLimiter:
    """Token buckets: a minute's requests may come at once, after that as many as the rate allows."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # caller -> (level, at)

    def take(self, caller: str, per_minute: int) -> float | None:
        """None if this request may pass, else the seconds until the next one may."""
        now = self._clock()
        level, at = self._buckets.pop(caller, (float(per_minute), now))
        level = min(float(per_minute), level + (now - at) * per_minute / 60)
        allowed = level >= 1
        self._buckets[caller] = (level - 1 if allowed else level, now)
        if len(self._buckets) > MAX_CALLERS:
            self._buckets.popitem(last=False)
        return None if allowed else (1 - level) * 60 / per_minute if per_minute else 60.0


class Usage:
    """Characters used this month, by key."""

    def __init__(self, state_dir: Path | None, today: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._path = state_dir / USAGE_FILE if state_dir else None
        self._today = today
        self._month, self._characters = self._read()
        self._saved = dict(self._characters)

    def used(self, name: str) -> int:
        self._turn_page()
        return self._characters.get(name, 0)

    def add(self, name: str, characters: int) -> None:
        self._turn_page()
        self._characters[name] = max(0, self._characters.get(name, 0) + characters)

    def seconds_to_next_month(self) -> float:
        now = self._today()
        first = datetime(now.year + now.month // 12, now.month % 12 + 1, 1, tzinfo=UTC)
        return (first - now).total_seconds()

    def save(self) -> None:
        """Write the counts if they have changed, and if there is a state directory."""
        if self._path is None or self._characters == self._saved:
            return
        snapshot = dict(self._characters)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, json.dumps({"month": self._month, "characters": snapshot}).encode())
            self._saved = snapshot
        except OSError as error:
            log.error("used characters could not be saved: %s", error.strerror)

    def _turn_page(self) -> None:
        month = self._today().strftime("%Y-%m")
        if month != self._month:
            self._month, self._characters = month, {}

    def _read(self) -> tuple[str, dict[str, int]]:
        month = self._today().strftime("%Y-%m")
        try:
            state = json.loads(self._path.read_bytes()) if self._path else {}
            if state.get("month") == month:
                return month, {str(name): int(used) for name, used in state["characters"].items()}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            log.error("used characters could not be read, counting from 0: %s", type(error).__name__)
        return month, {}


class Gate:
    """Lets callers in: the key first, then its rate, then its characters."""

    def __init__(self, keys: KeyRing, rates: RateLimiter, usage: Usage, requests_per_minute: int) -> None:
        self.keys = keys
        self.usage = usage
        self._rates = rates
        self._requests_per_minute = requests_per_minute

    @property
    def key_required(self) -> bool:
        return self.keys.in_use

    def admit(self, sent: str | None, address: str) -> Key | None:
        """Check the key that was sent, and take one request from its rate, or else from the address's."""
        key = self._known(sent)
        caller, per_minute = f"address {address}", self._requests_per_minute or None
        if key is not None:
            caller, per_minute = f"key {key.name}", key.requests_per_minute
        wait = None if per_minute is None else self._rates.take(caller, per_minute)
        if wait is not None:
            raise RateLimited(
                f"At most {per_minute} requests per minute (counted by each replica on its own); "
                f"try again in {math.ceil(wait)} s.",
                retry_after_seconds=wait,
            )
        return key

    def charge(self, key: Key | None, characters: int) -> "Charge":
        return Charge(self.usage, key, characters)

    def _known(self, sent: str | None) -> Key | None:
        """With a keys file a known key is required; without one any key is ignored."""
        if not self.keys.in_use:
            return None
        if not sent:
            raise Forbidden("An API key is needed; send one with the request.")
        key = self.keys.find(sent)
        if key is None:
            raise Forbidden("This API key is not known; check it, or ask for a new one.")
        return key


class Charge:
    """Counts the characters of a piece of work for a key, before the work: no two requests share the last ones.

    If the work fails, they are given back. They stay counted if the caller left before the end, or has had a part of
    the answer: that work was done.
    """

    def __init__(self, usage: Usage, key: Key | None, characters: int) -> None:
        self._usage, self._key, self._characters = usage, key, characters
        self.delivered = False  # the caller has had a part of the answer

    def __enter__(self) -> Self:
        if self._key is not None:
            self._check_quota(self._key)
            self._usage.add(self._key.name, self._characters)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        failed = isinstance(error, Exception) and not isinstance(error, ClientLeft)
        if failed and self._key is not None and not self.delivered:
            self._usage.add(self._key.name, -self._characters)

    def _check_quota(self, key: Key) -> None:
        used, limit = self._usage.used(key.name), key.characters_per_month
        if limit is not None and used + self._characters > limit:
            raise QuotaExceeded(
                f"Quota for this month has been exceeded: {used} of {limit} characters are used.",
                retry_after_seconds=self._usage.seconds_to_next_month(),
            )
