"""Group cells into Slurm array jobs, write the batch script of each array job, and submit the script.

submitit writes the batch script. The script runs ``python -m campaign.worker`` instead of a pickled function. So the
jobs still find their work lists if this process is killed just after ``sbatch``. submitit is imported inside functions,
because --help, status and --dry-run on this machine do not need submitit.

This module calls one private function of submitit, because no public function returns the text of a batch script. The
public function `submit` pickles a function, writes the script and calls sbatch at once. Then --dry-run could not show
the script, and `campaign.slurm` could not submit the script and report why sbatch refuses.
tests/campaign/cluster/test_sbatch_text.py checks the whole text, and fails if the private function changes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
import shlex
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any

from campaign import console
from campaign.cells.cell_plan import PlannedCell
from campaign.console import count_noun
from campaign.errors import EnvironmentFaultError, SchedulerError, UsageError
from campaign.slurm import client, scheduler
from campaign.storage import datasets
from campaign.worker.batch import Batch, CampaignCall
from jobs.model.conduct import Cluster
from jobs.model.record import Access, Data
from jobs.system.files import write_json, write_text

_CODE = Path(__file__).resolve().parents[2]
_UNBOUNDED = 256  # jobs of an array that run at the same time if their storage is not shared
_PASSED_ON = ("partition", "account", "qos", "constraint", "exclude", "gpus_per_node")
_NOT_IN_JOB_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_WORD = 24  # characters of each word in a job's name
_RANKS_END_WITHIN_S = 60  # srun kills ranks that still run this long after the first rank has ended
_PAUSES_S = (0.0, 2.0, 3.0, 5.0)  # pauses before each question to a busy controller


def write_array_script(folder: Path, parameters: Mapping[str, object], tasks: int, command: str) -> str:
    """Return the text of the batch script for an array job with `tasks` tasks."""
    import submitit  # noqa: PLC0415 - see above

    try:
        executor = submitit.SlurmExecutor(folder)
    except RuntimeError as error:
        raise EnvironmentFaultError(f"cluster=slurm: {error}", "on a machine without Slurm: cluster=local") from error
    executor.update_parameters(**parameters)
    executor.parameters["map_count"] = tasks
    return str(executor._make_submission_file_text(command, ""))  # noqa: SLF001


@dataclass(frozen=True)
class Array:
    """A Slurm array job before its submission: each task is a worker that runs some cells of one storage."""

    request: CampaignCall
    folder: Path  # the folder of the batch, which is the working directory of the jobs
    tasks: Sequence[Sequence[PlannedCell]]  # the cells of each worker
    first: int  # position of this array's first cell in the shuffled order of the storage's cells
    # The array with other cells of the same storage, which must end before this array starts; one array has a maximum
    # number of tasks.
    previous_array: Array | None
    data_array: Array | None = None  # the array that makes the data for this array; None if no job makes data
    makes_data: bool = False  # whether this array makes the data of its cells; then other arrays run the cells

    @property
    def access(self) -> Access:
        """Return how nodes and users share the storage of the array."""
        return self.tasks[0][0].cell.access

    @property
    def threads(self) -> int:
        """Return the largest number of threads of a cell in this array."""
        return max(int(entry.cell.settings.get("threads", 1)) for task in self.tasks for entry in task)

    @property
    def cpus(self) -> int:
        """Return the CPUs per task: ``cluster.cpus_per_task``, or by default the largest number of threads."""
        return int(self._cluster["cpus_per_task"] or self.threads)

    @property
    def mem_mb(self) -> int | None:
        """Return the memory per task in MiB, the unit of sbatch, or None for Slurm's default."""
        mem_gb = self._cluster["mem_gb"]
        return None if mem_gb is None else math.ceil(mem_gb * 1e9 / 2**20)

    @property
    def nodes(self) -> int:
        """Return the number of nodes per task; all cells of an array need the same number."""
        return 1 if self.makes_data else int(self.tasks[0][0].cell.settings.get("nodes", 1))

    @property
    def at_once(self) -> int:
        """Return how many tasks of the array may run at the same time."""
        return min(len(self.tasks), self._cluster["parallel"] or (1 if self.access["shared"] else _UNBOUNDED))

    @property
    def job_name(self) -> str:
        """Return the name of the jobs.

        With ``exclusive: singleton``, all jobs of a storage have the same name, because Slurm runs singleton jobs with
        the same name one by one. Otherwise the name contains the token of the submission.
        """
        storage = self.tasks[0][0].cell.settings["storage"]
        if self.access["exclusive"] == "singleton":
            digest = hashlib.sha256(str(storage.get("root") or storage["endpoint"]).encode()).hexdigest()[:8]
            return f"tfio-{storage['name']}-{digest}"
        words = (
            _NOT_IN_JOB_NAMES.sub("_", word)[:_LONGEST_WORD] for word in (self.request.folder.root.name, self._subject)
        )
        return "-".join(("tfio", *words, self.request.token))

    @property
    def _subject(self) -> str:
        """Return the recipes of the request (``+paper=…``), or the benchmarks of the array if there is no recipe."""
        recipes = [word.partition("=")[2] for word in self.request.words if word.startswith("+paper=")]
        return ",".join(recipes or sorted({entry.cell.benchmark for task in self.tasks for entry in task}))

    @property
    def _cluster(self) -> Cluster:
        cluster: Cluster = self.request.conduct["cluster"]
        return cluster

    @property
    def timeout_min(self) -> int:
        """Return the time limit per task in minutes; a job that makes data gets the site's longest time limit."""
        longest = self.request.conduct["site"].get("timeout_max_min") if self.makes_data else None
        return int(max(longest or 0, self._cluster["timeout_min"]))

    @property
    def node_hours(self) -> float:
        """Return the node-hours that the array uses if each task runs once until its time limit."""
        return len(self.tasks) * self.nodes * self.timeout_min / 60

    def script(self, job_ids: Mapping[Path, str | None] = MappingProxyType({})) -> str:
        """Return the text of the batch script.

        `job_ids` maps the folders of earlier arrays to their job ids, because this array may have to wait for them.
        """
        work_list = f"{shlex.quote(str(self.folder))}/work-${{SLURM_ARRAY_TASK_ID}}.json"
        command = f"{shlex.quote(sys.executable)} -P -u -m campaign.worker {work_list}"
        return write_array_script(self.folder, self._parameters(job_ids), len(self.tasks), command)

    def setup_lines(self) -> list[str]:
        """Return the shell lines that prepare the node, for example ``module load``; if a line fails, the job ends."""
        site_commands = [*(f"module load {module}" for module in self._cluster["modules"]), *self._cluster["prelude"]]
        code = int(EnvironmentFaultError.exit_code)
        return [
            *(f"{command} || exit {code}" for command in site_commands),
            f'export PYTHONPATH={shlex.quote(str(_CODE))}"${{PYTHONPATH:+:$PYTHONPATH}}"',
        ]

    def make_batch(self) -> Batch:
        """Return the batch, which later commands read to find the jobs of the array."""
        cells = [[entry.cell.id for entry in task if not self.makes_data] for task in self.tasks]
        return Batch(self.folder, "slurm", self.request.token, self.job_name, cells, self.request.utc)

    def submit(self, data: Mapping[str, Data | None], job_ids: Mapping[Path, str | None]) -> Batch:
        """Write the work lists, submit the array and return its batch; for `job_ids` see `script`."""
        text, batch = self.script(job_ids), self.make_batch()
        batch.folder.mkdir(mode=0o700)
        position = self.first
        for index, task in enumerate(self.tasks):
            work = self.request.work_list("slurm", task, data, position)
            if self.makes_data:
                work |= {"cells": [], "to_make": work["cells"]}
            write_json(batch.work_list(index), work, indent=None)
            position += len(task)
        write_text(batch.script, text)
        batch.save()  # the last file, so that a disk that is full leaves no batch whose jobs would be looked for
        try:
            job_id = client.submit_script(batch.script)
        except client.RefusedError as error:
            job_id = find_job_id(batch, error)
        batch = dataclasses.replace(batch, job_id=job_id)
        batch.save()
        return batch

    def _parameters(self, job_ids: Mapping[Path, str | None]) -> dict[str, object]:
        cluster = self._cluster
        # Since Slurm 22.05, srun does not inherit the number of CPUs from sbatch, so srun gets the number as an option.
        # A job that makes data uses all CPUs of the job, so srun must not bind it to some of these CPUs.
        # If a rank fails, srun must not kill the other ranks, because the first rank records how each rank ended.
        cpu_option = "--cpu-bind=none" if self.makes_data else f"--cpus-per-task={self.cpus}"
        rank_options = ["--kill-on-bad-exit=0", f"--wait={_RANKS_END_WITHIN_S}"] if self.nodes > 1 else []
        return {
            **{key: value for key, value in cluster.items() if key in _PASSED_ON and value is not None},
            **({} if self.mem_mb is None else {"mem": f"{self.mem_mb}M"}),
            "job_name": self.job_name,
            "comment": cluster["comment"] or f"tfio-campaign {self.request.folder.root} {self._subject}",
            "wckey": cluster["wckey"],  # without this key, submitit sets a default wckey
            "time": self.timeout_min,
            "nodes": self.nodes,
            "ntasks_per_node": 1,
            "cpus_per_task": self.cpus,
            "array_parallelism": cluster["parallel"] or (1 if self.access["shared"] else _UNBOUNDED),
            "signal_delay_s": cluster["signal_delay_s"],
            "setup": self.setup_lines(),
            "srun_args": [cpu_option, *rank_options],
            "additional_parameters": self._additional_parameters(job_ids),
        }

    def _additional_parameters(self, job_ids: Mapping[Path, str | None]) -> dict[str, object]:
        cluster, access = self._cluster, self.access
        licenses = [cluster["licenses"], access["license"] if access["exclusive"] == "license" else None]
        earlier_arrays = ((self.previous_array, "afterany"), (self.data_array, "afterok"))
        dependencies = [
            cluster["dependency"],
            "singleton" if access["exclusive"] == "singleton" else None,
            *(f"{when}:{job_id}" for array, when in earlier_arrays if array and (job_id := job_ids.get(array.folder))),
        ]
        options: dict[str, object] = {"chdir": str(self.folder), "requeue": True}
        if self.data_array:
            # If the job that makes the data fails, the jobs that need the data would otherwise wait for ever.
            options["kill-on-invalid-dep"] = "yes"
        for key, parts in (("licenses", licenses), ("dependency", dependencies)):
            if any(parts):
                options[key] = ",".join(part for part in parts if part)
        if cluster["exclusive"]:
            options["exclusive"] = True
        extra = {key: value for key, value in cluster["extra"].items() if value not in (None, False)}
        return {**options, **extra}


