"""Examine a cluster for `doctor`: does Slurm accept the campaign's jobs, and can its nodes see the campaign folder."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from campaign.cells.cell_plan import PlannedCell
from campaign.cluster import submission
from campaign.doctor_node import ExaminationRequest, NodeFinding, NodeFindings
from campaign.errors import CampaignError
from campaign.slurm import client
from campaign.storage.roots import storage_root
from campaign.worker.batch import CampaignCall
from campaign.worker.runner import last_lines
from jobs.benchmarks import registry
from jobs.model import reading
from jobs.model.settings import Node
from jobs.system.files import write_json, write_text

_PROGRAMS = ("sbatch", "srun", "squeue", "scancel", "scontrol")
_QUEUE_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 30.0
_PROBE_MIN = 10
_PROBE_TIMEOUT_S = 400.0  # the first import of TensorFlow from a busy network file system takes minutes
_ASK_EACH_S = 1.0
_OPENING = "touch begun; trap 'touch over' EXIT; exec > output 2>&1"
_CHECK = "check cluster.partition, account, qos, constraint, timeout_min, cpus_per_task; --dry-run shows the script"
# The hint for each value of `client.SubmissionAnswer.is_accepted`.
_HINTS = {True: "", False: _CHECK, None: "see `scontrol ping`; try again later"}


def examine_cluster(
    entries: Sequence[PlannedCell], storages: Iterable[Node], request: CampaignCall
) -> Iterator[NodeFinding]:
    """Yield the findings on Slurm's programs, controller and accounting, on the campaign's batch scripts and a node."""
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing:
        hint = "log in to a login node of the cluster, or measure on this machine: cluster=local"
        yield NodeFinding("slurm", passed=False, message=f"not found: {', '.join(missing)}", hint=hint)
        return
    facts = client.read_slurm_config()
    if not facts.text:
        yield NodeFinding("slurm", passed=False, message="the controller does not answer", hint="see `scontrol ping`")
        return
    yield NodeFinding("slurm", passed=True, message=f"cluster {facts.cluster}, Slurm {facts.version}")
    yield from _ignored_variables()
    yield _check_accounting(facts)
    arrays = list(submission.make_arrays(entries, request, facts.tasks_at_most))
    for array in arrays:
        yield _check_submission(array)
    if arrays:
        needing_tensorflow = registry.benchmarks_with_tensorflow(entry.cell.settings for entry in entries)
        yield from _examine_node(arrays[0], map(_with_absolute_root, storages), request.folder.root, needing_tensorflow)


def _with_absolute_root(storage: Node) -> Node:
    """Return a storage with an absolute root, because a job starts in another folder.

    A root that is relative and does not exist is created.
    """
    if "root" in storage and not Path(storage["root"]).expanduser().is_absolute():
        with contextlib.suppress(CampaignError):  # the job on the node will report this error
            return {**storage, "root": str(storage_root(storage))}
    return dict(storage)


def _ignored_variables() -> Iterator[NodeFinding]:
    """Yield a warning if SBATCH_ variables are set, because the campaign does not pass these variables to sbatch."""
    ignored = sorted(name for name in os.environ if name.startswith("SBATCH_"))
    if ignored:
        message = f"the jobs of campaigns ignore the environment variables {', '.join(ignored)}"
        hint = "use settings of the campaign instead: cluster.account=…, site=…"
        yield NodeFinding("slurm", passed=None, message=message, hint=hint)


def _check_accounting(facts: client.SlurmConfig) -> NodeFinding:
    if facts.accounting:
        return NodeFinding("accounting", passed=True, message="sacct reports how jobs ended")
    log = facts.completion_log
    if log and os.access(log, os.R_OK):
        return NodeFinding("accounting", passed=True, message=f"no sacct; {log} reports how jobs ended")
    message = f"none: Slurm reports how a job ended only for {facts.min_job_age_s} s after its end (MinJobAge)"
    hint = "keep the campaign, or `status --watch`, running until the jobs end"
    return NodeFinding("accounting", passed=None, message=message, hint=hint)


def _check_submission(array: submission.Array) -> NodeFinding:
    """Let ``sbatch --test-only`` check the script that a campaign would submit, and return its answer as a finding."""
    try:
        script = array.script()
    except CampaignError as error:
        return NodeFinding("submission", passed=False, message=error.message, hint=error.hint)
    answer = client.call_sbatch("--test-only", script=script)
    name = array.tasks[0][0].cell.settings["storage"]["name"]
    message = f"storage {name}: {answer.words}"
    return NodeFinding("submission", passed=answer.is_accepted, message=message, hint=_HINTS[answer.is_accepted])


def _examine_node(
    array: submission.Array, storages: Iterable[Node], campaign: Path, needing_tensorflow: list[str]
) -> Iterator[NodeFinding]:
    """Submit a probe job with the options of the campaign's jobs, and yield what the job finds on its node."""
    parent = next(folder for folder in (campaign, *campaign.parents) if folder.exists())
    with tempfile.TemporaryDirectory(dir=parent, prefix=".tfio-doctor-", ignore_cleanup_errors=True) as path:
        folder, nonce = Path(path), secrets.token_hex(8)
        request: ExaminationRequest = {
            "nonce": nonce,
            "storages": list(storages),
            "checks": array.request.conduct["checks"],
            "needing_tensorflow": needing_tensorflow,
        }
        write_json(folder / "request", request)
        answer = _submit_probe(array, folder)
        if not answer.is_accepted:
            message = f"sbatch did not accept the probe job: {answer.words}"
            yield NodeFinding("nodes", passed=answer.is_accepted, message=message, hint=_HINTS[answer.is_accepted])
            return
        job = answer.printed.strip().partition(";")[0]
        try:
            yield from _read_answer(folder, nonce, job)
        finally:
            _end_job(job)


