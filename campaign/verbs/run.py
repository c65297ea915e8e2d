"""The main verb, spoken without a word of its own: collect the grid, plan, run, report."""

from __future__ import annotations

import os
import secrets
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import Timeout

from campaign import folder as folders
from campaign import plan, submit, talk, watch, words
from campaign.collect import collect
from campaign.errors import EnvironmentFaultError
from campaign.explain import LIBRARY_ERRORS, explain
from campaign.forks import tail
from campaign.verbs import asked
from campaign.verbs.report import analyse
from campaign.worker import WorkerStoppedError
from jobs.durable import write_json
from jobs.run import utc_now

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from campaign.cell import Cell
    from campaign.folder import CampaignFolder

INTERRUPTED = 130
_PATIENCE_S = 0.5


def main(argv: Sequence[str]) -> int:
    """Run the campaign that the words describe; returns the exit code."""
    split = words.split(argv)
    points = composed(split.hydra)
    if points is None:
        return 0
    cells, conduct = plan.cells_of(points)
    root = Path(conduct["campaign_dir"]).expanduser()
    if split.dry_run:
        _print_plan(plan.make(cells, conduct, folders.CampaignFolder(root.resolve())))
        return 0
    folder, campaign = folders.opened(root)
    with folders.occupied(folder), _polite_end():
        try:
            return _conduct(cells, conduct, folder, campaign, argv)
        except (KeyboardInterrupt, WorkerStoppedError):
            again = "the same command without redo=true" if conduct["redo"] else "the same command"
            talk.say(f"stopped; what was measured is kept, and {again} goes on from here")
            return INTERRUPTED


def composed(hydra_words: Sequence[str]) -> list[dict[str, Any]] | None:
    """Collect the grid, with Hydra's complaints in our words."""
    try:
        return collect(hydra_words)
    except LIBRARY_ERRORS as error:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        raise explain(error) from error


def _conduct(
    cells: Sequence[Cell],
    conduct: Mapping[str, Any],
    folder: CampaignFolder,
    campaign: dict[str, Any],
    argv: Sequence[str],
) -> int:
    """Do what is missing, then report; the exit code tells whether every cell asked for is done."""
    _wait_for_worker(folder)
    planned = plan.make(cells, conduct, folder)
    planned.save_verdicts(folder)
    todo = planned.to_do
    token = secrets.token_hex(4)
    request = {"token": token, "utc": utc_now(), "words": list(argv), "order_seed": conduct["order_seed"]}
    campaign["requests"].append({**request, "cells": [cell.id for cell in cells]})
    write_json(folder.marker, campaign)
    if todo:
        _work(todo, conduct, folder, token, argv)
    else:
        done = sum(entry.state == "done" for entry in planned.entries)
        talk.say(f"nothing to run: {done} of {len(cells)} cells are done")
    if analyse(folder.root) > 1:
        raise EnvironmentFaultError(
            "the report could not be made", "mend what it names, then: python -m campaign report"
        )
    # Asked again of the disk, whatever was meant to happen; what redo=true asked for is there now.
    after = plan.make(cells, {**conduct, "redo": False}, folder).entries
    if all(entry.state == "done" for entry in after):
        return 0
    talk.say("not every cell is done (`python -m campaign status` says why); the same command repeats what is lacking")
    return 1


def _work(
    todo: list[plan.Entry], conduct: Mapping[str, Any], folder: CampaignFolder, token: str, argv: Sequence[str]
) -> None:
    """Prepare the data, start a worker on the cells and watch it to its end."""
    from campaign import prepare  # noqa: PLC0415 - numpy is not on the way to --help

    with talk.preparation() as progress:
        data = prepare.datasets(todo, folder, progress, redo=conduct["redo"])
    asked_for = {"token": token, "words": list(argv), "campaign_dir": str(folder.root), "conduct": dict(conduct)}
    work = {**asked_for, "cells": [_work_item(entry, place, data) for place, entry in enumerate(todo)]}
    runs = sum(entry.missing + conduct["warmup_runs"] for entry in todo)
    talk.say(f"running {counted(len(todo), 'cell')}, {counted(runs, 'run')}, in {folder.root}")
    follower = watch.Follower(folder, todo, conduct["warmup_runs"], token)
    started = submit.submit(folder, work, conduct["cluster"]["name"])
    try:
        watch.until_over(follower, started.alive)
    except KeyboardInterrupt:
        talk.say("stopping the worker …")
        started.stop()
        raise
    _explain_early_end(started.work_list, follower)


def _work_item(entry: plan.Entry, position: int, data: Mapping[str, Any]) -> dict[str, Any]:
    """Say to a worker what a cell is, what it reads and how much of it is missing."""
    cell = entry.cell
    return {
        "id": cell.id,
        "benchmark": cell.benchmark,
        "version": cell.version,
        "settings": cell.settings,
        "dataset": data[cell.id],
        "position": position,
        "missing": entry.missing,
    }


def _explain_early_end(work_list: Path, follower: watch.Follower) -> None:
    """Raise what the worker left behind, if it ended before its list did."""
    fault = work_list.with_suffix(".error.json")
    if fault.exists():
        import json  # noqa: PLC0415 - rare

        left = json.loads(fault.read_text(encoding="utf-8"))
        raise EnvironmentFaultError(left["message"], left["hint"])
    step = follower.look()
    if step.cells_over < len(follower.entries):
        _can_write(work_list.parent)
        if asked.worker_at_work(follower.folder):
            raise EnvironmentFaultError(
                "submitit's controller was killed; the worker is still at work",
                "look at it with `python -m campaign status`; the same command waits for it and goes on from there",
            )
        logs = sorted(work_list.parent.glob("submitit/*.err"), key=lambda log: log.stat().st_mtime)
        said = tail(logs[-1], 1) if logs else ""
        raise EnvironmentFaultError(
            f"the worker ended with {len(follower.entries) - step.cells_over} cells to go: {said or 'it left no word'}",
            f"its logs are in {work_list.parent}; the same command goes on from here",
        )


def counted(number: int, noun: str) -> str:
    """Put a number before its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _can_write(folder: Path) -> None:
    """Find out whether the worker ended because nothing can be written; it could leave no word then."""
    try:
        write_json(folder / "probe.json", None)
        (folder / "probe.json").unlink()
    except OSError as error:
        raise EnvironmentFaultError(
            f"nothing can be written in {folder}: {error.strerror}",
            "free some space or mend the folder; what was measured is kept, and the same command goes on from here",
        ) from error


def _wait_for_worker(folder: CampaignFolder) -> None:
    """Wait for a worker that outlived its front process: two would measure each other."""
    lock = folder.worker_lock()
    try:
        lock.acquire(timeout=_PATIENCE_S)
    except Timeout:
        talk.say("a worker of an earlier start is still at work in this folder; waiting for it to end …")
        lock.acquire()
    lock.release()


def _print_plan(planned: plan.Plan) -> None:
    width = max(len(entry.cell.id) for entry in planned.entries)
    for entry in planned.entries:
        print(f"{entry.cell.id:{width}}  {entry.state:8}  {entry.missing} measured runs to go")
    runs = sum(entry.missing + planned.conduct["warmup_runs"] for entry in planned.to_do)
    talk.say(
        f"{counted(len(planned.entries), 'cell')}, {len(planned.to_do)} to run, "
        f"{counted(runs, 'run')} with warm-ups; nothing started"
    )


@contextmanager
def _polite_end() -> Iterator[None]:
    """Let a `kill` and a closed terminal end a campaign as Ctrl-C does."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # nohup
            signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
