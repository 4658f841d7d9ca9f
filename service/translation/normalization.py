"""Text as models know it: composed, plain spaces, no layout hints. What a reader sees stays; what it stood in is lost.

Only what goes to a model is treated so. Separators, placeholders and the source in an answer stay as they were sent.
"""

import unicodedata

# Layout hints inside the words of the source; another language breaks its words elsewhere.
_DROPPED = dict.fromkeys(map(ord, "\u00ad\u200b\u2060\ufeff"))
# Characters that become a plain space or nothing: no tokenizer needs to know them.
CLEANED = frozenset(filter(str.isspace, map(chr, range(0x3001)))) | frozenset(map(chr, _DROPPED))


def clean(text: str) -> str:
    """Composed to NFC; one plain space where any white space stands, at the edges too; no layout hints."""
    text = unicodedata.normalize("NFC", text).translate(_DROPPED)
    words = " ".join(text.split())
    if words == text:
        return text
    return (" " if text[:1].isspace() else "") + words + (" " if words and text[-1:].isspace() else "")
