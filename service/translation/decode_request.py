"""One decode request: a unit, what is asked for it, and the promise of its result."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

from dragoman.service.engine.job import DecodingOptions, DecodingResult
from dragoman.service.engine.promise import Promise
from dragoman.service.translation.plan import Planner
from dragoman.service.translation.unit import Plan, Unit

# The identity of the bundle (equal only for equal files), the source ids, the options and the tenant. Decodes with
# equal keys have equal results. The tenant is a part of the key so that the speed of an answer tells nobody what others
# asked.
DecodeKey = tuple[str, tuple[int, ...], DecodingOptions, str]


@dataclass(eq=False, slots=True)
class DecodeRequest:
    """Cancelling `promise` gives the request up; a decode that others wait for goes on."""

    planner: Planner
    unit: Unit
    key: DecodeKey
    attempts: Iterable[Plan] = ()  # other ways to translate the unit, for when a span is lost
    prefix: str | None = None  # begins the translation
    final: bool = True  # of the last hop: alternatives and log-probabilities come from it
    owner: Hashable = None  # fair-share key of the translation request: its decodes share one turn
    owner_tokens: int = 0  # source tokens of that translation request: the fewer, the sooner its turn
    deadline_at: float | None = None
    on_token: Callable[[int, float], None] | None = None
    promise: Promise[DecodingResult] = field(default_factory=Promise)

    @property
    def options(self) -> DecodingOptions:
        return self.key[2]
