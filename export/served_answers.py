"""The answers of a finished bundle by the path that a user has: the service's own translator, greedy.

The plain search of the exporter would not do: capitals, numbers and placeholders are the work of the service, and a
behavioural case asks for them. The service is imported when it is needed, because most exports do not need it.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dragoman.export.verify import VerificationError
from dragoman.service.bundles.manifest import Bundle

if TYPE_CHECKING:
    from dragoman.service.translation.translator import Translator

_TEXTS_AT_ONCE = 64


def served_answers(bundle: Bundle, texts: Sequence[str]) -> list[str]:
    """Load the bundle as a server does, golden sentences included, and translate; raises VerificationError."""
    from dragoman.service.assembly import build_parts
    from dragoman.service.settings import Settings
    from dragoman.service.telemetry.metrics import Metrics

    # Defaults only: what the environment says of a server must not change the evidence.
    settings = Settings.model_construct(bundles=bundle.path, threads=1, timeout_seconds=3600.0)
    parts = build_parts(settings, Metrics(), time.monotonic)
    try:
        report = parts.catalog.reload()
        if report.failed:
            raise VerificationError(f"a server refuses the new bundle: {report.failed[0]}")
        return asyncio.run(_translate(parts.translator, bundle, texts))
    finally:
        parts.catalog.close(drain=False)


async def _translate(translator: "Translator", bundle: Bundle, texts: Sequence[str]) -> list[str]:
    from dragoman.service.translation.contract import TranslationOptions

    pair, answers = bundle.pairs[0], list[str]()
    at_once = _TEXTS_AT_ONCE if bundle.precision == "int8" else 1  # only int8 gives the same bits in any company
    for start in range(0, len(texts), at_once):
        some = texts[start : start + at_once]
        result = await translator.translate(some, pair.source, pair.target, TranslationOptions(beam_size=1))
        answers += [translation.text for translation in result.translations]
    return answers
