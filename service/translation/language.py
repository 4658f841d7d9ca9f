"""Detect the language of a text. The only file that knows py3langid.

The model is loaded at the first use: most requests name their language, and loading takes a second and some 60 MB. Of
the model's 140 languages the served ones are kept, and those that people are most likely to send anyway. With the
served ones alone, Spanish would be taken for Portuguese with full confidence.
"""

import html
import threading
from collections.abc import Iterable, Sequence

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from dragoman.service.language_codes import base_language
from dragoman.service.translation.contract import Detection
from dragoman.service.translation.patterns import pattern_spans
from dragoman.service.translation.spans import without_overlaps

_MAX_CHARACTERS = 4000  # more text makes the answer no better
# Common languages that must not be mistaken for a served one; each takes 0.2 MB.
_OTHERS = frozenset({"ar", "ca", "de", "en", "es", "fr", "hi", "it", "ja", "ko", "nl", "pl", "pt", "ru", "tr", "zh"})


class Detector:
    """Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._identifier: LanguageIdentifier | None = None
        self._languages: frozenset[str] = frozenset()

    @property
    def loaded(self) -> bool:
        return self._identifier is not None

    def detect(self, text: str, languages: Iterable[str]) -> list[Detection]:
        """`languages`, the most likely first. All confidences are equal if the text has no words. They add up to less
        than one if the text may be in another language."""
        candidates = sorted(set(languages))
        ranking = self._rank(_prose(html.unescape(text[:_MAX_CHARACTERS])), frozenset(map(base_language, candidates)))
        if not ranking:
            return [Detection(language, 1 / len(candidates)) for language in candidates]
        known = dict(ranking)
        detections = [Detection(language, known.get(base_language(language), 0.0)) for language in candidates]
        return sorted(detections, key=lambda detection: -detection.confidence)

    def _rank(self, prose: str, languages: frozenset[str]) -> Sequence[tuple[str, float]]:
        if not prose or len(languages) < 2:
            return ()
        with self._lock:
            if self._identifier is None or languages != self._languages:
                self._identifier, self._languages = _load(languages), languages
            identifier = self._identifier
        # With spaces around it, a single word is seen as a word.
        return identifier.rank(f" {prose} ") if identifier.nb_classes else ()


def _load(languages: frozenset[str]) -> LanguageIdentifier:
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    known = languages & set(identifier.labels)
    identifier.set_languages(sorted(known | _OTHERS if known else ()))
    # Drop the table of all languages, which the identifier keeps for other choices: we would read the file again.
    identifier._full_model = (identifier.nb_ptc, identifier.nb_pc, identifier.nb_classes)
    return identifier


def _prose(text: str) -> str:
    """The text without addresses, markup and other spans, which belong to no language."""
    parts, position = [], 0
    for span in without_overlaps(pattern_spans(text)):
        parts.append(text[position : span.start])
        position = span.end
    return " ".join(" ".join([*parts, text[position:]]).split())
