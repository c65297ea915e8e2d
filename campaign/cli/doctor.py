"""`python -m campaign doctor`: whether this machine can measure, and prove what it measures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from campaign import console
from campaign.cells.cell import Cell
from campaign.cells.cell_plan import make
from campaign.cells.folder import CampaignFolder
from campaign.cli import arguments
from campaign.cluster.choice import chosen
from campaign.config.points import cells_of
from campaign.doctor import cluster, node
from campaign.doctor.node import Finding
from campaign.worker.work_list import Request
from jobs.checkpoints.run_snapshots import roles
from jobs.model.conduct import Conduct, Point
from jobs.model.settings import Node
from jobs.objects.address import storage_of
from jobs.system.clock import utc_now


def main(argv: list[str]) -> int:
    """Print the findings; exit code 3 where one forbids a campaign."""
    parser = arguments.parser(
        "doctor", "Report whether this machine can measure, and prove what it measures.", json=True
    )
    parser.usage = "%(prog)s [--json] [KEY=VALUE ...]     words as for a campaign, for example storage.root=/scratch"
    options, overrides = parser.parse_known_args(argv)
    from campaign.config.collect import collect  # noqa: PLC0415 - Hydra is not on the way to doctor --help

    points = collect(overrides) or []
    cells, conduct = cells_of(points)
    findings = []
    for finding in _examine(points, cells, conduct):
        findings.append(finding)
        if not options.json:
            _print(finding)
    if options.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    return 3 if any(finding.passed is False for finding in findings) else 0


def _examine(points: list[Point], cells: list[Cell], conduct: Conduct) -> Iterator[Finding]:
    """Check one thing after the other; a machine is checked where it will measure."""
    storages, on_nodes = _storages(points), chosen(cells, conduct) == "slurm"
    root = Path(conduct["campaign_dir"]).expanduser()
    yield node.python()
    yield node.records(root.absolute())
    if not on_nodes:
        yield from node.machine(storages, conduct["checks"])
        return
    folder = CampaignFolder(root.resolve())
    request = Request(folder, conduct, "doctor", utc_now(), ())
    yield from cluster.cluster(make(cells, {**conduct, "redo": True}, folder).entries, storages, request)


def _storages(points: list[Point]) -> list[Node]:
    """List the storages of the grid, each once, with `nodes`, how many ranks read there at most.

    ``cold`` says whether a cell asks that its files are not in memory.
    """
    found: dict[tuple[str, str | None], Node] = {}
    for point in points:
        saved = [{"exclusive": "lock", **_side(side)} for side in roles(point["checkpoint"]).values()]
        for storage, cold in ((point["storage"], point["cache"] == "cold"), *((each, False) for each in saved)):
            where = storage.get("root") or storage.get("endpoint")
            known = found.setdefault((storage["name"], where), {**storage, "cold": False, "nodes": 1})
            known["cold"] |= cold
            known["nodes"] = max(known["nodes"], point["nodes"])
    return list(found.values())


def _side(side: Node) -> Node:
    return {"name": side["name"], "kind": "s3", **storage_of(side["root"])} if "://" in side["root"] else side


def _print(finding: Finding) -> None:
    mark = {True: "ok", False: "FAILED", None: "warning"}[finding.passed]
    console.show(f"{finding.what:11} {mark:8} {finding.message}", flush=True)
    if finding.passed is not True and finding.hint:
        console.show(f"{'':11} {'hint:':8} {finding.hint}", flush=True)
