"""Detect the language of a text. The only file that knows py3langid.

The model is loaded at the first use: most requests name their language, and loading takes a second and some 60 MB. Of
the model's 140 languages the served ones are kept, those that are easily taken for them, and those that people are most
likely to send anyway. With the served ones alone, Spanish would be taken for Portuguese with full confidence.

A script that one language alone writes needs no model: Thai, Greek, Hebrew, Hangul, kana.
"""

import html
import re
import threading
from collections.abc import Iterable, Mapping, Sequence

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from dragoman.service.language_codes import base_language
from dragoman.service.translation.contract import Detection
from dragoman.service.translation.patterns import pattern_spans
from dragoman.service.translation.spans import without_overlaps

_MAX_CHARACTERS = 4000  # more text makes the answer no better
# Common languages that must not be mistaken for a served one; each takes 0.2 MB.
_OTHERS = frozenset({"ar", "ca", "de", "en", "es", "fr", "hi", "it", "ja", "ko", "nl", "pl", "pt", "ru", "tr", "zh"})

# Languages that are easily taken for one that is served.
_ALIKE: Mapping[str, frozenset[str]] = {
    served: frozenset(others.split())
    for served, others in {
        "ar": "fa ur", "bg": "mk sr ru", "cs": "sk", "da": "no sv", "es": "gl ca", "fa": "ar ur", "hi": "mr ne",
        "hr": "bs sr sl", "id": "ms", "no": "da sv", "pt": "gl es", "ru": "uk be bg", "sk": "cs", "sl": "hr",
        "sv": "no da", "uk": "ru be", "zh": "yue",
    }.items()
}  # fmt: skip
_LABELS = {"nb": "no"}  # codes that the model writes otherwise
# Scripts that one language alone writes. Kana come with Han; Han alone may be either, which the model is asked.
_SCRIPTS = {
    "ja": re.compile("[\u3040-\u30ff]"),
    "ko": re.compile("[\u1100-\u11ff\uac00-\ud7af]"),
    "th": re.compile("[\u0e01-\u0e5b]"),
    "el": re.compile("[\u0370-\u03ff\u1f00-\u1fff]"),
    "he": re.compile("[\u0590-\u05ff]"),
}
_HAN = re.compile("[\u3400-\u9fff]")
_SHARE = 0.8  # of the letters, from which a script decides


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
        ranking = self._rank(_prose(html.unescape(text[:_MAX_CHARACTERS])), frozenset(map(_label, candidates)))
        if not ranking:
            return [Detection(language, 1 / len(candidates)) for language in candidates]
        known = dict(ranking)
        detections = [Detection(language, known.get(_label(language), 0.0)) for language in candidates]
        return sorted(detections, key=lambda detection: -detection.confidence)

    def _rank(self, prose: str, languages: frozenset[str]) -> Sequence[tuple[str, float]]:
        if not prose or len(languages) < 2:
            return ()
        if (language := _by_script(prose)) is not None:
            return [(language, 1.0)]
        with self._lock:
            if self._identifier is None or languages != self._languages:
                self._identifier, self._languages = _load(languages), languages
            identifier = self._identifier
        # With spaces around it, a single word is seen as a word.
        return identifier.rank(f" {prose} ") if identifier.nb_classes else ()


def _load(languages: frozenset[str]) -> LanguageIdentifier:
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    known = languages & set(identifier.labels)
    alike = frozenset().union(*(_ALIKE.get(language, frozenset()) for language in known))
    identifier.set_languages(sorted(known | alike | _OTHERS if known else ()))
    # Drop the table of all languages, which the identifier keeps for other choices: we would read the file again.
    identifier._full_model = (identifier.nb_ptc, identifier.nb_pc, identifier.nb_classes)
    return identifier


def _label(language: str) -> str:
    code = base_language(language)
    return _LABELS.get(code, code)


def _by_script(prose: str) -> str | None:
    """The one language that writes this script; None if several do."""
    num_letters = sum(map(str.isalpha, prose))
    for language, letters in _SCRIPTS.items():
        found = sum(map(str.isalpha, letters.findall(prose)))
        han = len(_HAN.findall(prose)) if language == "ja" and found else 0
        if found and found + han >= _SHARE * num_letters:
            return language
    return None


def _prose(text: str) -> str:
    """The text without addresses, markup and other spans, which belong to no language."""
    parts, position = [], 0
    for span in without_overlaps(pattern_spans(text)):
        parts.append(text[position : span.start])
        position = span.end
    return " ".join(" ".join([*parts, text[position:]]).split())
