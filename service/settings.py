"""Every setting of the server: one class, read once from `DRAGOMAN_*`, checked once, passed down by constructor.

The command line overrides a few of them; nothing else reads the environment. Each field's description is the text
of the README's table, and `tests/test_docs.py` keeps the two together.
"""

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

PREFIX = "DRAGOMAN_"
# Kubernetes adds these for every Service; one that is named `dragoman` would otherwise set DRAGOMAN_PORT to a URL.
SERVICE_LINK_PREFIXES = ("DRAGOMAN_SERVICE_", "DRAGOMAN_PORT_")
# Settings of earlier versions -> what holds now. A server that ignored one would not do what its operator expects.
REMOVED = {
    "DRAGOMAN_BODY_TIMEOUT_SECONDS": "a body has 15 s to arrive",
    "DRAGOMAN_CONTINUOUS": "batches are always continuous",
    "DRAGOMAN_DOCS": "set DRAGOMAN_PAGES, which is for the web page and the API documentation together",
    "DRAGOMAN_HEADER_TIMEOUT_SECONDS": "headers have 10 s to arrive",
    "DRAGOMAN_MAX_GLOSSARY_TERMS": "a glossary may have 1000 terms",
    "DRAGOMAN_MAX_HEADER_BYTES": "request line and headers may have 32768 bytes",
    "DRAGOMAN_MAX_LIVE_STREAMS": "/v1/live may have 64 watchers",
    "DRAGOMAN_PLAYGROUND": "set DRAGOMAN_PAGES, which is for the web page and the API documentation together",
    "DRAGOMAN_REQUIRE_KEY": "every caller needs a key where DRAGOMAN_KEYS_FILE is set, and no caller elsewhere",
    "DRAGOMAN_SINGLE_FLIGHT": "identical segments in flight always share one decode",
    "DRAGOMAN_STEP_BUDGET_MS": "the step budget of bulk requests is fixed",
}