def make_arrays(
    entries: Sequence[PlannedCell], request: CampaignCall, tasks_at_most: int, made_by_job: Collection[str] = ()
) -> Iterator[Array]:
    """Yield the array jobs for cells: one per storage and number of nodes, or more if one array cannot hold all cells.

    Arrays of the same storage run one after the other. If a cell's id is in `made_by_job`, an extra array makes the
    data of the cell first. With ``in_turn=true``, all cells of an array are in one task.
    """
    if pool := request.conduct["cluster"]["pool"]:
        request = _restrict_to_pool(request, pool)
    ordered = sorted(enumerate(entries), key=lambda item: (_storage_key(item[1]), item[0]))
    # Use a new folder number for each array, because a refused array is submitted again in a new folder.
    folders = request.folder.workers.glob(f"{request.token}-*")
    number = 1 + max((int(path.name.rpartition("-")[2]) for path in folders), default=-1)
    for _, entries_of_storage in groupby((entry for _, entry in ordered), key=_storage_key):
        group, data_array, previous, position = [*entries_of_storage], None, None, 0
        if entry_of_data := {datasets.data_key(e.cell.settings): e for e in group if e.cell.id in made_by_job}:
            folder = request.folder.workers / f"{request.token}-{number}"
            data_array = Array(request, folder, [[*entry_of_data.values()]], 0, None, makes_data=True)
            yield data_array
            number += 1
        by_nodes = groupby(sorted(group, key=_number_of_nodes), key=_number_of_nodes)
        cells_per_task = len(group) if request.conduct["in_turn"] else request.conduct["cluster"]["cells_per_job"]
        tasks_by_nodes = [list(_split_into(list(cells), cells_per_task)) for _, cells in by_nodes]
        for tasks in [part for all_tasks in tasks_by_nodes for part in _split_into(all_tasks, tasks_at_most)]:
            folder = request.folder.workers / f"{request.token}-{number}"
            previous = Array(request, folder, tasks, position, previous, data_array)
            yield previous
            number, position = number + 1, position + sum(len(task) for task in tasks)


