"""Memory has a bound: whatever comes and goes, nothing in use is let go, and everybody is served in the end."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.service.catalog.residence import Residence, Wish

SIZES = {"a": 3, "b": 4, "c": 5, "d": 2, "e": 9}
KEYS = st.sampled_from(sorted(SIZES))
EVENTS = st.one_of(
    st.tuples(st.just("ask"), st.lists(KEYS, min_size=1, max_size=2, unique=True)),
    st.tuples(st.sampled_from(["release", "loaded", "failed", "gone", "give up", "wait"]), st.integers(0, 20)),
)


class World:
    """Carries out what a residence decides, in any order, and checks every decision."""

    def __init__(self, bound: int) -> None:
        self.bound, self.now = bound, 0.0
        self.residence: Residence[str] = Residence(bound, max_loads=2, stay_seconds=1.0)
        for key, size in SIZES.items():
            self.residence.add(key, size)
        self.waiting: list[Wish[str]] = []
        self.using: list[Wish[str]] = []
        self.loading: list[str] = []
        self.leaving: list[str] = []

    def do(self, event: str, value: object) -> None:
        if event == "ask":
            wish = Wish(tuple(value))  # type: ignore[arg-type]
            assert self.residence.ask(wish)
            self.waiting.append(wish)
        elif event == "wait":
            self.now += 1.5
        else:
            self._one_of(event, value)  # type: ignore[arg-type]
        self.turn()

    def _one_of(self, event: str, number: int) -> None:
        pool = {"release": self.using, "loaded": self.loading, "failed": self.loading, "gone": self.leaving}.get(
            event, self.waiting
        )
        if not pool:
            return
        chosen = pool.pop(number % len(pool))  # type: ignore[attr-defined]
        if event == "release":
            self.residence.release(chosen.keys)
        elif event == "loaded":
            self.residence.loaded(chosen, self.now)
        elif event == "failed":
            for wish in self.residence.failed(chosen):
                self.waiting.remove(wish)
        elif event == "gone":
            self.residence.gone(chosen)
        else:
            self.residence.withdraw(chosen)

    def turn(self) -> None:
        used = {key for wish in self.using for key in wish.keys}
        turn = self.residence.turn(self.now)
        assert not used & set(turn.evict), "one in use was let go"
        for wish in turn.granted:
            assert all(self.residence.state(key) == "resident" for key in wish.keys)
            self.waiting.remove(wish)
            self.using.append(wish)
        self.loading += turn.load
        self.leaving += turn.evict
        assert len(self.loading) <= 2
        self._check_bound()

    def _check_bound(self) -> None:
        """Beyond the bound is only what is in use or being loaded for a wish that is larger than the bound, or one
        bundle alone that is."""
        staying = self.residence.held_bytes() - sum(SIZES[key] for key in self.leaving)
        used = {key for wish in self.using for key in wish.keys} | set(self.loading)
        allowed = [used | set(wish.keys) for wish in self.waiting] + [used, {"e"}]
        assert staying <= max(self.bound, *(sum(SIZES[key] for key in keys) for keys in allowed))

    def finish(self) -> None:
        """Everybody leaves when served: then everybody must be served."""
        for _ in range(400):
            if not (self.waiting or self.using or self.loading or self.leaving):
                return
            for event in ("release", "loaded", "gone", "wait"):
                self.do(event, 0)
        raise AssertionError(f"{len(self.waiting)} wishes were never granted")


@settings(max_examples=300, deadline=None)
@given(bound=st.integers(1, 16), events=st.lists(EVENTS, max_size=60))
def test_any_sequence_keeps_the_bound_and_serves_everyone(bound: int, events: list[tuple[str, object]]) -> None:
    """The order of loads, failures, uses and leaves is the world's; the promises are ours."""
    world = World(bound)
    for event, value in events:
        world.do(event, value)
    world.finish()


@settings(max_examples=50, deadline=None)
@given(bound=st.integers(5, 9))
def test_a_wish_is_served_although_others_never_pause(bound: int) -> None:
    """Requests that overlap keep their bundle busy for ever; the one that waits must have its turn."""
    world = World(bound)
    world.do("ask", ["a"])
    world.do("loaded", 0)
    world.do("ask", ["c"])
    wish = world.waiting[-1]
    for _ in range(40):
        if wish in world.using:
            return
        world.do("ask", ["a"])  # before the other one of the same bundle has left
        world.do("release", 0)
        for event in ("gone", "loaded", "wait"):
            world.do(event, 0)
    raise AssertionError("it waited for ever")


def test_the_least_recently_used_one_leaves() -> None:
    """What was used last will most likely be used next."""
    world = World(8)
    for key in ("a", "d", "a"):
        world.do("ask", [key])
        world.do("loaded", 0)
        world.do("release", 0)
    world.do("ask", ["b"])
    assert world.leaving == ["d"]