_BYTES = re.compile(r"(?P<number>\d+(\.\d+)?) *(?P<unit>[KMGT]?)(i?B)?", re.IGNORECASE | re.ASCII)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class SettingsError(Exception):
    """A setting that cannot be used; the message names it and says what is wrong."""


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    # Where it listens
    host: str = Field("127.0.0.1", description="Address to listen on; `0.0.0.0` for all, as in the container image")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 picks a free one")
    forwarded_allow_ips: str = Field(
        "127.0.0.1", description="Proxies whose `X-Forwarded-For` is believed, separated by commas; `*` for any"
    )

    # What it serves
    bundles: Path | None = Field(None, description="Directory of bundles; empty serves the embedded ones")
    bundle_memory: int | None = Field(
        None,
        ge=1,
        description="Memory for loaded bundles, such as `600M` or `2G`: they load at first use, and the least recently "
        "used one leaves; empty loads all at the start",
    )
    watch: bool = Field(True, description="Reload bundles and keys when their files change (SIGHUP always does)")
    pivot: bool = Field(True, description="Translate through a third language where no bundle serves the pair itself")
    pages: bool = Field(
        True, description="Serve the web page at `/`, and the API documentation at `/docs` and `/openapi.json`"
    )

    # The engine
    provider: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Where the graphs run; `auto` takes the GPU for bundles that can use one"
    )
    threads: int = Field(0, ge=0, le=256, description="Decode loops, one thread each; 0 takes the CPUs of the cgroup")
    max_rows: int = Field(32, ge=1, le=4096, description="Rows of the running batch, per decode loop")
    max_queued_tokens: int = Field(
        32_768,
        ge=1,
        description="Source tokens of interactive requests that may wait, and as many of bulk requests; beyond it 429",
    )
    encode_budget_tokens: int = Field(256, ge=1, description="Source tokens encoded at most between two decoder steps")

    # What one request may ask for
    max_body_bytes: int = Field(2 * 1024 * 1024, ge=1024, description="Largest request body; beyond it 413")
    max_texts: int = Field(1000, ge=1, description="Texts in one request; beyond it 413")
    max_characters: int = Field(200_000, ge=1, description="Characters of all texts of a request; beyond it 413")
    max_beam_size: int = Field(8, ge=1, le=64, description="Largest `beam_size`; beyond it 422")
    timeout_seconds: float = Field(
        60.0, gt=0, description="Longest time for a request; also the deadline of one that names none"
    )
    max_connections: int = Field(4096, ge=1, description="Open connections; beyond it 503")
    keep_alive_seconds: int = Field(
        65, ge=1, description="How long an idle connection is kept; make it longer than your proxy's"
    )

    # Repeated work
    cache_bytes: int = Field(64 * 1024 * 1024, ge=0, description="Memory of the exact-match cache; 0 switches it off")

    # Who may ask
    keys_file: Path | None = Field(
        None,
        description="File of hashed API keys (`dragoman keys`), one of which every caller needs; empty: open to all",
    )
    requests_per_minute: int = Field(
        0, ge=0, description="Rate of each address where there is no keys file, per replica; 0: no limit"
    )
    state_dir: Path | None = Field(
        None, description="Where used characters are kept across restarts; empty: they count from the start"
    )
    cors_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        ("*",), description="Origins whose pages may call the API, separated by commas; empty: none"
    )

    # How it ends
    drain_delay_seconds: float = Field(
        5.0, ge=0, description="After SIGTERM: how long it still serves while `/readyz` is 503, for balancers to notice"
    )
    grace_seconds: float = Field(30.0, ge=0, description="After that: how long accepted requests may take to finish")

    # What it tells
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Lowest level that is logged")
    log_format: Literal["auto", "json", "text"] = Field(
        "auto", description="JSON lines, or plain `text`; `auto` is plain on a terminal only"
    )
    access_log: bool = Field(True, description="One line per request, never with any of its text")
    tracing: bool = Field(
        False, description="OpenTelemetry spans (extra `tracing`), sent to `OTEL_EXPORTER_OTLP_ENDPOINT`"
    )

    @field_validator("port", mode="before")
    @classmethod
    def _ignore_service_link(cls, value: object) -> object:
        return 8000 if isinstance(value, str) and value.startswith("tcp://") else value

    @field_validator("cors_origins", mode="before")
    @classmethod
    def _split_commas(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("bundle_memory", mode="before")
    @classmethod
    def _read_bytes(cls, value: object) -> object:
        found = _BYTES.fullmatch(value.strip()) if isinstance(value, str) else None
        if found is not None:
            return round(float(found["number"]) * _UNITS[found["unit"].upper()])
        return None if value == "" else value

    @field_validator("bundles", "keys_file", "state_dir", mode="before")
    @classmethod
    def _empty_is_none(cls, value: object) -> object:
        return None if value == "" else value

    @model_validator(mode="after")
    def _check_paths(self) -> "Settings":
        if self.bundles is not None and not self.bundles.is_dir():
            raise ValueError(f"bundles: there is no directory {self.bundles}")
        return self


def load_settings(**overrides: Any) -> Settings:
    """Settings from the environment, with what the command line says on top; every problem in one message.

    A variable that only looks like a setting is refused: a misspelt limit would otherwise be ignored silently.
    """
    unknown = list(_unknown_variables(os.environ))
    if unknown:
        raise SettingsError("; ".join(unknown))
    try:
        return Settings(**{name: value for name, value in overrides.items() if value is not None})
    except ValidationError as error:
        raise SettingsError("; ".join(_sentence(problem) for problem in error.errors())) from None


def _unknown_variables(environ: Mapping[str, str]) -> Iterator[str]:
    known = {setting.variable for setting in describe()}
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in known or name.startswith(SERVICE_LINK_PREFIXES):
            continue
        if name in REMOVED:
            yield f"{name} is no longer a setting, unset it: {REMOVED[name]}"
            continue
        close = difflib.get_close_matches(name, known, n=1)
        yield f"{name} is not a setting, " + (f"did you mean {close[0]}?" if close else "unset it")


def _sentence(problem: Any) -> str:
    if not problem["loc"]:
        return str(problem["ctx"]["error"])
    name = PREFIX + str(problem["loc"][0]).upper()
    return f"{name}: {problem['msg'][0].lower()}{problem['msg'][1:]}"


@dataclass(frozen=True)
class SettingRow:
    variable: str
    default: str
    description: str


def describe() -> tuple[SettingRow, ...]:
    """The README's table, row by row."""
    return tuple(
        SettingRow(PREFIX + name.upper(), _default(field.default), field.description or "")
        for name, field in Settings.model_fields.items()
    )


def _default(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)
