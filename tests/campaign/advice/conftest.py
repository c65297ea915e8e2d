"""Records whose figures say what bounds them."""

import json

import pytest

from campaign.advice import evidence
from campaign.cells.cell import make_cell
from campaign.cells.folder import sign_request
from campaign.cells.verdicts import Verdicts
from tests.campaign.fake_template import TERMS
from tests.campaign.fake_template import figures as figures_of
from tests.campaign.on_disk import leave_record
from tests.campaign.work_lists import compose

HOST = {"host": "n1", "affinity": [0, 1]}
# Figures here say what bounds a cell; only what is in memory before it decides whether they count.
LIMITS = {name: 0.0 if name.endswith("_min") else 1.0 for name in TERMS["checks"]} | {"resident_max": 0.01}
LIMITS |= {"other_cpu_max": 1e4, "stolen_max": 1e4, "throttled_max": 1e4, "spread_max": 100.0, "peak_max": 1000.0}
LOOSE = {**TERMS, "checks": LIMITS}


def _times(figure, factor, name=""):
    """Return a metric of a run, or all of them, of a run that is so many times as fast."""
    if isinstance(figure, dict):
        return {name: _times(value, factor, name) for name, value in figure.items()}
    if not isinstance(figure, float) or not name.endswith("_s"):
        return figure
    return figure * factor if name.endswith("_per_s") else figure / factor


@pytest.fixture
def leave(folder):
    """A function: leave the record of the cell of these words, three runs with these medians; returns it."""

    def write(*words, counts="valid", status="done", runs=3, **figures):
        run = {
            **figures_of(resident_fraction=float(counts != "valid")), "linked_files": 0,
            "elapsed_s": figures.get("wall_s", 10.0), "wall_s": 10.0, "load_s": 9.9, "cpu_s": 0.5,
            "other_cpu": 0.0, "images": 320, "bytes_read": 40_000_000, "images_per_s": 32.0, "read_mb_per_s": 4.0,
            **figures,
        }  # fmt: skip
        run |= {"images_asked": run["images"], "throttled_periods": 1}
        cell = make_cell(compose(*words))
        data = {"path": "/d", "checksum": "c", "files": 1, "bytes": 2}
        made = {
            "status": status if runs else "running",
            "provenance": HOST,
            "campaign": {"token": "t", "words": [*words]},
        }
        ask(cell.id, words)
        scattered = [_times(run, (1, 0.99, 1.02, 1.01)[number % 4]) for number in range(runs)]
        return leave_record(folder, cell, *scattered, data=data, **made)

    def ask(cell, words):
        campaign = json.loads(folder.marker.read_text())
        campaign["requests"].append(sign_request(folder.root, {"words": [*words], "cells": [cell], "terms": LOOSE}))
        folder.marker.write_text(json.dumps(campaign))

    return write


@pytest.fixture
def known(folder, leave):
    """A function: the same, and what is known of it."""

    def gathered(*words, **figures):
        verdicts = verdicts_of(folder)
        return evidence.gather_evidence(verdicts, verdicts.judge(leave(*words, **figures)))

    return gathered


def verdicts_of(folder):
    """The judge of the folder by what its requests ask for."""
    return Verdicts(folder, LOOSE)


@pytest.fixture
def disk(leave):
    """A disk that gives 4 MB/s to a reader of small blocks, 11 to eight, and 160 of one large file."""
    for threads, rate in ((1, 4.0), (8, 11.0)):
        leave("benchmark=baseline", "benchmark.access=random_read", f"threads={threads}", read_mb_per_s=rate)
    leave("benchmark=baseline", "benchmark.access=read", read_mb_per_s=160.0)
    leave("benchmark=baseline", "benchmark.access=write", read_mb_per_s=None, write_mb_per_s=130.0)
