"""What serves a language pair: a loaded bundle with its engine and its tokenizer, and the right to use it a while."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dragoman.service.bundles.manifest import Bundle, Pair
from dragoman.service.engine.loop import Engine


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
    """A bundle that serves, or one that was replaced and finishes its requests."""

    bundle: Bundle
    tokenizer: Tokenizer
    engine: Engine
    identity: str  # equal only for equal files, so that the cache never mixes answers of two bundles
    num_leases: int = 0
    retired: bool = False


@dataclass(frozen=True)
class Hop:
    """One translation step of a route."""

    served: Served
    pair: Pair


class Lease:
    """Hops, and the right to use them until the lease ends."""

    def __init__(self, hops: tuple[Hop, ...], give_back: Callable[[Sequence[Hop]], None]) -> None:
        self.hops, self._give_back = hops, give_back

    def __enter__(self) -> tuple[Hop, ...]:
        return self.hops

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self._give_back(self.hops)
