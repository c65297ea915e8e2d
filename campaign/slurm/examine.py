"""The cluster part of `doctor`: is there a Slurm that takes our jobs, and do its nodes see what we see."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.errors import CampaignError
from campaign.finding import Finding
from campaign.slurm import client, submission

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from campaign.plan import Entry
    from campaign.work import Request

_PROGRAMS = ("sbatch", "srun", "squeue", "scancel", "scontrol")
_PROBE_TIMEOUT_S = 60.0
_ASK_EACH_S = 1.0
_SAID = re.compile(r"sbatch: (?:error: )?(.*)")


def cluster(entries: Sequence[Entry], request: Request) -> Iterator[Finding]:
    """Look at the programs, the controller, the accounting, then try our own scripts, then send a job."""
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing:
        hint = "log in to a node of the cluster that submits jobs, or cluster=local"
        yield Finding("slurm", passed=False, message=f"not found: {', '.join(missing)}", hint=hint)
        return
    facts = client.facts()
    if not facts.text:
        yield Finding("slurm", passed=False, message="the controller does not answer", hint="see `scontrol ping`")
        return
    yield Finding("slurm", passed=True, message=f"cluster {facts.cluster}, Slurm {facts.version}")
    yield from _environment()
    yield _accounting(facts)
    arrays = list(submission.arrays(entries, request, facts.tasks_at_most))
    for array in arrays:
        yield _accepted(array)
    if arrays:
        yield _shared(arrays[0], request.folder.root)


def _environment() -> Iterator[Finding]:
    """Name variables that would change every job, and do not: a campaign is what its words say."""
    ignored = sorted(name for name in os.environ if name.startswith("SBATCH_"))
    if ignored:
        message = f"{', '.join(ignored)} in the environment: not used for our jobs"
        yield Finding("slurm", passed=None, message=message, hint="say it to the campaign: cluster.account=…, site=…")


def _accounting(facts: client.Facts) -> Finding:
    if facts.accounting:
        return Finding("accounting", passed=True, message="sacct tells how jobs ended")
    log = facts.completion_log
    if log and os.access(log, os.R_OK):
        return Finding("accounting", passed=True, message=f"no sacct; {log} tells how jobs ended")
    message = f"none: how a job ended is known for {facts.remembers_s} s (MinJobAge), later only what it recorded"
    return Finding("accounting", passed=None, message=message, hint="keep the campaign or `watch` running")


def _accepted(array: submission.Array) -> Finding:
    """Let ``sbatch --test-only`` read the very script that a campaign would submit."""
    try:
        script = array.script(None)
    except CampaignError as error:
        return Finding("submission", passed=False, message=error.message, hint=error.hint)
    environment = {name: value for name, value in os.environ.items() if not client.is_traced(name)}
    done = subprocess.run(
        [shutil.which("sbatch") or "sbatch", "--test-only"],
        input=script,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    said = " ".join(_SAID.findall(done.stderr)) or done.stderr.strip()
    name = array.tasks[0][0].cell.settings["storage"]["name"]
    hint = "check cluster.partition, account, qos, constraint, timeout_min, cpus_per_task; --dry-run shows the script"
    return Finding("submission", passed=done.returncode == 0, message=f"storage {name}: {said}", hint=hint)


def _shared(array: submission.Array, campaign: Path) -> Finding:
    """Send a job that reads a word in the campaign's place, imports our code and writes the word back."""
    above = next(folder for folder in (campaign, *campaign.parents) if folder.exists())
    with tempfile.TemporaryDirectory(dir=above, prefix=".tfio-doctor-") as made:
        folder, word = Path(made), secrets.token_hex(8)
        (folder / "asked").write_text(word, encoding="ascii")
        job = _send(array, folder)
        if job is None:
            return Finding("nodes", passed=False, message="the probe job was refused", hint="see `submission` above")
        try:
            return _answer(folder, word, job)
        finally:
            client.ask("scancel", job)


def _send(array: submission.Array, folder: Path) -> str | None:
    """Submit the probe with the options of a real job, but for the array, its length and its folder."""
    python = shlex.quote(sys.executable)
    inside = shlex.quote(str(folder))
    probe = "; ".join(array.setup()) + (
        f"; cd {inside} && {python} -c 'import campaign.worker' 2> said && "
        "{ cat asked; echo; hostname; } > answered.tmp && mv answered.tmp answered; touch over"
    )
    options = [line.removeprefix("#SBATCH ") for line in array.script(None).splitlines() if line.startswith("#SBATCH")]
    dropped = ("--array", "--chdir", "--error", "--output", "--time", "--signal", "--requeue", "--dependency")
    kept = [shlex.split(option)[0] for option in options if not option.startswith(dropped)]
    text = client.ask(
        "sbatch", "--parsable", *kept, "--time=5", f"--chdir={folder}", "--output=/dev/null", f"--wrap={probe}"
    )
    return text.strip().partition(";")[0] if text else None


def _answer(folder: Path, word: str, job: str) -> Finding:
    deadline = time.monotonic() + _PROBE_TIMEOUT_S
    while time.monotonic() < deadline:
        os.scandir(folder).close()  # an NFS client looks anew
        if (folder / "answered").exists():
            heard, _, host = (folder / "answered").read_text(encoding="utf-8").partition("\n")
            message = f"a job on {host.strip()} read and wrote {folder.parent}, and imports this code"
            return Finding("nodes", passed=heard == word, message=message)
        if (folder / "over").exists():
            said = (folder / "said").read_text(encoding="utf-8", errors="replace").strip().splitlines()
            message = f"a job cannot import this code: {said[-1] if said else 'no word'}"
            hint = f"install it where the nodes see it; they would start {sys.executable}"
            return Finding("nodes", passed=False, message=message, hint=hint)
        time.sleep(_ASK_EACH_S)
    state = (client.ask("squeue", "-h", "-j", job, "-o", "%T (%r)") or "").strip()
    if state.startswith("PENDING"):
        message = f"the probe job still waits after {_PROBE_TIMEOUT_S:.0f} s: {state}"
        return Finding("nodes", passed=None, message=message, hint="try again when the queue is short")
    message = f"a job ran and nothing of it is seen in {folder.parent}"
    hint = "campaign_dir=… in a folder that login and compute nodes share"
    return Finding("nodes", passed=False, message=message, hint=hint)
