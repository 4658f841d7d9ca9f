"""Language codes: the language of a code with a region."""


def base_language(code: str) -> str:
    """The language without its region, in lower case: `pt` for `pt-BR`."""
    return code.partition("-")[0].lower()
