"""Log lines: JSON (or plain text, for a terminal) on standard error, and never any of a request's text.

The fields of a line are its `extra`. An exception is logged by its type and its frames, without its message: the
message of an unexpected exception may quote the text that caused it. A sentence of our own belongs in the message of
the log line.
"""

import logging
import sys
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TextIO

import orjson

ACCESS = "dragoman.access"
STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info and record.exc_info[0]:
            line["exception"] = record.exc_info[0].__name__
            line["stack"] = _frames(record.exc_info[2])
        return orjson.dumps(line, default=str).decode()


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        fields = " ".join(f"{name}={value}" for name, value in _fields(record).items() if value is not None)
        line = f"{time} {record.levelname.lower():7} {record.getMessage()} {fields}".rstrip()
        if record.exc_info and record.exc_info[0]:
            frames = "".join(f"\n    {frame}" for frame in _frames(record.exc_info[2]))
            line += f"\n  {record.exc_info[0].__name__}{frames}"
        return line


def configure_logs(level: str, log_format: str, stream: TextIO | None = None) -> None:
    """One handler for all loggers, those of libraries included."""
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    plain = log_format == "text" or (log_format == "auto" and stream.isatty())
    handler.setFormatter(TextFormatter() if plain else JsonFormatter())
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(level.upper())
    for noisy in ("uvicorn.error", "watchfiles.main"):  # we log the same in our own words
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("uvicorn.error").addFilter(_is_not_a_traceback)


def _is_not_a_traceback(record: logging.LogRecord) -> bool:
    """A failed start is logged in one sentence; uvicorn would add the whole traceback as a message."""
    return not record.getMessage().startswith("Traceback")


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in STANDARD_FIELDS}


def _frames(trace: TracebackType | None) -> list[str]:
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(trace)]
