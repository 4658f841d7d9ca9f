"""Detection answers with served languages, and with low confidence if the text is short or in another language."""

import pytest

from dragoman.service.translation.language import Detector


@pytest.fixture(scope="module")
def detector() -> Detector:
    return Detector()


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("O menino comprou pão na padaria da esquina.", "pt"),
        ("The boy bought bread at the corner bakery.", "en"),
        ("BOM DIA", "pt"),
        ("Good morning", "en"),
        ("obrigado", "pt"),
        ("thanks", "en"),
        ("não", "pt"),
        ("yes", "en"),
        ("N&atilde;o h&aacute; p&atilde;o", "pt"),
        ("Veja https://www.example.com/the/house/of/the/rising/sun agora", "pt"),
    ],
)
def test_the_language_is_recognized(detector: Detector, text: str, language: str) -> None:
    """Single words too; addresses belong to no language."""
    assert detector.detect(text, ["en", "pt"])[0].language == language


def test_only_served_languages_are_answered(detector: Detector) -> None:
    """Spanish is not served here, so the answer is the served language that is nearest."""
    detections = detector.detect("¿Dónde está la biblioteca?", ["pt", "en"])
    assert [detection.language for detection in detections] == ["pt", "en"]


@pytest.mark.parametrize(
    "text",
    [
        "¿Dónde está la biblioteca?",
        "Wo ist hier der Bahnhof?",
        "Je voudrais un café.",
        "Где здесь вокзал?",
        "図書館はどこですか",
        "مرحبا كيف حالك اليوم",
    ],
)
def test_a_language_that_is_not_served_is_taken_for_none_that_is(detector: Detector, text: str) -> None:
    """The nearest served language is answered, but with low confidence."""
    assert sum(detection.confidence for detection in detector.detect(text, ["pt", "en"])) < 0.1


@pytest.mark.parametrize("text", ["", "   ", "12345", "😀", "https://example.com"])
def test_a_text_that_says_nothing_gets_even_confidences(detector: Detector, text: str) -> None:
    """A guess must look like one."""
    assert {detection.confidence for detection in detector.detect(text, ["pt", "en"])} == {0.5}


def test_confidence_grows_with_the_text(detector: Detector) -> None:
    """Short strings are uncertain, sentences are not."""
    word, sentence = (detector.detect(text, ["pt", "en"])[0] for text in ("Oi", "Oi, como você está hoje?"))
    assert word.confidence < 0.7 < 0.95 < sentence.confidence


def test_one_language_needs_no_detection() -> None:
    """And no model in memory either."""
    detector = Detector()
    assert detector.detect("anything", ["pt"])[0].confidence == 1.0
    assert not detector.loaded


def test_languages_may_change_and_need_not_be_known(detector: Detector) -> None:
    """Bundles come and go; a region does not matter; a code that the model does not know has no confidence."""
    assert detector.detect("Guten Morgen, wie geht es dir?", ["de", "pt"])[0].language == "de"
    assert detector.detect("bom dia a todos", ["pt-BR", "en"])[0].language == "pt-BR"
    assert [each.language for each in detector.detect("bom dia a todos", ["xx", "pt", "en"])][-1] == "xx"