def _restrict_to_pool(request: CampaignCall, pool: str) -> CampaignCall:
    """Return the request with ``cluster.exclude`` set to all nodes outside the pool.

    The option --nodelist does not serve this purpose: each job would ask for all nodes of the pool.
    """
    cluster = request.conduct["cluster"]
    excluded = ",".join(filter(None, (cluster["exclude"], _nodes_outside(pool))))
    return dataclasses.replace(
        request, conduct={**request.conduct, "cluster": {**cluster, "exclude": excluded or None, "pool": None}}
    )


@cache
def _nodes_outside(pool: str) -> str:
    """Return the nodes of the cluster outside a pool in Slurm's short form, or an empty text if all are in the pool."""
    inside, all_nodes = (
        client.ask_slurm("scontrol", "show", "hostnames", pool),
        client.ask_slurm("sinfo", "-ahN", "-o", "%N"),
    )
    outside = {*(all_nodes or "").split()}.difference((inside or "").split())
    short = client.ask_slurm("scontrol", "show", "hostlistsorted", ",".join(sorted(outside))) if outside else ""
    if inside is None or all_nodes is None or short is None:
        raise SchedulerError(
            f"cluster.pool={pool}: Slurm does not list the nodes of the cluster", "`sinfo -N` lists the nodes"
        )
    if unknown := {*inside.split()}.difference(all_nodes.split()):
        raise UsageError(f"cluster.pool={pool}: there is no node {min(unknown)}", "`sinfo -N` lists the nodes")
    pooled = count_noun(len({*inside.split()}), "node")
    console.say(f"cluster.pool={pool}: each job runs on one of {pooled}; excluded: {short.strip() or 'none'}")
    return short.strip()


