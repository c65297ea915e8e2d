"""Report the verdict on published runs of MLPerf Storage as a table, as JSON and as a chart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from rich.table import Table
from rich.text import Text

from analysis.figures.kit import panels, save
from analysis.mlperf.referee import NOTICE, is_complete
from analysis.output.terminal import empty_table
from analysis.text import DASH, NONE, join_values, one_line, percentage

STEM = "mlperf-au"
RUNS_IN_A_TABLE, MOST_LINES = 3, 20
MOST_PANELS, MOST_EPOCHS, MOST_VALUES = 12, 24, 32
SPREAD = 0.36
# The colours are blue and vermilion from the palette of Okabe and Ito. The markers differ too, for readers who cannot
# distinguish the colours.
LOOKS: dict[str, dict[str, Any]] = {
    "a rank": {"linestyle": "none", "marker": "o", "color": "#0072B2", "markersize": 2.5},
    "a rank below the limit": {"linestyle": "none", "marker": "v", "color": "#D55E00", "markersize": 2.5},
    "published mean": {"linestyle": "solid", "color": "black", "linewidth": 1},
    "least that passes": {"linestyle": "dashed", "color": "#D55E00", "linewidth": 1},
}
CAPTION = (
    f"{NOTICE}. AU as DLIO counts it, from the steps of each rank. Within an epoch the ranks stand in order, rank 0"
    " at the left. Definitions: docs/reference/mlperf.md."
)


def document(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the runs as JSON, in which a missing number is null."""
    return msgspec.json.format(
        msgspec.json.encode({"notice": NOTICE, "runs": runs}, enc_hook=_plain), indent=1
    ).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, pd.DataFrame):
        return value.to_dict("records")
    return value.to_dict() if isinstance(value, pd.Series) else value.item()


def tables(runs: Sequence[Mapping[str, Any]]) -> Iterator[Table | Text]:
    """Yield a table of the runs with one column per run, then the differences and the remarks of each run."""
    names = labels(runs)
    for place in range(0, len(runs), RUNS_IN_A_TABLE):
        few = slice(place, place + RUNS_IN_A_TABLE)
        table = empty_table(("", "left"), *((name, "left") for name in names[few]))
        columns = [_rows(run) for run in runs[few]]
        for row in columns[0]:
            table.add_row(row, *(Text(column[row]) for column in columns))
        yield table
        yield Text("")
    for label, run in zip(names, runs, strict=True):
        head = f"{label}: " if len(runs) > 1 else ""
        for kind, style in (("differences", "red"), ("remarks", "")):
            more = [f"and {len(run[kind]) - MOST_LINES:,} more: see --json"] if len(run[kind]) > MOST_LINES else []
            for each in [*run[kind][:MOST_LINES], *more]:
                yield Text(f"{head}{'differs: ' if style else ''}{each}", style=style)
    yield Text(NOTICE)


