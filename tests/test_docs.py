"""The tables in docs/ are what the code says: every setting, and every metric."""

import re
from pathlib import Path

from dragoman.service.settings import describe
from dragoman.service.telemetry.metrics import Metrics

DOCS = Path(__file__).parents[1] / "docs"


def table_between(name: str) -> str:
    """The text between `<!-- name -->` and `<!-- end -->` of the page of that name."""
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- end -->", (DOCS / f"{name}.md").read_text(), re.DOTALL)
    assert found, f"docs/{name}.md has no <!-- {name} --> … <!-- end -->"
    return found.group(1)


def test_every_setting_is_documented() -> None:
    """`python -m tests.test_docs` prints the table to paste."""
    assert table_between("settings").strip() == settings_table()


def test_every_metric_is_documented() -> None:
    """Who writes a dashboard reads this table first."""
    assert table_between("metrics").strip() == metrics_table()


def settings_table() -> str:
    rows = [f"| `{row.variable}` | {code(row.default)} | {row.description} |" for row in describe()]
    return "\n".join(["| variable | default | what |", "|---|---|---|", *rows])


def metrics_table() -> str:
    rows = [
        f"| `{row.name}` | {row.kind} | {', '.join(map(code, row.labels))} | {row.description} |"
        for row in Metrics().describe()
    ]
    return "\n".join(["| metric | kind | labels | what |", "|---|---|---|---|", *rows])


def code(text: str) -> str:
    return f"`{text}`" if text else ""


if __name__ == "__main__":
    print(settings_table(), metrics_table(), sep="\n\n")
