"""Run the verb `doctor`: report whether this machine or cluster can run a campaign and prove its measurements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from campaign import console, doctor_cluster, doctor_node
from campaign.cells.cell import Cell
from campaign.cells.cell_plan import make_plan
from campaign.cells.folder import CampaignFolder
from campaign.cli import arguments
from campaign.cluster.placement import choose_cluster
from campaign.config.collect import make_cells
from campaign.doctor_node import NodeFinding
from campaign.worker.batch import CampaignCall
from jobs.benchmarks import registry
from jobs.checkpoints.run_snapshots import storages_by_role
from jobs.model.conduct import Conduct, Point
from jobs.model.settings import Node
from jobs.objects.address import storage_of
from jobs.system.clock import utc_now
from jobs.system.files import resolve_links

_ABOUT = "Report whether this machine can run a campaign and prove its measurements."


def main(argv: list[str]) -> int:
    """Print the findings about this machine; return exit code 3 if a finding forbids a campaign, else 0."""
    usage = "[--json] [KEY=VALUE ...]     the arguments of a campaign, for example storage.root=/scratch"
    parser = arguments.make_parser("doctor", _ABOUT, usage, json=True, open_ended=True)
    options, words = arguments.take_options(parser, argv)
    from campaign.config.collect import collect_points  # noqa: PLC0415 - doctor --help starts faster without Hydra

    points = collect_points(words) or []
    cells, conduct = make_cells(points)
    findings = []
    for finding in _examine_machine(points, cells, conduct):
        findings.append(finding)
        if not options.json:
            _print_finding(finding)
    if options.json:
        console.show_json([asdict(finding) for finding in findings])
    return 3 if any(finding.passed is False for finding in findings) else 0


def _examine_machine(points: list[Point], cells: list[Cell], conduct: Conduct) -> Iterator[NodeFinding]:
    """Yield each finding as soon as it is known; a Slurm job examines the nodes of a cluster."""
    storages, on_nodes = _storages_of_grid(points), choose_cluster(cells, conduct) == "slurm"
    root = Path(conduct["campaign_dir"]).expanduser()
    yield doctor_node.check_python()
    yield doctor_node.check_campaign_folder(root.absolute())
    if not on_nodes:
        needing = registry.benchmarks_with_tensorflow(cell.settings for cell in cells)
        yield from doctor_node.examine_machine(storages, conduct["checks"], needing)
        return
    folder = CampaignFolder(resolve_links(root))
    request = CampaignCall(folder, conduct, "doctor", utc_now(), ())
    yield from doctor_cluster.examine_cluster(
        make_plan(cells, {**conduct, "redo": True}, folder).entries, storages, request
    )


def _storages_of_grid(points: list[Point]) -> list[Node]:
    """Return each storage of the grid once, with the keys ``cold`` and ``nodes``.

    ``cold`` is true if a cell reads the storage with a cold page cache. ``nodes`` is the largest number of nodes that
    use the storage in one run.
    """
    storages: dict[tuple[str, str | None], Node] = {}
    for point in points:
        saved = [
            {"exclusive": "lock", **_storage_of_side(side)} for side in storages_by_role(point["checkpoint"]).values()
        ]
        for storage, cold in ((point["storage"], point["cache"] == "cold"), *((each, False) for each in saved)):
            where = storage.get("root") or storage.get("endpoint")
            entry = storages.setdefault((storage["name"], where), {**storage, "cold": False, "nodes": 1})
            entry["cold"] |= cold
            entry["nodes"] = max(entry["nodes"], point["nodes"])
    return list(storages.values())


def _storage_of_side(side: Node) -> Node:
    """Return the storage behind one side of a checkpoint target; a side with a URL is a bucket."""
    return {"name": side["name"], "kind": "s3", **storage_of(side["root"])} if "://" in side["root"] else side


def _print_finding(finding: NodeFinding) -> None:
    mark = {True: "ok", False: "FAILED", None: "warning"}[finding.passed]
    console.show(f"{finding.what:11} {mark:8} {finding.message}", flush=True)
    if finding.passed is not True and finding.hint:
        console.show(f"{'':11} {'hint:':8} {finding.hint}", flush=True)
