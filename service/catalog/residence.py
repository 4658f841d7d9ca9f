"""Which bundles may be in memory: decisions about bytes, uses and times. `loading.py` carries them out.

A wish is granted when all its bundles are there together, so no two requests can wait for each other. Idle bundles make
room for others, the least recently used first. One in use is never let go: when the first wish that waits finds no idle
one, a bundle that has had its stay takes no new requests until it is idle. So every wish has its turn, and requests
for a bundle are answered together while it is there, however small the memory is.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

K = TypeVar("K", bound=Hashable)
State = Literal["absent", "loading", "resident", "leaving"]


@dataclass(eq=False)
class Wish(Generic[K]):
    """A request that waits until all these bundles are in memory."""

    keys: tuple[K, ...]


@dataclass
class Turn(Generic[K]):
    """What is to be done now, and when to look again although nothing happened."""

    granted: list[Wish[K]] = field(default_factory=list)
    load: list[K] = field(default_factory=list)
    evict: list[K] = field(default_factory=list)
    again_at: float | None = None


@dataclass
class _Stay:
    num_bytes: int
    state: State = "absent"
    num_users: int = 0
    used: int = 0  # a count that grows with every use
    since: float = 0.0
    removed: bool = False
    closing: bool = False  # takes no new users, because the first wish that waits needs the room

    @property
    def holds(self) -> bool:
        return self.state in ("loading", "resident")

    @property
    def open(self) -> bool:
        return self.state == "resident" and not self.closing and not self.removed


class Residence(Generic[K]):
    def __init__(self, max_bytes: int | None, max_loads: int = 2, stay_seconds: float = 1.0) -> None:
        """`max_bytes` of None lets everything stay. A busy bundle stays at least `stay_seconds`."""
        self.max_bytes, self._max_loads, self._stay_seconds = max_bytes, max_loads, stay_seconds
        self._stays: dict[K, _Stay] = {}
        self._waiting: list[Wish[K]] = []
        self._num_uses = 0

    # Telling

    def add(self, key: K, num_bytes: int) -> None:
        self._stays[key] = _Stay(num_bytes)

    def adopt(self, key: K, num_bytes: int, now: float) -> None:
        """A bundle that was loaded elsewhere; it may exceed the bound until others have left."""
        self._stays[key] = _Stay(num_bytes, "resident", since=now, used=self._next_use())

    def remove(self, key: K) -> list[Wish[K]]:
        """The bundle is offered no longer; it leaves when its users have. Returns the wishes that must look anew."""
        stay = self._stays.get(key)
        if stay is not None and stay.state == "absent":
            del self._stays[key]
        elif stay is not None:
            stay.removed = True
        return self._withdraw_all(key)

    def ask(self, wish: Wish[K]) -> bool:
        """Whether the wish may wait: not for a bundle that is offered no longer."""
        known = [self._stays.get(key) for key in wish.keys]
        if any(stay is None or stay.removed for stay in known):
            return False
        self._waiting.append(wish)
        return True

    def withdraw(self, wish: Wish[K]) -> None:
        if wish in self._waiting:
            self._waiting.remove(wish)

    def take(self, keys: Sequence[K]) -> bool:
        """Use them at once, if all are there and open."""
        if not all(key in self._stays and self._stays[key].open for key in keys):
            return False
        self._use(keys)
        return True

    def pin(self, key: K) -> bool:
        """Use it whether it is open or not; False if it is not in memory."""
        stay = self._stays.get(key)
        if stay is None or stay.state != "resident":
            return False
        self._use([key])
        return True

    def release(self, keys: Iterable[K]) -> None:
        for key in keys:
            self._stays[key].num_users -= 1
            self._stays[key].used = self._next_use()

    def loaded(self, key: K, now: float) -> None:
        stay = self._stays[key]
        stay.state, stay.since, stay.used = "resident", now, self._next_use()

    def failed(self, key: K) -> list[Wish[K]]:
        """The wishes that waited for it; who asks again begins another load."""
        self.gone(key)
        return self._withdraw_all(key)

    def gone(self, key: K) -> None:
        """Nothing of the bundle is in memory any more."""
        stay = self._stays[key]
        stay.state, stay.closing = "absent", False
        if stay.removed:
            del self._stays[key]

    # Asking

    @property
    def calm(self) -> bool:
        """Whether a turn would change nothing."""
        return not self._waiting and not self._over(0) and not any(stay.removed for stay in self._stays.values())

    def state(self, key: K) -> State:
        stay = self._stays.get(key)
        return "absent" if stay is None else stay.state

    def num_users(self, key: K) -> int:
        return self._stays[key].num_users

    def held_bytes(self) -> int:
        """Of all that is in memory, comes or leaves."""
        return sum(stay.num_bytes for stay in self._stays.values() if stay.state != "absent")

    def known(self) -> list[K]:
        return list(self._stays)

    def resident(self) -> list[K]:
        return [key for key, stay in self._stays.items() if stay.state == "resident"]

    # Deciding

    def turn(self, now: float) -> Turn[K]:
        turn: Turn[K] = Turn()
        for key, stay in self._stays.items():
            stay.closing = False
            if stay.removed and stay.state == "resident" and not stay.num_users:
                self._leave(key, turn)
        reserved: set[K] = set()
        for wish in self._waiting:
            reserved.update(wish.keys)
            missing = [key for key in wish.keys if not self._stays[key].holds]
            if missing and not self._has_room(wish, missing, reserved, now, turn):
                break  # nobody overtakes the first that needs room
            self._begin(missing, turn)
        self._grant(turn)
        self._trim(reserved, turn)
        return turn

    def _has_room(self, wish: Wish[K], missing: Sequence[K], reserved: set[K], now: float, turn: Turn[K]) -> bool:
        if self.max_bytes is None:
            return True
        need = sum(self._stays[key].num_bytes for key in missing)
        self._evict_idle(need, reserved, turn)
        if self._over(need):
            self._close_busy(need, reserved, now, turn)
        alone = not any(stay.state != "absent" for key, stay in self._stays.items() if key not in wish.keys)
        return alone or self.held_bytes() + need <= self.max_bytes

    def _evict_idle(self, need: int, reserved: set[K], turn: Turn[K]) -> None:
        idle = [key for key, stay in self._stays.items() if stay.state == "resident" and not stay.num_users]
        for key in sorted(set(idle) - reserved, key=lambda key: self._stays[key].used):
            if self._over(need):
                self._leave(key, turn)

    def _close_busy(self, need: int, reserved: set[K], now: float, turn: Turn[K]) -> None:
        over = self._over(need)
        busy = [key for key, stay in self._stays.items() if stay.state == "resident" and key not in reserved]
        for key in sorted(busy, key=lambda key: self._stays[key].since):
            stay = self._stays[key]
            if over <= 0:
                return
            if now < stay.since + self._stay_seconds:
                turn.again_at = min(turn.again_at or stay.since + self._stay_seconds, stay.since + self._stay_seconds)
                return
            stay.closing = True
            over -= stay.num_bytes

    def _begin(self, missing: Sequence[K], turn: Turn[K]) -> None:
        under_way = sum(stay.state == "loading" for stay in self._stays.values())
        for key in missing:
            if self._stays[key].state == "absent" and under_way < self._max_loads:
                self._stays[key].state = "loading"
                turn.load.append(key)
                under_way += 1

    def _grant(self, turn: Turn[K]) -> None:
        for wish in list(self._waiting):
            if self.take(wish.keys):
                self._waiting.remove(wish)
                turn.granted.append(wish)

    def _trim(self, reserved: set[K], turn: Turn[K]) -> None:
        """Back within the bound when users have left; a bundle that is larger than the bound stays while alone."""
        idle = [key for key, stay in self._stays.items() if stay.state == "resident" and not stay.num_users]
        for key in sorted(set(idle) - reserved, key=lambda key: self._stays[key].used):
            if self._over(0) and sum(stay.holds for stay in self._stays.values()) > 1:
                self._leave(key, turn)

    def _over(self, need: int) -> int:
        """Bytes beyond the bound when those that leave are gone; 0 if there are none."""
        if self.max_bytes is None:
            return 0
        staying = sum(stay.num_bytes for stay in self._stays.values() if stay.holds)
        return max(0, staying + need - self.max_bytes)

    def _leave(self, key: K, turn: Turn[K]) -> None:
        self._stays[key].state = "leaving"
        turn.evict.append(key)

    def _use(self, keys: Sequence[K]) -> None:
        for key in keys:
            self._stays[key].num_users += 1
            self._stays[key].used = self._next_use()

    def _next_use(self) -> int:
        self._num_uses += 1
        return self._num_uses

    def _withdraw_all(self, key: K) -> list[Wish[K]]:
        found = [wish for wish in self._waiting if key in wish.keys]
        self._waiting = [wish for wish in self._waiting if key not in wish.keys]
        return found
