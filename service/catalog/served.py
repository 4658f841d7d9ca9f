"""What serves a language pair: a bundle on offer, the same when it is loaded, and the right to use it a while."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from dragoman.service.bundles.manifest import Bundle, Pair
from dragoman.service.catalog.folders import Signature
from dragoman.service.engine.loop import Engine

BundleState = Literal["loaded", "loadable", "failed"]
Codes = tuple[str, str]  # source and target language


class TokenStream(Protocol):
    """Turns tokens into text as they come."""

    def push(self, token_id: int) -> str:
        """The text that is complete now; often none."""

    def finish(self) -> str:
        """The rest, when no more tokens come."""


class Tokenizer(Protocol):
    """Text <-> ids. Placeholder numbers stand among the text; a kind without placeholders has `num_placeholders` 0."""

    @property
    def num_placeholders(self) -> int: ...

    @property
    def known_characters(self) -> frozenset[str]:
        """Characters with a token of their own; others become bytes or `unk`, which few models were taught."""

    def encode(self, parts: Sequence[str | int]) -> list[int]:
        """Source ids, without prefix and end of sentence."""

    def encode_target(self, parts: Sequence[str | int]) -> list[int]:
        """Target ids of whole words, for a forced prefix."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text alone, without blanks at either end: what `stream` gives, joined."""

    def decode_parts(self, ids: Sequence[int]) -> list[str | int]:
        """Text and placeholder numbers in order, without blanks at either end."""

    def token_text(self, token_id: int) -> str:
        """How a target token looks in a list of tokens."""

    def source_token(self, token_id: int) -> str | int:
        """How a source token looks in a list of tokens, or the number of the placeholder that it is."""

    def is_one_token(self, word: str) -> bool:
        """Whether the source side has a token for the whole word."""

    def stream(self) -> TokenStream:
        """A decoder for tokens as they come."""


@dataclass(eq=False)
class Served:
    """A bundle in memory: it serves, or it was replaced and finishes its requests."""

    bundle: Bundle
    tokenizer: Tokenizer
    engine: Engine
    identity: str  # equal only for equal files, so that the cache never mixes answers of two bundles


@dataclass(eq=False)
class Offer:
    """A bundle whose files were checked. It is in memory, or it is loaded when somebody asks for it."""

    bundle: Bundle
    identity: str
    signature: Signature  # of the files when they were checked
    num_bytes: int  # in memory, as estimated before it is loaded
    served: Served | None = None
    problem: str | None = None  # why it could not be loaded when it was last tried
    used_at: float | None = None

    @property
    def label(self) -> str:
        return f"{self.bundle.name} {self.bundle.version}"

    @property
    def state(self) -> BundleState:
        if self.served is not None:
            return "loaded"
        return "loadable" if self.problem is None else "failed"


@dataclass(frozen=True)
class BundleStatus:
    """What is known of a bundle on offer, for those who list bundles."""

    bundle: Bundle
    state: BundleState
    num_bytes: int
    idle_seconds: float | None = None  # since its last use; None: never used, or in use for the first time
    problem: str | None = None


@dataclass(frozen=True)
class Leg:
    """One translation step of a route, before its bundle is in memory."""

    offer: Offer
    pair: Pair


@dataclass(frozen=True)
class Hop:
    """One translation step of a route."""

    served: Served
    pair: Pair


class Lease:
    """The hops of some pairs, and the right to use them until the lease ends."""

    def __init__(self, ways: Mapping[Codes, tuple[Hop, ...]], give_back: Callable[[], None]) -> None:
        self.ways, self._give_back = ways, give_back

    @property
    def hops(self) -> tuple[Hop, ...]:
        """Of the first pair."""
        return next(iter(self.ways.values()))

    def __enter__(self) -> tuple[Hop, ...]:
        return self.hops

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        give_back, self._give_back = self._give_back, lambda: None
        give_back()
