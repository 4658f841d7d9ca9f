"""Which of the languages served is a text in, and is it in any of them? The only file that knows py3langid.

The model is read when somebody asks for the first time: most requests name their language, and it takes a second and
some 60 MB. Of the model's 140 languages those served are kept, and some that people are most likely to send all the
same: a confidence that knows only what is served would take Spanish for Portuguese, and be sure of it.
"""

import html
import threading
from collections.abc import Iterable, Sequence

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from dragoman.service.language_codes import base_language
from dragoman.service.translation.contract import Detection
from dragoman.service.translation.patterns import pattern_spans
from dragoman.service.translation.spans import without_overlaps

_MAX_CHARACTERS = 4000  # more text makes no answer surer
# Much written, and told apart from those served; a language costs 0.2 MB.
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
        """`languages`, the most likely first. Their confidences are even where the text says nothing, and do not add up
        to one where it may be in another language."""
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
        # Spaces around a single word let it be seen as a word.
        return identifier.rank(f" {prose} ") if identifier.nb_classes else ()


def _load(languages: frozenset[str]) -> LanguageIdentifier:
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    known = languages & set(identifier.labels)
    identifier.set_languages(sorted(known | _OTHERS if known else ()))
    # The identifier keeps its whole table to choose other languages from; we would read the file again.
    identifier._full_model = (identifier.nb_ptc, identifier.nb_pc, identifier.nb_classes)
    return identifier


def _prose(text: str) -> str:
    """The text without addresses, markup and other things that belong to no language."""
    parts, position = [], 0
    for span in without_overlaps(pattern_spans(text)):
        parts.append(text[position : span.start])
        position = span.end
    return " ".join(" ".join([*parts, text[position:]]).split())
