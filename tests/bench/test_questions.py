"""What is asked of servers: the same from the same seed, mostly single sentences, whole HTTP requests."""

import json

from bench.harness import Profile
from bench.questions import SEVERAL, questions, whole_sentences, wire
from dragoman.service.bundles.manifest import read_bundle
from dragoman.service.translation.tokenizer import load_tokenizer

TEXTS = [f"Frase {number}." for number in range(50)]


def test_questions_come_from_their_seed() -> None:
    """Both servers of a pair must be asked the same."""
    assert questions(TEXTS, 200, seed=1) == questions(TEXTS, 200, seed=1)
    assert questions(TEXTS, 200, seed=1) != questions(TEXTS, 200, seed=2)


def test_a_few_questions_have_several_sentences() -> None:
    """A mix as callers send it: a batcher that counts requests and not texts would go unnoticed otherwise."""
    several = [asked for asked in questions(TEXTS, 5000, seed=1) if isinstance(asked, list)]
    assert 100 < len(several) < 400
    assert {len(asked) for asked in several} == set(range(SEVERAL[0], SEVERAL[1] + 1))


def test_a_request_is_whole_on_the_wire() -> None:
    """The length counts bytes: Portuguese has letters of two."""
    head, _, body = wire("Olá, João!", "pt", "en").partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert json.loads(body) == {"text": "Olá, João!", "source": "pt", "target": "en"}


def test_sentences_fit_the_model() -> None:
    """A text that ours would split and a peer would not is no comparison."""
    bundle = read_bundle(Profile().bundle, check_hashes=False)
    texts, tokenizer = whole_sentences(Profile(), bundle), load_tokenizer(bundle)
    assert len(texts) > 100
    assert max(len(tokenizer.encode([text])) for text in texts) < bundle.limits.max_source_tokens
