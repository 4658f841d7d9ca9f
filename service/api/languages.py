"""Languages as the APIs read and list them: what may be a code, and names."""

from collections.abc import Mapping

# English names, as other APIs give them. A code that is missing here is its own name.
NAMES: Mapping[str, str] = {
    "ar": "Arabic", "bg": "Bulgarian", "ca": "Catalan", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek",
    "en": "English", "es": "Spanish", "et": "Estonian", "eu": "Basque", "fi": "Finnish", "fr": "French",
    "ga": "Irish", "gl": "Galician", "he": "Hebrew", "hi": "Hindi", "hu": "Hungarian", "id": "Indonesian",
    "it": "Italian", "ja": "Japanese", "ko": "Korean", "lt": "Lithuanian", "lv": "Latvian", "mt": "Maltese",
    "nb": "Norwegian", "nl": "Dutch", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian",
    "sk": "Slovak", "sl": "Slovenian", "sv": "Swedish", "th": "Thai", "tr": "Turkish", "uk": "Ukrainian",
    "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip


_MAX_CODE_LENGTH = 16


def read_code(text: str) -> str | None:
    """A language in small letters, with a script or a region or without (`pt`, `PT-BR`, `zh-Hans-CN`); None if it
    cannot be one. Which codes are served, and that `en-us` is `en` where no bundle has the region, is the catalog's."""
    code = text.strip().lower()
    looks_right = code.isascii() and code.replace("-", "").isalpha() and len(code) <= _MAX_CODE_LENGTH
    return code if looks_right else None


REGIONS: Mapping[str, str] = {
    "pt-br": "Portuguese (Brazilian)", "pt-pt": "Portuguese (European)", "en-us": "English (American)",
    "en-gb": "English (British)", "zh-hans": "Chinese (simplified)", "zh-hant": "Chinese (traditional)",
}  # fmt: skip


def name_of(code: str) -> str:
    return NAMES.get(code) or REGIONS.get(code.lower(), code)
