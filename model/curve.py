"""The learning curve of a run: JSON lines while it goes on, a picture whenever there is something new to see."""

import json
from pathlib import Path
from typing import Any

from dragoman.model.saved import write_atomically


class Curve:
    def __init__(self, folder: Path, resumed_step: int) -> None:
        self.log, self.picture = folder / "curve.jsonl", folder / "curve.png"
        folder.mkdir(parents=True, exist_ok=True)
        # What was logged after the checkpoint that we resume from will be logged again.
        rows = [row for row in read_rows(self.log) if row["step"] <= resumed_step]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        write_atomically(self.log, lambda temporary: temporary.write_text(lines) and None)

    def add(self, **row: Any) -> None:
        with self.log.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def draw(self) -> None:
        rows = read_rows(self.log)
        write_atomically(self.picture, lambda temporary: plot(rows, temporary))


def read_rows(log: Path) -> list[dict[str, Any]]:
    rows = []
    for line in log.read_text().splitlines() if log.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:  # a line that a kill cut short
            continue
    return rows


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for key, style in (("loss", {"alpha": 0.5, "linewidth": 0.8}), ("valid_loss", {"marker": "o", "markersize": 3})):
        points = [(row["step"], row[key]) for row in rows if key in row]
        if points:
            axes.plot(*zip(*points, strict=True), label=key.replace("_", " "), **style)
    axes.set(xlabel="updates", ylabel="nats per target token")
    axes.grid(alpha=0.3)
    scores = [(row["step"], row["valid_bleu"]) for row in rows if "valid_bleu" in row]
    if scores:
        right = axes.twinx()
        right.plot(*zip(*scores, strict=True), color="tab:green", marker="s", markersize=3, label="validation BLEU")
        right.set_ylabel("BLEU")
    figure.legend(loc="upper right")
    figure.savefig(path, format="png", dpi=110)
