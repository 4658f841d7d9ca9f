"""Sentences with things that must survive translation: five hundred made from our own templates, and those of our own
in `tests/data`. Always the same ones; `placeholder_report.py` translates them with real bundles.
"""

import csv
import random
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dragoman.service.translation.contract import Segment, SegmentWarning, Translation, TranslationOptions
from dragoman.service.translation.translator import Translator

NUM_CASES = 500
WRITTEN = Path(__file__).parents[1] / "data" / "placeholders.tsv"
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

# What a reader of our own sentences sees in them, of the first kind that fits: written without a look at the service's
# patterns, so that something which those overlook is missed here.
KINDS = {
    "tag": r"</?[a-z][^<>]*>",
    "link": r"https?://[^\s),]*[^\s),.;!?]",
    "e-mail": r"[\w.+]+@[\w.]+\w",
    "{{name}}": r"\{\{\w+\}\}",
    "${NAME}": r"\$\{\w+\}(?:/[\w.]*\w)?",
    "{name}": r"\{\w+\}",
    "%(name)s": r"%\(\w+\)[sd]",
    "%s, %d": r"%[sd]",
    "@handle": r"@[\w.]*\w",
    "#hashtag": r"#\w+",
    "path": r"(?<!\S)(?:[A-Z]:\\|~/|\.{0,2}/|\w+/)[^\s,]*\w",
    "emoji": r"[^\x00-\u024f\s]+",
}
ANY_KIND = re.compile("|".join(f"(?P<k{number}>{regex})" for number, regex in enumerate(KINDS.values())))


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


def written_cases() -> list[Case]:
    """Our own sentences; what must survive is what a reader sees."""
    with WRITTEN.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [Case(row["language"], row["text"], tuple(text for text, _ in seen(row["text"]))) for row in rows]


def seen(text: str) -> list[tuple[str, str]]:
    """What must survive in a text, in order, each with its kind."""
    kinds = list(KINDS)
    return [
        (match.group(), kinds[match.lastindex - 1]) for match in ANY_KIND.finditer(text) if match.lastindex is not None
    ]


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
    translator: Translator, cases: Iterable[Case], beam_size: int = 1
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