def labels(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a name for each run: the shortest end of its path that distinguishes all runs."""
    paths = [Path(run["folder"]).absolute().parts for run in runs]
    length = next((n for n in range(1, 64) if len({path[-n:] for path in paths}) == len({*paths})), 64)
    return [one_line("/".join(path[-length:])) for path in paths]


def _rows(run: Mapping[str, Any]) -> dict[str, str]:
    au, rate, missing, sources = run["au"], run["samples_per_s"], run["missing"], run["sources"]
    published, hosts = au["published"], f", {run['hosts']} host{'s' * (run['hosts'] > 1)}" if run["hosts"] else ""
    aus = run["by_epoch"]["checked"] if au["recomputed"] >= 0 else run["by_epoch"]["published"]
    return {
        "accelerators": f"{run['accelerators']}{hosts}",
        "epochs x steps x batch": f"{run['epochs']} x {join_values(run['steps']) or NONE} x {_number(run['batch'], 0)}",
        "nominal step": f"{run['step_s']:.6g} s, {sources['step_s']}" if "step_s" in sources else NONE,
        "AU that passes": f"{run['minimum']:g} %, {sources['minimum']}" if "minimum" in sources else NONE,
        "AU, published": f"{_number(published, 4)} {run['verdict'] or ''}",
        "AU, mean of the ranks' own": _beside(au["of_the_ranks"], published, 4),
        "AU, recomputed from steps": _beside(au["recomputed"], published, 4),
        "AU, nominal": _number(au["nominal"], 2),
        "AU by the rules' text": _number(au["rules_text"], 2),
        "AU by epoch": _listed(aus),
        "AU by rank": _listed(run["by_rank"]),
        "worst epoch": _worst(run["worst"]["epoch"]),
        "worst rank": _worst(run["worst"]["rank"]),
        "worst rank in an epoch": _worst(run["worst"]["rank_in_an_epoch"]),
        "most loading": _worst(run["worst"]["most_loading"]),
        "samples/s, published": _number(rate["published"], 2),
        "samples/s, recomputed": _beside(rate["recomputed"], rate["published"], 2),
        "samples/s counts": rate["counts"] or NONE,
        **{f"time: {name}": percentage(part, 1) for name, part in run["shares_of_time"].items()},
        "ranks without steps": _ranges(missing["ranks"]) or "none",
        "epochs without steps": _ranges(missing["epochs"]) or "none",
        "not recomputed": "\n".join(f"{name}: {why}" for name, why in missing["not_recomputed"].items()) or "nothing",
        "differs from published": _differing(run),
    }  # fmt: skip


def _differing(run: Mapping[str, Any]) -> str:
    if number := len(run["differences"]):
        return f"{number} figure{'s' * (number > 1)}"
    return "nothing" if is_complete(run) else "unknown, because ranks or epochs are missing"


def _number(value: float | None, digits: int) -> str:
    return NONE if value is None or math.isnan(value) else f"{value:.{digits}f}"


def _listed(aus: pd.Series[float]) -> str:
    more = f" and {len(aus) - MOST_VALUES:,} more" if len(aus) > MOST_VALUES else ""
    return " ".join(_number(each, 2) for each in aus.head(MOST_VALUES)) + more or NONE


def _beside(value: float, published: float, digits: int) -> str:
    apart = round(value - published, digits) + 0.0  # + 0.0 turns -0.0 into 0.0
    return _number(value, digits) + ("" if math.isnan(apart) else f" ({apart:+.{digits}f})")


def _worst(found: Mapping[str, Any]) -> str:
    where = ", ".join(f"{name} {found[name]}" for name in ("rank", "epoch") if name in found)
    if not where:
        return NONE
    if "share" in found:
        return f"{percentage(found['share'], 1)} ({where})"
    return f"{found['au']:.2f} ({where}) {({True: 'passes', False: 'fails'}).get(found['passes'], '')}".rstrip()


def _ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers as a text, in which consecutive numbers are written as a range."""
    present = {*numbers}
    starts = [number for number in numbers if number - 1 not in present]
    ends = [number for number in numbers if number + 1 not in present]
    return ", ".join(f"{a}" if a == b else f"{a}{DASH}{b}" for a, b in zip(starts, ends, strict=True))


def write_chart(runs: Sequence[Mapping[str, Any]], out: Path) -> list[Path]:
    """Write the chart of AU by rank and epoch into a folder as PDF, PNG and CSV; return the paths.

    Return an empty list if no run has step times.
    """
    save.require_own_folders(out)
    frames = [
        cells.assign(
            run=label,
            minimum=float(run["minimum"]),
            published=cells["epoch"].map(run["by_epoch"]["published"]),
            notice=NOTICE,
        )
        for label, run in zip(labels(runs), runs, strict=True)
        if len(cells := run["cells"])
    ]
    if not frames:
        return []
    frame = pd.concat(frames, ignore_index=True)
    drawn = f" Drawn are {MOST_PANELS} of {len(frames)} runs." if len(frames) > MOST_PANELS else ""
    figure = au_over_epochs(frame, "Accelerator utilisation by rank and epoch", CAPTION + drawn)
    return save.save_figure(figure, frame, out, STEM)


@panels.complete_figure
def au_over_epochs(frame: pd.DataFrame) -> panels.Panels:
    """Draw one panel per run with the AU over the epochs and the minimum AU.

    Within an epoch there is one point per rank, with rank 0 at the left.
    """
    names = [*dict.fromkeys(frame["run"])][:MOST_PANELS]
    wide = max(2.2, 0.55 * min(MOST_EPOCHS, int(frame["epoch"].max())))
    figure, grid = panels.panel_grid(len(names), panels.IN_A_ROW, (wide, 1.9), 4.0, sharey=True)
    shown = set()
    for axes, name in zip(grid, names, strict=True):
        cells = frame[frame["run"] == name]
        epochs = sorted({*cells["epoch"]})[:MOST_EPOCHS]
        cells = cells[cells["epoch"].isin(epochs)]
        at = cells["epoch"].map(epochs.index) + SPREAD * (2 * cells["rank"] / max(1, cells["rank"].max()) - 1)
        below = cells["checked_au"] < cells["minimum"]
        for label, some in (("a rank", ~below), ("a rank below the limit", below)):
            if some.any():
                axes.plot(at[some], cells["checked_au"][some], **LOOKS[label])
                shown.add(label)
        means = cells.groupby("epoch")["published"].first()
        axes.hlines(means, np.arange(len(means)) - 0.46, np.arange(len(means)) + 0.46, **LOOKS["published mean"])
        if (least := cells["minimum"].iloc[0]) > 0:
            axes.axhline(least, **LOOKS["least that passes"])
        panels.set_categories(axes, epochs)
        axes.set_title(panels.wrap_name(name, 3 * panels.PANEL_LETTERS))
        axes.set_xlabel("epoch")
    grid[0].set_ylabel("AU (%)")
    shown |= {name for name, column in (("published mean", "published"), ("least that passes", "minimum"))
              if frame[column].notna().any()}  # fmt: skip
    return figure, [Line2D([], [], label=label, **look) for label, look in LOOKS.items() if label in shown]
