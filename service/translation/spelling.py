"""Words that older or careless text writes large, as a model knows them: `em Dezembro` is read as `em dezembro`.

Only what goes to a model is treated so, as in `normalization.py`; the source in an answer stays as it was sent. This
file says which words may become small, and where. What a tokenizer makes of them is left to whoever asks, and is asked
only when such a word is there. A name must stay, so whatever may be one does: in doubt a word stays as it is.
"""

import re
from collections.abc import Callable

from dragoman.service.language_codes import base_language

# Months and days, which today's Portuguese writes small; their plurals, too. The group is the word that a tokenizer may
# know. Beside a large word they are names (Segunda Guerra, Quinta da Boa Vista), but nothing else ends in -feira; and
# Domingos is a man's name, unless the words before say plural (aos Domingos, aos Sábados e Domingos). Every choice
# begins with its letter: a search that may begin with a look behind takes eight times as long.
_PORTUGUESE = r"""
    (Janeiro|Fevereiro|Março|Abril|Maio|Junho|Julho|Agosto|Setembro|Outubro|Novembro|Dezembro
    |Segunda|Terça|Quarta|Quinta|Sexta|Sábado
    |Domingo(?:(?!s)|(?<=s\ Domingo)|(?<=s,\ Domingo)|(?<=s\ e\ Domingo)))
    (?:s?-[Ff]eiras?(?![\w-])|s?(?![\w-])(?!\s+(?:d[aeo]s?\s+)?[A-ZÀ-Þ]))
"""
_OFTEN_LARGE = {"pt": re.compile(_PORTUGUESE, re.VERBOSE)}
_OF = frozenset({"de", "do", "da", "dos", "das"})  # within a name: Rio de Janeiro
# Large only because a sentence begins with them: no name does.
_BEGINS = frozenset({
    "Em", "No", "Na", "Nos", "Nas", "Neste", "Nesta", "Ao", "Aos", "À", "Às", "Até", "Desde", "Durante", "Entre",
    "Cada", "Todo", "Toda", "Todos", "Todas",
})  # fmt: skip

_WORD = re.compile(r"\S+")
_OPENING = "\"'“‘«‹([{"


def as_written_today(text: str, language: str, is_one_token: Callable[[str], bool]) -> str:
    """`text` with such words small in mid-sentence, where the tokenizer knows only the small one; of equal length."""
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
    """Whether what follows these two words stands in mid-sentence, and is not a part of a name that began there."""
    return before in _BEGINS or (_is_small(before) and (before not in _OF or _is_small(earlier)))


def _is_small(word: str) -> bool:
    """Small or a number, with no mark behind it that may end a sentence."""
    first = word.lstrip(_OPENING)[:1]
    return first.isalnum() and not first.isupper() and (word[-1].isalnum() or word[-1] in ",;)")