def _end_job(job: str) -> None:
    """Cancel the probe job, and wait until it has ended, because its working folder is removed next."""
    client.ask_slurm("scancel", job)
    deadline = time.monotonic() + _END_TIMEOUT_S
    while client.ask_slurm("squeue", "-h", "--all", "-j", job) and time.monotonic() < deadline:
        time.sleep(_ASK_EACH_S)


def _submit_probe(array: submission.Array, folder: Path) -> client.SubmissionAnswer:
    """Submit the probe job with the options and the setup lines of a real job; return sbatch's answer.

    Unlike a real job, the probe job is no job array, has a limit of a few minutes, and works in `folder`.
    """
    examine = f"{shlex.quote(sys.executable)} -P -m campaign.doctor_node request"
    steps = [(line, line) for line in array.setup_lines()] + [
        (examine, f"{examine} > answer.tmp && mv answer.tmp answer")
    ]
    named_steps = [f"echo {shlex.quote(name)} > step\n{line}" for name, line in steps]
    probe = folder / "probe.sh"
    write_text(probe, "\n".join(("#!/bin/bash", f"cd {shlex.quote(str(folder))} || exit", _OPENING, *named_steps, "")))
    options = [line.removeprefix("#SBATCH ") for line in array.script().splitlines() if line.startswith("#SBATCH")]
    dropped = ("--array", "--chdir", "--error", "--output", "--time", "--signal", "--requeue", "--dependency")
    kept_options = [shlex.split(option)[0] for option in options if not option.startswith(dropped)]
    minutes = min(_PROBE_MIN, array.request.conduct["cluster"]["timeout_min"])
    own_options = (f"--time={minutes}", f"--chdir={folder}", "--output=/dev/null", str(probe))
    return client.call_sbatch("--parsable", *kept_options, *own_options)


def _read_answer(folder: Path, nonce: str, job: str) -> Iterator[NodeFinding]:
    """Yield the findings of the probe job, or one finding that says why the job gave no findings."""
    if not _wait_for_file(folder / "begun", _QUEUE_TIMEOUT_S):
        state = client.ask_slurm("squeue", "-h", "--all", "-j", job, "-o", "%T (%r)")
        state = "the scheduler does not answer" if state is None else state.strip()
        if state.partition(" ")[0] not in ("", "RUNNING", "COMPLETING"):  # empty: the job has ended
            message = f"the probe job still waits after {_QUEUE_TIMEOUT_S:.0f} s: {state}"
            yield NodeFinding("nodes", passed=None, message=message, hint="try again when the queue is short")
            return
        message = f"a job ran, but its files are not visible here in {folder.parent}"
        hint = "choose campaign_dir=… in a folder that login nodes and compute nodes share"
        yield NodeFinding("nodes", passed=False, message=message, hint=hint)
    elif not _wait_for_file(folder / "over", _PROBE_TIMEOUT_S):
        message = f"the probe job has not answered after {_PROBE_TIMEOUT_S:.0f} s"
        yield NodeFinding("nodes", passed=False, message=message, hint="check whether a file system hangs on the node")
    elif not (folder / "answer").exists():
        step, last_line = last_lines(folder / "step", 1), last_lines(folder / "output", 1)
        message = f"a job failed at `{step}`: {last_line or 'nothing was printed'}"
        hint = f"install this code in a folder that the nodes can read; jobs start {sys.executable}"
        if sys.executable not in step:
            hint = "correct site.modules or site.prelude, whose commands run first in every job"
        yield NodeFinding("nodes", passed=False, message=message, hint=hint)
    else:
        try:
            answer = reading.read_json(folder / "answer", NodeFindings)
        except ValueError as error:
            message = f"the probe job's answer cannot be read: {error}"
            yield NodeFinding("nodes", passed=False, message=message, hint="find what prints text when Python starts")
            return
        message = f"a job on {answer['host']} read and wrote {folder.parent}, and runs this code"
        yield NodeFinding("nodes", passed=answer["nonce"] == nonce, message=message)
        for finding in answer["findings"]:
            yield NodeFinding(**{**finding, "message": f"{answer['host']}: {finding['message']}"})


def _wait_for_file(path: Path, timeout_s: float) -> bool:
    """Wait for a file that a job writes; return whether the file appeared before the timeout."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        os.scandir(path.parent).close()  # opening the folder makes an NFS client ask the server
        if path.exists():
            return True
        time.sleep(_ASK_EACH_S)
    return False
