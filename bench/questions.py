"""What is asked of servers: sentences as they are, and a few requests with several of them.

A request with several sentences carries them as a list, one text each, so that nobody has to split anything.
"""

import random
from collections.abc import Sequence

import orjson

from bench.harness import Profile
from bench.texts import sentences
from dragoman.service.bundles.manifest import Bundle
from dragoman.service.translation.tokenizer import load_tokenizer

MAX_SENTENCES = 5000
SEVERAL_SHARE = 0.04  # of the requests
SEVERAL = (2, 6)  # sentences in one of those
Question = str | list[str]


def whole_sentences(profile: Profile, bundle: Bundle) -> list[str]:
    """Those that the model takes whole: a server that splits would otherwise do other work than one that does not."""
    pair, tokenizer = bundle.pairs[0], load_tokenizer(bundle)
    room = bundle.limits.max_source_tokens - len(pair.source_prefix_ids) - 1
    lines = sentences(profile.sources, MAX_SENTENCES, pair.source)
    return [line for line in lines if 0 < len(tokenizer.encode([line])) <= room]


def questions(texts: Sequence[str], count: int, seed: int) -> list[Question]:
    draw = random.Random(seed)
    return [
        draw.choices(texts, k=draw.randint(*SEVERAL)) if draw.random() < SEVERAL_SHARE else draw.choice(texts)
        for _ in range(count)
    ]


def wire(question: Question, source: str, target: str) -> bytes:
    """The whole HTTP request, ready to be sent."""
    body = orjson.dumps({"text": question, "source": source, "target": target})
    head = "POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
