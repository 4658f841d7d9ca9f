"""Five hundred sentences with things that must survive translation, made from our own templates: always the same ones.

    python -m tests.translation.placeholder_cases --bundles DIRECTORY

translates them with real bundles and prints how many were kept at once, kept after a second attempt, reported lost,
and lost silently (which must be none).
"""

import argparse
import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from prometheus_client import CollectorRegistry

from service.assembly import build_parts
from service.metrics import Metrics
from service.settings import Settings
from service.translation.contract import Segment, SegmentWarning, Translation, TranslationOptions
from service.translation.translator import Translator

NUM_CASES = 500
Verdict = Literal["kept", "retried", "reported", "silent"]

TEMPLATES = {
    "pt": (
        "Consulte {} antes de ligar o aparelho.",
        "O pedido de {} foi confirmado ontem.",
        "Envie a resposta para {} até sexta-feira.",
        "{} chegou à estação com duas malas.",
        "A professora mostrou {} aos alunos da turma.",
        "Não foi possível abrir {}, tente outra vez.",
        "Se {} não funcionar, fale com a recepção.",
        "O preço mudou de {} para {} nesta semana.",
        "Quem encontrou {} deve avisar {} hoje.",
        "Ela escreveu {} no quadro e sorriu.",
        "Depois de {}, vem {} e por fim {}.",
        "O vizinho perguntou por {}; ninguém sabia.",
        "Clique em {} para continuar ou em {} para sair.",
        "As crianças gostam de {} (e também de {}).",
        "Guarde {} num lugar seco e escuro.",
    ),
    "en": (
        "Please read {} before you open the box.",
        "The order from {} was confirmed yesterday.",
        "Send your answer to {} by Friday.",
        "{} arrived at the station with two suitcases.",
        "The teacher showed {} to the whole class.",
        "We could not open {}, please try again.",
        "If {} does not work, ask at the front desk.",
        "The price went from {} to {} this week.",
        "Whoever found {} should tell {} today.",
        "She wrote {} on the board and smiled.",
        "After {} comes {} and finally {}.",
        "The neighbour asked about {}; nobody knew.",
        "Press {} to go on or {} to leave.",
        "Children like {} (and {} too).",
        "Keep {} in a dry and dark place.",
    ),
}
SPANS = (
    *(
        "https://example.com/guia?p=1",
        "http://example.org/a_b",
        "www.example.net/x",
        "ana@example.com",
        "loja+1@example.org",
    ),
    *("{name}", "{{count}}", "{0}", "%s", "%d", "%(user)s", "%1$s", "$HOME", "${API_KEY}", "%{total}"),
    *("😀", "👩‍🚀", "🇵🇹", "👍🏽", "5️⃣", "@rio_livre", "#praia2026", "#128", "&nbsp;", "&#8217;"),
    *("/etc/hosts.conf", "C:\\Dados\\lista.csv", "~/fotos/mar.png", "resumo.pdf", "`ls -l`", "v2.10.3", "10.0.0.254"),
    *("4815162342", "AB-9912-QX", "550e8400-e29b-41d4-a716-446655440000", "+351 912 345 678", "9f86d081884c7d65"),
)
TERMS = {
    "pt": {"maré": "tideline", "guarda-livros": "ledger clerk", "Serra Azul": "Serra Azul", "cafezinho": "Dragocino"},
    "en": {"shoreline": "beira-mar", "ledger": "livro-razão", "Blue Ridge": "Blue Ridge", "espresso": "Dragocino"},
}


@dataclass(frozen=True)
class Case:
    language: str
    text: str
    expected: tuple[str, ...]  # must be in the translation, as often as here
    glossary: dict[str, str] = field(default_factory=dict)


def placeholder_cases(count: int = NUM_CASES, seed: int = 20261116) -> list[Case]:
    """Both languages in turn, no text twice; a fifth with a term of a glossary among the spans."""
    rng = random.Random(seed)
    languages = list(TEMPLATES)
    cases: dict[str, Case] = {}
    while len(cases) < count:
        case = _case(languages[len(cases) % 2], len(cases), rng)
        cases.setdefault(case.text, case)
    return list(cases.values())


def _case(language: str, number: int, rng: random.Random) -> Case:
    template = rng.choice(TEMPLATES[language])
    spans = rng.sample(SPANS, template.count("{}"))
    expected = list(spans)
    glossary = {}
    if number % 5 < 1:
        term, translation = rng.choice(list(TERMS[language].items()))
        glossary, spans[0], expected[0] = {term: translation}, term, translation
    return Case(language, template.format(*spans), tuple(expected), glossary)


def verdict(case: Case, translation: Translation) -> Verdict:
    """Whether everything is there as often as it should be; if not, whether a warning says so."""
    warnings = {warning for segment in translation.segments for warning in segment.warnings}
    if all(translation.text.count(span) == wanted for span, wanted in Counter(case.expected).items()):
        return "retried" if SegmentWarning.PLACEHOLDER_RETRIED in warnings else "kept"
    return "reported" if SegmentWarning.PLACEHOLDER_LOST in warnings else "silent"


async def measure(
    translator: Translator, cases: Sequence[Case], beam_size: int = 1
) -> list[tuple[Case, Verdict, tuple[Segment, ...]]]:
    """Translate every case from its language into the other one."""
    results = []
    for case in cases:
        target = "en" if case.language == "pt" else "pt"
        options = TranslationOptions(glossary=case.glossary, beam_size=beam_size)
        result = await translator.translate([case.text], case.language, target, options)
        translation = result.translations[0]
        results.append((case, verdict(case, translation), translation.segments))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundles", type=Path, required=True, help="a directory with bundles for pt-en and en-pt")
    parser.add_argument("--beam-size", type=int, default=1)
    parser.add_argument("--show", type=int, default=10, help="how many imperfect ones to print")
    arguments = parser.parse_args()
    parts = build_parts(Settings(bundles=arguments.bundles), Metrics(CollectorRegistry()), time.monotonic)
    print(parts.catalog.reload())
    try:
        results = asyncio.run(measure(parts.translator, placeholder_cases(), arguments.beam_size))
    finally:
        parts.catalog.close()
    counts = Counter(outcome for _, outcome, _ in results)
    for outcome in ("kept", "retried", "reported", "silent"):
        print(f"{outcome:>9} {counts[outcome]:4d}  {counts[outcome] / len(results):6.1%}")
    imperfect = [(case, outcome, segments) for case, outcome, segments in results if outcome != "kept"]
    for case, outcome, segments in imperfect[: arguments.show]:
        print(f"{outcome}: {case.text} -> {' | '.join(segment.text for segment in segments)}")


if __name__ == "__main__":
    main()
