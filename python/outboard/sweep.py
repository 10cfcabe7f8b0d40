"""Reports to `outboard sweep`, and its results (docs/sweeps.md).

A program of a sweep says how it is doing:

    outboard.report(step, loss=loss)

Afterwards the results are rows, and a picture (matplotlib, `pip install outboard[plot]`):

    rows = outboard.sweep.results()           # of the newest sweep
    outboard.sweep.plot("sweep.png")

    python -m outboard.sweep plot sweep.png   # the same from a shell
"""
from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import sys
from typing import Any

from outboard.reports import report

__all__ = ["plot", "report", "results"]


def _folder() -> pathlib.Path:
    """Where sweeps are, as `outboard sweep` decides it."""
    data = os.environ.get("OUTBOARD_DATA")
    if data:
        return pathlib.Path(data) / "sweeps"
    home = os.environ.get("XDG_DATA_HOME") or pathlib.Path.home() / ".local/share"
    return pathlib.Path(home) / "outboard" / "sweeps"


def results(sweep: str | None = None) -> list[dict]:
    """A dict for each trial: trial, parameters (texts), state, step, the metric and best_ of it, ms_per_step, cost_usd.

    sweep: its id, as `outboard sweep ls` prints it; without it the newest. Raises FileNotFoundError where there is none.
    """
    path = _folder()
    found = sorted(p.parent.name for p in path.glob("*/sweep.json"))
    if not found:
        raise FileNotFoundError(f"there is no sweep in {path}")
    if sweep is None:
        sweep = found[-1]
    elif sweep not in found:
        raise FileNotFoundError(f"there is no sweep {sweep} in {path}; `outboard sweep ls` lists them")
    with open(path / sweep / "results.jsonl", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _number(text: Any) -> float | None:
    try:
        number = float(text)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def plot(file: str, sweep: str | None = None, metric: str | None = None) -> None:
    """Draws the best metric of each trial against each parameter, a panel for each, into a file (PNG, SVG or PDF).

    metric: without it, the one that the sweep compares. A parameter of numbers whose range spans a factor of 50 gets a
    logarithmic axis. Raises ImportError without matplotlib, ValueError where no trial has reported the metric.
    """
    try:
        import matplotlib
    except ImportError:
        raise ImportError("a picture needs matplotlib: pip install 'outboard[plot]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = results(sweep)
    if metric is None:
        metric = next((key[len("best_"):] for row in rows for key in row if key.startswith("best_")), "loss")
    key = f"best_{metric}"
    points = [row for row in rows if _number(row.get(key)) is not None]
    if not points:
        raise ValueError(f"no trial has reported a finite {metric}")
    names = list(points[0]["parameters"])
    figure, panels = pyplot.subplots(1, len(names), figsize=(4 * len(names), 3.5), sharey=True, squeeze=False)
    for panel, name in zip(panels[0], names):
        texts = [row["parameters"][name] for row in points]
        numbers = [_number(text) for text in texts]
        heights = [row[key] for row in points]
        if None in numbers:
            panel.plot(texts, heights, "o")
        else:
            panel.plot(numbers, heights, "o")
            if min(numbers) > 0 and max(numbers) / min(numbers) > 50:
                panel.set_xscale("log")
        panel.set_xlabel(name)
    panels[0][0].set_ylabel(f"best {metric}")
    figure.tight_layout()
    figure.savefig(file)
    pyplot.close(figure)


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m outboard.sweep", description="Pictures of a sweep's results")
    commands = parser.add_subparsers(dest="command", required=True)
    draw = commands.add_parser("plot", help="draw the best metric of each trial against each parameter")
    draw.add_argument("file", help="PNG, SVG or PDF to write")
    draw.add_argument("--sweep", help="its id (default: the newest)")
    draw.add_argument("--metric", help="what to draw (default: what the sweep compares)")
    arguments = parser.parse_args()
    try:
        plot(arguments.file, arguments.sweep, arguments.metric)
    except (ImportError, OSError, ValueError) as error:
        print(f"python -m outboard.sweep: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
