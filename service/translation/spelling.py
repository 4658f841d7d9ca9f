"""Words that older or careless text capitalizes, in lower case as a model knows them: `em Dezembro` as `em dezembro`.

Only what goes to a model is changed, as in `normalization.py`; the source in an answer stays as it was sent. A word
that may be a name keeps its capital. The caller says how a tokenizer reads a word, and is asked only if there is such a
word.
"""

import re
from collections.abc import Callable

from dragoman.service.language_codes import base_language

# Months and days and their plurals, which today's Portuguese does not capitalize. The group is the word that a
# tokenizer may know. Beside a capitalized word they are names (Segunda Guerra, Quinta da Boa Vista), unless they end in
# -feira. Domingos is a man's name, unless the words before it are plural (aos Domingos, aos Sábados e Domingos). Every
# choice begins with a letter: a search that may begin with a lookbehind takes eight times as long.
_PORTUGUESE = r"""
    (Janeiro|Fevereiro|Março|Abril|Maio|Junho|Julho|Agosto|Setembro|Outubro|Novembro|Dezembro
    |Segunda|Terça|Quarta|Quinta|Sexta|Sábado
    |Domingo(?:(?!s)|(?<=s\ Domingo)|(?<=s,\ Domingo)|(?<=s\ e\ Domingo)))
    (?:s?-[Ff]eiras?(?![\w-])|s?(?![\w-])(?!\s+(?:d[aeo]s?\s+)?[A-ZÀ-Þ]))
"""
_OFTEN_LARGE = {"pt": re.compile(_PORTUGUESE, re.VERBOSE)}
_OF = frozenset({"de", "do", "da", "dos", "das"})  # inside a name: Rio de Janeiro
# Capitalized only because they begin a sentence: no name begins with them.
_BEGINS = frozenset({
    "Em", "No", "Na", "Nos", "Nas", "Neste", "Nesta", "Ao", "Aos", "À", "Às", "Até", "Desde", "Durante", "Entre",
    "Cada", "Todo", "Toda", "Todos", "Todas",
})  # fmt: skip

_WORD = re.compile(r"\S+")
_OPENING = "\"'“‘«‹([{"


def as_written_today(text: str, language: str, is_one_token: Callable[[str], bool]) -> str:
    """`text` with such words in lower case, in mid-sentence and if only so they are one token. The length stays."""
    often_large = _OFTEN_LARGE.get(base_language(language))
    if often_large is None or not often_large.search(text):
        return text
    letters = list(text)
    earlier = before = ""
    for word in _WORD.finditer(text):
        found = often_large.match(text, word.start())
        if found and _goes_on(earlier, before) and is_one_token(found[1].lower()) and not is_one_token(found[1]):
            letters[found.start() : found.end()] = found.group().lower()
        earlier, before = before, "".join(letters[word.start() : word.end()])
    return "".join(letters)


def _goes_on(earlier: str, before: str) -> bool:
    """Whether the word after these two is in mid-sentence and not part of a name that they begin."""
    return before in _BEGINS or (_is_small(before) and (before not in _OF or _is_small(earlier)))


def _is_small(word: str) -> bool:
    """In lower case or a number, and not followed by a mark that may end a sentence."""
    first = word.lstrip(_OPENING)[:1]
    return first.isalnum() and not first.isupper() and (word[-1].isalnum() or word[-1] in ",;)")
