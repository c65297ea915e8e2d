"""The tool under each disturbance: in one campaign, in the second half of a cell, or in one of two cells."""

import re

from tests.lies.disturbances import clocks, held, neighbours, settings
from tests.lies.disturbances.disturbance import ALL, FLASH, Place
from tests.lies.lie import INVALID, LIES, REFUSED, SET_ASIDE, VALID, Answer, Expected, Lie, NotStagedError, confirmed

MODULES = (neighbours, held, settings, clocks)
_IMAGES, _PIXELS, _MIB = 200, 160, 512
QUIET = ("wait_quiet_s=null", "runs=3")
_OTHERS_COUNT = ("checks.other_device_max=0.05",)  # what others do to the device is judged, as by default
_APART = Expected((REFUSED, SET_ASIDE), r"another storage|other conditions|conditions")


def place_of(workspace, device):
    """Return the images on a device as a disturbance is to have it: `PLAIN`, `DISK` or `FLASH`."""
    disk = workspace.disk(mib=_MIB, model=device, direct=True)
    paths = workspace.images(disk.point / "set" / "images", _IMAGES, pixels=_PIXELS * (2 if device == FLASH else 1))
    return Place(workspace.stack, workspace.folder, paths, disk.device)


def _disturbed(workspace, disturbance, place, *words):
    """Return what happened, and what the tool answers under a disturbance."""
    with disturbance.around(place) as start:
        folder = place.paths[0].parent
        answer = workspace.campaign(folder, *QUIET, *words, inside=start.inside, **start.environment)
        return confirmed(*start.happened()), answer


def alone(workspace, disturbance, *words):
    """Disturb a whole campaign."""
    return _disturbed(workspace, disturbance, place_of(workspace, disturbance.device), *words)


def continued(workspace, disturbance):
    """Disturb the second half of a cell's runs: the same command is to add them to its record."""
    place = place_of(workspace, disturbance.device)
    workspace.campaign(place.paths[0].parent, *QUIET)
    truth, answer = _disturbed(workspace, disturbance, place, "runs=6")
    runs = max(len(record["runs"]) for record in workspace.records())
    return f"{truth}; {runs} runs are in one record", answer


def between(workspace, disturbance):
    """Disturb a campaign from the end of its first measured run on: no median is to hold the runs before and after."""
    place, starts = place_of(workspace, disturbance.device), []

    def on_line(line):
        if "] micro" in line and len(workspace.measured()) > 1 and not starts:
            starts.append(workspace.stack.enter_context(disturbance.around(place)))

    answer = workspace.campaign(place.paths[0].parent, *QUIET, "runs=6", on_line=on_line)
    if not starts:
        raise NotStagedError("\n".join(answer.remarks))
    return confirmed(*starts[0].happened()), answer


def compared(workspace, disturbance, *words):
    """Disturb one of two cells: how many times as fast two threads are must not be told."""
    place = place_of(workspace, disturbance.device)
    workspace.campaign(place.paths[0].parent, *QUIET, *words, "threads=1")
    truth, _ = _disturbed(workspace, disturbance, place, *words, "threads=2")
    done = workspace.analysis(str(workspace.folder / "results"), "--out", "out")
    text = " ".join(line.strip() for line in done.stdout.splitlines())
    reason = re.search("no ratio of .*?(?= paper:)", text)
    return truth, Answer(REFUSED if reason else VALID, (reason[0],) if reason else (), (text,))


def _row(name, how, expected, *words, when=""):
    disturbance = ALL[name]
    name += when
    LIES[name] = Lie(name, disturbance.sentence, expected, lambda workspace: how(workspace, disturbance, *words))


_row("seeks", alone, Expected((INVALID,), "^quiet: others took"), *_OTHERS_COUNT)
_row("flushes", alone, Expected((INVALID,), "^quiet: others took"), *_OTHERS_COUNT)
_row("loader", alone, Expected((INVALID,), "^device_bytes"))
_row("io_limit", alone, Expected((VALID,), "lets .* be read on"))  # named, as a part of the machine
_row("scanner", alone, Expected((INVALID,), "^undelayed.*fanotify"))
_row("stops", alone, Expected((INVALID,), "^undelayed.*stood still"))
_row("freezer", alone, Expected((INVALID,), "^undelayed.*stood still"))
_row("stolen", alone, Expected((INVALID,), "^unstolen"), "checks.stolen_max=0.5")
_row("slewed", alone, Expected((INVALID,), "^time_adds_up"), "checks.time_error_max=0.05")
_row("slow_reads", alone, Expected((INVALID,), "^undelayed.*nanosleep"))
_row("slow_reads", compared, Expected((REFUSED,), "mixed: .*LD_PRELOAD"), "checks.delayed_max=1", when="_of_one_cell")
_row("one_core", compared, Expected((REFUSED,), "mixed: cpus 1 of 1 core"))
_row("other_queue", between, Expected((INVALID,), "^same_conditions"), when="_between_runs")
_row("other_queue", continued, _APART)
_row("allocator", continued, _APART)
_row("memory_limit", continued, _APART)
_row("huge_pages", continued, _APART)
_row("slow_processor", continued, _APART)
_row("sync_folder", continued, _APART)
