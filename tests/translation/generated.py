"""Strings that look like what people send, and worse: made from our own pieces by a seed or by hypothesis."""

import random

from hypothesis import strategies as st

PIECES = (
    *("Olá", "mundo", "o gato", "A casa", "não", "É", "Sr.", "etc.", "e.g.", "U.S.A.", "tudo bem", "x", "Ação", "word"),
    *(".", "!", "?", "...", "…", ",", ";", ":", "(", ")", "[", "]", '"', "'", "«", "»", "“", "”", "-", "–", "—", "/"),
    *(" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", "\r", "\v", "\f", "\x1c", "\x1f", "\x85", "\u2028", "\u2029"),
    *(
        "\u00a0",
        "\u2003",
        "\u3000",
        "\ufeff",
        "\u200b",
        "\u200d",
        "\u00ad",
        "\u2060",
        "\u200e",
        "\u202e",
        "\x00",
        "\x07",
    ),
    *("- ", "* ", "• ", "1. ", "2) ", "(a) ", "> ", "# ", "| ", "- [ ] ", "iv) "),
    *("https://example.com/a.b?c=d#e", "www.example.org", "example.com", "ana@example.com", "@ana", "#tag", "#1"),
    *("{name}", "{{x}}", "%s", "%(n)d", "%1$s", "$VAR", "${VAR}", "%%", "{0}", "{", "}", "%", "$", "&", "<", ">"),
    *("<b>", "</b>", "<br/>", '<a href="x">', "</a>", "<!-- c -->", "&nbsp;", "&#39;", "<p>", "</p>", "<code>x</code>"),
    *("😀", "👨\u200d👩\u200d👧", "🇧🇷", "1\ufe0f\u20e3", "👍🏽", "❤️", "™", "→", "\ufe0f"),
    *("/usr/local/bin", "C:\\Temp\\a.txt", "~/x", "relatorio.pdf", "`code`", "```", "1.234,56", "12345678", "A1B2C3"),
    *(
        "+55 11 91234-5678",
        "192.168.0.1",
        "10:30",
        "2024-05-12",
        "e\u0301",
        "中文。",
        "日本、",
        "ไทย",
        "नमस्ते",
        "Привет",
        "ﬁ",
    ),
)


def texts() -> st.SearchStrategy[str]:
    """Known pieces in any order, mixed with arbitrary characters."""
    arbitrary = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
    return st.lists(st.one_of(st.sampled_from(PIECES), st.sampled_from(PIECES), arbitrary), max_size=24).map("".join)


def random_text(rng: random.Random) -> str:
    """Like `texts`, for so many strings that hypothesis would take hours."""
    pieces = [rng.choice(PIECES) for _ in range(rng.randint(0, 16))]
    if rng.random() < 0.3:
        pieces.insert(rng.randint(0, len(pieces)), chr(rng.choice([rng.randrange(0x300), rng.randrange(0xD800)])))
    return "".join(pieces)