def _number_of_nodes(entry: PlannedCell) -> int:
    return int(entry.cell.settings.get("nodes", 1))


def _storage_key(entry: PlannedCell) -> str:
    """Return a text that is equal for cells with the same storage and the same access settings."""
    return str((entry.cell.settings["storage"], sorted(entry.cell.access.items())))


def _split_into(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Yield the parts of a sequence; a part has at most `size` items."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def find_job_id(batch: Batch, error: client.RefusedError) -> str:
    """Return the job id if Slurm has the job although ``sbatch`` failed, for example because its answer was late.

    Raises
    ------
    SchedulerError
        Slurm has refused the job; then the batch is marked as refused. The error is also raised if it is unknown
        whether Slurm has the job, for example after a timeout of sbatch. Then the batch stays open, and a later command
        asks Slurm for the job again.
    """
    jobs = count_noun(len(batch.cells), "job")
    may_come_late = error.refusal == client.SubmissionRefusal.NO_ANSWER
    for pause_s in _PAUSES_S:
        time.sleep(pause_s)
        listed = scheduler.list_tasks([batch.job_name])
        for task in listed or ():
            # Slurm also lists a refused job: its state is FAILED (BadConstraints), and it has no node.
            if task.folder == str(batch.folder) and (task.live or task.node):
                return task.job_id.partition("_")[0]
        if client.has_given_up() or (listed is not None and not may_come_late):
            break
    if listed is None or may_come_late:
        raise SchedulerError(
            f"Slurm does not say whether it accepted {jobs}: {error}",
            "repeat the same command when Slurm answers again: it submits the missing jobs",
        ) from error
    try:
        dataclasses.replace(batch, refused=str(error)).save()
    except OSError:  # on a full disk no batch is left either, so that nobody looks for its jobs
        batch.file.unlink()
    raise SchedulerError(
        f"sbatch refused {jobs}: {error}",
        "`python -m campaign doctor` tests the account, partition and limits; --dry-run shows the script",
    ) from error
