"""Split and join a million generated strings: `python -m tests.translation.bulk_split --count 1000000`.

The ordinary tests do some hundreds with hypothesis; this is for a release. Prints how many were done, and the first
that did not join back, if there is one.
"""

import argparse
import random
import sys

from dragoman.service.translation.placeholders import find_spans
from tests.translation.generated import random_text
from tests.translation.splitting import split


def first_failure(count: int, seed: int) -> str | None:
    rng = random.Random(seed)
    for _ in range(count):
        text, limit = random_text(rng), rng.randint(1, 60)
        parts = split(
            text, rng.choice(["pt", "en"]), find_spans(text), lambda start, end, limit=limit: end - start <= limit
        )
        if parts.join([parts.source(index) for index in range(len(parts.segments))]) != text:
            return text
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    failure = first_failure(arguments.count, arguments.seed)
    if failure is not None:
        sys.exit(f"does not join back: {failure!r}")
    print(f"{arguments.count} strings split and joined back exactly")


if __name__ == "__main__":
    main()
