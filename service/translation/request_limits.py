"""Check a request, whichever route it came by: refuse what cannot be done before any work is done."""

import math
from collections.abc import Sequence

from dragoman.service.errors import InvalidRequest, TooLarge
from dragoman.service.translation.contract import TranslationLimits, TranslationOptions

_MAX_LENGTH_PENALTY = 10.0
_MAX_PREFIX_CHARACTERS = 10_000  # longer than any model accepts; without this limit all of it would be tokenized first


def check_request(texts: Sequence[str], options: TranslationOptions, limits: TranslationLimits) -> None:
    """Raises InvalidRequest or TooLarge. The message says what to change and holds none of the text."""
    _check_size(texts, options, limits)
    _check_search(options, limits)
    if options.timeout_seconds is not None and not 0 < options.timeout_seconds < math.inf:
        raise InvalidRequest("The timeout must be more than 0 seconds.")
    if not all(term.strip() for term in options.glossary):
        raise InvalidRequest("The glossary has an empty term; leave it out.")
    prefix = options.target_prefix or ""
    if not _is_unicode("".join((*texts, *options.glossary, *options.glossary.values(), prefix))):
        raise InvalidRequest("A text holds half of a surrogate pair, which is not a character; send valid Unicode.")


def _check_size(texts: Sequence[str], options: TranslationOptions, limits: TranslationLimits) -> None:
    if not texts:
        raise InvalidRequest("There is no text; send at least one.")
    if len(texts) > limits.max_texts:
        raise TooLarge(f"There are {len(texts)} texts; send at most {limits.max_texts} in one request.")
    num_characters = sum(map(len, texts))
    if num_characters > limits.max_characters:
        raise TooLarge(
            f"The texts have {num_characters} characters; send at most {limits.max_characters} in one request."
        )
    if len(options.glossary) > limits.max_glossary_terms:
        raise TooLarge(f"The glossary has {len(options.glossary)} terms; send at most {limits.max_glossary_terms}.")
    num_in_terms = sum(map(len, options.glossary))
    if num_in_terms > limits.max_characters:
        raise TooLarge(f"The glossary's terms have {num_in_terms} characters; send at most {limits.max_characters}.")
    num_prefix = len(options.target_prefix or "")
    if num_prefix > _MAX_PREFIX_CHARACTERS:
        raise TooLarge(f"The target prefix has {num_prefix} characters; send at most {_MAX_PREFIX_CHARACTERS}.")


def _check_search(options: TranslationOptions, limits: TranslationLimits) -> None:
    # A request for several hypotheses must say how wide the beam is.
    beam_size = 1 if options.beam_size is None else options.beam_size
    if not 1 <= beam_size <= limits.max_beam_size:
        raise InvalidRequest(f"beam_size is {beam_size}; it must be from 1 to {limits.max_beam_size}.")
    if not 1 <= options.n_best <= beam_size:
        raise InvalidRequest(f"n_best is {options.n_best}; it must be from 1 to beam_size, {beam_size}.")
    if options.max_new_tokens is not None and options.max_new_tokens < 1:
        raise InvalidRequest(f"max_new_tokens is {options.max_new_tokens}; it must be at least 1.")
    penalty = options.length_penalty
    if penalty is not None and not 0 <= penalty <= _MAX_LENGTH_PENALTY:
        raise InvalidRequest(f"length_penalty must be from 0 to {_MAX_LENGTH_PENALTY:g}.")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
