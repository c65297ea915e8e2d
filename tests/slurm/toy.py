"""A Slurm that runs its jobs here: the clients of 22.05 as one small program, and their state as a file of JSON.

`Toy(folder).install()` writes `sbatch`, `squeue`, ..., to be put first on PATH. A task is a batch script in a session
of its own, watched by a process that keeps its time limit, ends it and starts what waited for it. There are four
nodes, for a task each, and no accounting. A client that meets what it does not know fails, so that no test passes on
an answer that Slurm would not give. `test_slurm_lab.py` compares it with the real one.
"""

from __future__ import annotations

import fcntl
import getopt
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

KILL_WAIT_S = 2.0  # between SIGTERM and SIGKILL
HELD_S = 1.0  # a job that is put back waits so long; a real one waits 120 s
_NODES = ("n1", "n2", "n3", "n4")
_LIVE = {"PENDING": "PD", "RUNNING": "R", "COMPLETING": "CG"}
_STATES = {**_LIVE, "COMPLETED": "CD", "FAILED": "F", "CANCELLED": "CA", "TIMEOUT": "TO"}
# A client's options: short=long, with a colon where a value follows.
_JOB = (
    "J=job-name: o=output: e=error: a=array: d=dependency: t=time: p=partition: N=nodes: n=ntasks: c=cpus-per-task: "
    "D=chdir: H=hold =parsable =requeue =exclusive =test-only =wrap: =comment: =signal: =open-mode: =ntasks-per-node: "
    "=kill-on-invalid-dep: =wckey: =mem: u=unbuffered =overlap =cpu-bind: =kill-on-bad-exit: x=exclude: A=account:"
)
_OPTIONS = {
    "sbatch": _JOB,
    "srun": _JOB,
    "squeue": "a=all h=noheader r=array =me o=format: O=Format: j=jobs: n=name: u=user: t=states: p=partition:",
    "scancel": "=me n=name: u=user: t=states: s=signal: f=full b=batch p=partition:",
    "scontrol": "a=all o=oneliner d=details",
    "sinfo": "a=all h=noheader N=Node o=format: p=partition:",
    "sacct": "n=noheader P=parsable2 X=allocations o=format: j=jobs: =parsable2 =user: =starttime: =name:",
}
# squeue's fields: letter, headline, name for --Format.
_FIELDS = [
    line.split()
    for line in """
a ACCOUNT Account,A JOBID JobID,B EXEC_HOST BatchHost,C CPUS NumCPUs,D NODES NumNodes,E DEPENDENCY Dependency,F
ARRAY_JOB_ID ArrayJobID,K ARRAY_TASK_ID ArrayTaskID,M TIME TimeUsed,N NODELIST NodeList,P PARTITION Partition,R
NODELIST(REASON) ReasonList,S START_TIME StartTime,T STATE State,U UID UserID,V SUBMIT_TIME SubmitTime,Z WORK_DIR
WorkDir,e END_TIME EndTime,i JOBID JobArrayID,j NAME Name,k COMMENT Comment,l TIME_LIMIT TimeLimit,q QOS QOS,r REASON
Reason,t ST StateCompact,u USER UserName""".replace("\n", " ").split(",")
]
_PLAIN = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
_DEFAULTS = (("cpus-per-task", "1"), ("comment", "(null)"))
_CONFIG = "AccountingStorageType=accounting_storage/none ClusterName=toy JobCompType=jobcomp/none MaxArraySize=1001"
_PARTITION = "PartitionName=debug Default=YES MaxTime=UNLIMITED MaxNodes=UNLIMITED MaxCPUsPerNode=UNLIMITED State=UP"


def parse(client: str, words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Split words into options, by their long names, and the other words."""
    names = dict(option.split("=") for option in _OPTIONS[client].split() if option[0] != "=")
    shorts = "".join(short + ":" * long.endswith(":") for short, long in names.items())
    longs = [option.partition("=")[2].replace(":", "=") for option in _OPTIONS[client].split()]
    found, others = (getopt.getopt if client == "srun" else getopt.gnu_getopt)(words, shorts, longs)
    return {names[key[1]].rstrip(":") if key[1] != "-" else key[2:]: value for key, value in found}, others


def indices(text: str) -> list[int]:
    """Read the indices of an array: `0-3,7`, `0-6:2%1`."""
    ranges = re.findall(r"(\d+)(?:-(\d+))?(?::(\d+))?(?=,|$)", text.partition("%")[0])
    return [index for first, last, by in ranges for index in range(int(first), int(last or first) + 1, int(by or 1))]


def clock(span_s: float) -> str:
    """Write a span as Slurm does."""
    hours, rest = divmod(int(span_s), 3600)
    text = f"{rest // 60:02}:{rest % 60:02}"
    days = f"{hours // 24}-{hours % 24:02}:" if hours >= 24 else f"{hours}:" if hours else ""
    return days + text if days else text.removeprefix("0")


def date(at: float | None) -> str:
    """Write a time as Slurm does."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at)) if at else "N/A"


def send(number: int, job: str, *, steps: bool = False) -> bool:
    """Send a signal to the processes of a job, or only to those that srun started; say whether there are any."""
    found = False
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            environ = b"\0" + (process / "environ").read_bytes()
            mine = b"\0SLURM_JOB_ID=%s\0" % job.encode() in environ and b") Z" not in (process / "stat").read_bytes()
            if mine and (not steps or b"\0SLURM_STEP_ID=" in environ):
                os.kill(int(process.name), number)
                found = True
    return found


class Toy:
    """One cluster, in a folder."""

    def __init__(self, home: Path) -> None:
        self.home, self._file = home, home / "state.json"

    # For tests.

    def install(self) -> str:
        """Write the clients; return a PATH with them."""
        (self.home / "bin").mkdir(parents=True)
        # Ids that no other cluster gives, for the processes of a job are found by them.
        first = 1000 * (time.time_ns() // 1000 % 60000)
        self._file.write_text(json.dumps({"next": first, "sbatch": 0, "tasks": []}))
        for name in _OPTIONS:
            client = self.home / "bin" / name
            client.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {__file__} {self.home} {name} "$@"\n')
            client.chmod(0o755)
        return f"{self.home / 'bin'}:{os.environ['PATH']}"

    def run(self, *words: str) -> str:
        """Run a client and return what it prints."""
        program = self.home / "bin" / words[0]
        return subprocess.run(
            [program, *words[1:]], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
        ).stdout

    def tasks(self) -> list[dict]:
        """Read what every task is, without asking a client."""
        return json.loads(self._file.read_text())["tasks"]

    def states(self) -> list[str]:
        """List the states of all tasks, in the order of their submission."""
        return [task["state"] for task in self.tasks()]

    def submitted(self) -> int:
        """Count the scripts that sbatch has taken."""
        return json.loads(self._file.read_text())["sbatch"]

    def time_is_up(self) -> None:
        """Let the time limit of each task come now: first its signal, then its end."""
        with self._locked() as state:
            for task in state["tasks"]:
                task["deadline"] = time.time() + task["signal"][1]

    def lose(self) -> None:
        """Forget every job, and kill what runs of it."""
        with self._locked() as state:
            lost, state["tasks"] = state["tasks"], []
        for task in lost:
            send(signal.SIGKILL, task["job"])

    # The controller.

    @contextmanager
    def _locked(self):
        with (self.home / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state = json.loads(self._file.read_text())
            yield state
            begun = [task["key"] for task in state["tasks"] if task["state"] == "PENDING" and self._begins(state, task)]
            draft = self.home / "draft"
            draft.write_text(json.dumps(state))
            draft.replace(self._file)
        for key in begun:
            words = [sys.executable, "-IS", __file__, str(self.home), "watch", str(key)]
            with (self.home / "watch.log").open("a") as log:  # no pipe of a client's stays open
                subprocess.Popen(words, start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _begins(self, state: dict, task: dict) -> bool:
        """Begin a task that waits, or note in it why not."""
        running = [each for each in state["tasks"] if each["state"] in ("RUNNING", "COMPLETING")]
        free = [node for node in _NODES if node not in {each["node"] for each in running}]
        mates = [each for each in state["tasks"] if each["array"] == task["array"] and each != task]
        earlier = [
            (when, array, [each["state"] for each in state["tasks"] if each["array"] == array])
            for when, array in task["after"]
        ]
        open_ = [(when, array) for when, array, ends in earlier if {*ends} & {*_LIVE}]
        bad = [each for each in earlier if each[0] == "afterok" and {*each[2]} - {*_LIVE, "COMPLETED"}] and not open_
        task["waits"] = ",".join(f"{when}:{array}_*(unfulfilled)" for when, array in open_) or "(null)"
        task["reason"] = (
            "JobHeldUser" if task["held"] else "DependencyNeverSatisfied" if bad
            else "Dependency" if open_
            else "BeginTime" if task["begin"] > time.time()
            else "JobArrayTaskLimit" if sum(each in mates for each in running) >= task["at_once"]
            else "None" if free else "Resources"
        )  # fmt: skip
        if bad and task["options"].get("kill-on-invalid-dep") == "yes":
            task |= {"state": "CANCELLED", "ended": time.time()}
        if task["reason"] != "None":
            return False
        if any(not each["start"] for each in mates) and not task["start"]:  # the last one has the id of the array
            state["next"] += 1
            task["job"] = str(state["next"])
        task |= {"state": "RUNNING", "node": free[0], "start": time.time(), "wish": ""}
        task["deadline"] = time.time() + 60 * int(task["options"].get("time", 525_600))
        return True

    def watch(self, words: list[str]) -> int:
        """Run the script of one task to its end."""
        (task,) = (each for each in self.tasks() if each["key"] == int(words[0]))
        out = _log(task, task["options"].get("output", "slurm-%j.out"))
        err = _log(task, task["options"]["error"]) if "error" in task["options"] else out
        with out.open("ab") as stdout, err.open("ab") as stderr:
            process = subprocess.Popen(
                ["/bin/bash", f"{self.home}/{task['array']}.sh"], cwd=task["folder"], env=_environment(task),
                stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True,
            )  # fmt: skip
        is_warned = False
        while process.poll() is None and not task["wish"]:
            time.sleep(0.05)
            task = next((each for each in self.tasks() if each["key"] == task["key"]), task | {"wish": "LOST"})
            if not is_warned and time.time() >= task["deadline"] - task["signal"][1]:
                is_warned = send(task["signal"][0], task["job"], steps=True)
            task["wish"] = task["wish"] or ("TIMEOUT" if time.time() >= task["deadline"] else "")
        until = time.time() + KILL_WAIT_S
        if task["wish"] != "LOST" and process.poll() is None and send(signal.SIGTERM, task["job"]):
            while send(0, task["job"]) and time.time() < until:
                process.poll()
                time.sleep(0.05)
        send(signal.SIGKILL, task["job"])
        code = process.wait()
        with self._locked() as state:
            for each in (each for each in state["tasks"] if each["key"] == task["key"]):
                wish = each["wish"] or task["wish"]
                each |= {"state": wish or ("FAILED" if code else "COMPLETED"), "ended": time.time(), "exit": code}
                if wish == "PENDING":  # put back
                    each |= {"begin": time.time() + HELD_S, "restarts": each["restarts"] + 1, "node": "", "ended": None}
        time.sleep(HELD_S)
        with self._locked():  # begins what was held
            return 0

    def _chosen(self, tasks: list[dict], ids: str = "", states: str = "ALL", **asked: str) -> list[dict]:
        """Choose tasks as squeue and scancel do."""
        words = re.split(r",(?![^\[]*\])", ids) if ids else []
        us = {"root", str(os.getuid()), os.environ.get("USER", "")}
        return [
            task for task in tasks
            if (not words or any(_is_meant(task, word) for word in words))
            and ("name" not in asked or task["name"] in asked["name"].split(","))
            and ("user" not in asked or us & {*asked["user"].split(",")})
            and {"ALL", task["state"], _STATES[task["state"]]} & {*states.upper().split(",")}
        ]  # fmt: skip

    # The clients.

    def sbatch(self, words: list[str]) -> int:
        """Take a batch script."""
        given, files = parse("sbatch", words)
        text = f"#!/bin/sh\n{given['wrap']}\n" if "wrap" in given else ""
        text = text or (Path(files[0]).read_text() if files else sys.stdin.read())
        lines = [word for line in re.findall(r"^#SBATCH (.*)$", text, re.MULTILINE) for word in shlex.split(line)]
        options = {**parse("sbatch", lines)[0], **given}
        if options.get("partition", "debug") != "debug":
            complaint = "sbatch: error: Batch job submission failed: Invalid partition name specified"
            print(f"sbatch: error: invalid partition specified: {options['partition']}\n{complaint}", file=sys.stderr)
            return 1
        if "test-only" in options:
            print("sbatch: Job 1 to start at now using 1 processors on nodes n1 in partition debug", file=sys.stderr)
            return 0
        number, _, before_s = options.get("signal", "TERM@0").rpartition("@")
        after = [part.split(":") for part in options.get("dependency", "").split(",")]
        with self._locked() as state:
            state["next"] += 1
            state["sbatch"] += 1
            array = str(state["next"])
            (self.home / f"{array}.sh").write_text(text)
            for index in indices(options["array"]) if "array" in options else [None]:
                state["tasks"].append({
                    "key": state["sbatch"] * 10_000 + (index or 0), "array": array, "index": index, "job": array,
                    "state": "PENDING", "reason": "None", "held": "hold" in options, "begin": 0, "wish": "", "node": "",
                    "name": options.get("job-name", "wrap" if "wrap" in options else "sbatch"), "submit": time.time(),
                    "folder": os.path.abspath(options.get("chdir", ".")), "options": options, "restarts": 0,  # noqa: PTH100
                    "at_once": int(options.get("array", "").partition("%")[2] or 1000), "start": None, "ended": None,
                    "signal": [signal.Signals[f"SIG{number.removeprefix('SIG')}"], int(before_s)], "deadline": 1e12,
                    "after": [[when, job] for when, *jobs in after for job in jobs], "waits": "(null)",
                    "environment": {**os.environ},
                })  # fmt: skip
        print(array if "parsable" in options else f"Submitted batch job {array}")
        return 0

    def srun(self, words: list[str]) -> int:
        """Run a step of one rank in the job that this process belongs to."""
        options, command = parse("srun", words)
        (task,) = (task for task in self.tasks() if task["job"] == os.environ["SLURM_JOB_ID"])
        pipes = {
            stream: _log(task, options[name]).open("ab")
            for stream, name in (("stdout", "output"), ("stderr", "error")) if name in options
        }  # fmt: skip
        rank = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "1"}
        code = subprocess.Popen(command, env={**os.environ, **rank}, start_new_session=True, **pipes).wait()
        if code:
            end = "Killed" if code == -signal.SIGKILL else f"Exited with exit code {code}"
            print(f"srun: error: {task['node']}: task 0: {end}", file=sys.stderr)
        return 128 - code if code < 0 else code

    def squeue(self, words: list[str]) -> int:
        """List tasks in any format."""
        options, _ = parse("squeue", words)
        with self._locked():
            pass
        ids, tasks = options.pop("jobs", ""), [task for task in self.tasks() if not task.get("hidden")]
        if ids.isdigit() and not self._chosen(tasks, ids):
            print("slurm_load_jobs error: Invalid job id specified", file=sys.stderr)
            return 1
        form = options.get("format", _PLAIN)
        for each in filter(None, options.get("Format", "").split(",")):
            name, _, rest = each.partition(":")
            dot, size, tail = re.fullmatch(r"(\.?)(\d*)(.*)", rest).groups()
            (letter,) = (letter for letter, _, long in _FIELDS if long.lower() == name.lower())
            size = size or ("" if tail else "20")
            form = form.removesuffix(_PLAIN) + f"%{dot}{size}{letter}{tail}"
        chosen = self._chosen(tasks, ids, options.pop("states", ",".join(_LIVE)), **options)
        chosen.sort(key=lambda task: [*_STATES].index(task["state"]))
        rows = [] if "noheader" in options else [{letter: head for letter, head, _ in _FIELDS}]
        alone = "array" in options
        groups = itertools.groupby(chosen, lambda task: task["key"] if alone or not _waits(task) else task["array"])
        rows += [_row(*group, alone=alone) for _, group in groups]
        for row in rows:
            print(
                re.sub(r"%(\.?)(\d*)([A-Za-z])", lambda field, row=row: _cell(row[field[3]], field[1], field[2]), form)
            )
        return 0

    def scancel(self, words: list[str]) -> int:
        """End tasks, or send a signal to their steps."""
        options, ids = parse("scancel", words)
        if not ids and not {"name", "user", "me", "states"} & {*options}:
            print("scancel: error: No job identification provided", file=sys.stderr)
            return 1
        number = options.pop("signal", "").upper().removeprefix("SIG")
        with self._locked() as state:
            for task in self._chosen(state["tasks"], ",".join(ids), options.pop("states", ",".join(_LIVE)), **options):
                if number:
                    send(int(number) if number.isdigit() else signal.Signals[f"SIG{number}"], task["job"], steps=True)
                elif task["state"] == "PENDING":
                    # Slurm forgets at once what was cancelled by its index before it began.
                    task |= {"state": "CANCELLED", "ended": time.time(), "hidden": "_" in "".join(ids)}
                elif task["state"] in _LIVE:
                    task |= {"state": "COMPLETING", "wish": "CANCELLED"}
        return 0

    def scontrol(self, words: list[str]) -> int:
        """Show a few things, or change a task."""
        _, (verb, kind, *rest) = parse("scontrol", words)
        if verb == "show":
            shown = {
                "config": _CONFIG.replace(" ", "\n").replace("=", " = "), "partition": _PARTITION,
                "node": "NodeName=n1 NodeAddr=127.0.0.1", "hostnames": "\n".join(rest),
                "job": "\n".join(
                    f"JobId={task['job']} Restarts={task['restarts']} JobName={task['name']} JobState={task['state']} "
                    f"Reason={task['reason']} NodeList={task['node']} NumCPUs=1 WorkDir={task['folder']}"
                    for task in self._chosen(self.tasks(), ",".join(rest))
                ),
            }  # fmt: skip
            print(shown[kind])
            return 0
        ids = ",".join(word.lower().removeprefix("jobid=") for word in (kind, *rest) if "time=" not in word.lower())
        with self._locked() as state:
            tasks = self._chosen(state["tasks"], ids, ",".join(_LIVE))
            for each in tasks:
                changes = {
                    "requeue": {"state": "COMPLETING", "wish": "PENDING"}, "update": {"begin": 0},
                    "hold": {"held": True}, "release": {"held": False, "begin": 0},
                }  # fmt: skip
                each.update(changes[verb])
        return 0 if tasks else 1

    def sinfo(self, words: list[str]) -> int:
        """List the nodes, or the partition."""
        options, _ = parse("sinfo", words)
        for node in _NODES if "Node" in options else ["n[1-4]"]:
            row = {"P": "debug*", "R": "debug", "c": "8", "T": "idle", "t": "idle", "N": node, "D": "1", "a": "up"}
            print(re.sub(r"%[.\d]*([A-Za-z])", lambda field, row=row: row[field[1]], options["format"]))
        return 0

    def sacct(self, words: list[str]) -> int:
        """Say what sacct says without accounting."""
        parse("sacct", words)
        print("Slurm accounting storage is disabled", file=sys.stderr)
        return 1


def _is_meant(task: dict, word: str) -> bool:
    job, _, part = word.partition("_")
    return task["index"] in indices(part.strip("[]")) if part and job == task["array"] else (
        word in (task["array"], task["job"]))  # fmt: skip


def _waits(task: dict) -> bool:
    """Say whether squeue lists the task together with the others of its array."""
    return task["state"] == "PENDING" and task["index"] is not None


def _log(task: dict, pattern: str) -> Path:
    values = {"A": task["array"], "a": task["index"], "j": task["job"], "t": 0, "x": task["name"], "N": task["node"]}
    return Path(task["folder"], re.sub(r"%([AajtxN])", lambda found: str(values[found[1]]), pattern))


def _environment(task: dict) -> dict[str, str]:
    """Return the environment of a batch script: the submitter's, and Slurm's words."""
    job = (
        {"SLURM_ARRAY_JOB_ID": task["array"], "SLURM_ARRAY_TASK_ID": task["index"]} if task["index"] is not None else {}
    )
    job |= {"SLURM_RESTART_COUNT": task["restarts"]} if task["restarts"] else {}
    job |= dict.fromkeys(("SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURMD_NODENAME"), task["node"])
    job |= dict.fromkeys(("SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID"), 0)
    job |= dict.fromkeys(("SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_TASKS_PER_NODE"), 1)
    job |= dict.fromkeys(("SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE"), task["options"].get("cpus-per-task", 1))
    job |= {"SLURM_JOB_ID": task["job"], "SLURM_JOBID": task["job"], "SLURM_JOB_NAME": task["name"]}
    job |= {"SLURM_JOB_PARTITION": "debug", "SLURM_CLUSTER_NAME": "toy", "SLURM_SUBMIT_DIR": task["folder"]}
    return {**task["environment"], **{name: str(value) for name, value in job.items()}}


def _cell(text: str, dot: str, size: str) -> str:
    return (text.rjust if dot else text.ljust)(int(size or 0))[: int(size) if size else None]


def _row(task: dict, *others: dict, alone: bool) -> dict[str, str]:
    """Return the fields of a task, or of the tasks of an array that wait."""
    options, node, waits = task["options"], task["node"], task["state"] == "PENDING"
    index, end = "N/A" if task["index"] is None else str(task["index"]), task["ended"] or time.time()
    if whole := _waits(task) and not alone:
        numbers = enumerate(each["index"] for each in (task, *others))
        spans = [
            [number for _, number in span] for _, span in itertools.groupby(numbers, lambda pair: pair[1] - pair[0])
        ]
        index = ",".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)
        index += f"%{task['at_once']}" if "%" in options["array"] else ""
    why = {"TIMEOUT": "TimeLimit", "FAILED": "NonZeroExitCode"}.get(task["state"], task["reason"])
    where = node if task["state"] in ("RUNNING", "COMPLETED") else f"({why})"
    array_id = f"{task['array']}_[{index}]" if whole else f"{task['array']}_{index}".removesuffix("_N/A")
    limit = clock(60 * int(options["time"])) if "time" in options else "UNLIMITED"
    used = clock(end - task["start"] if task["start"] and not waits else 0)
    cpus, note = (options.get(*pair) for pair in _DEFAULTS)
    values = (
        "(null)", task["job"], node or "n/a", cpus, "1", task["waits"], task["array"], index, used, node,
        "debug", where,
        date(task["start"]), task["state"], str(os.getuid()), date(task["submit"]), task["folder"], date(task["ended"]),
        array_id, task["name"], note, limit, "(null)", why, _STATES[task["state"]], "root",
    )  # fmt: skip
    return {letter: value for (letter, _, _), value in zip(_FIELDS, values, strict=True)}


if __name__ == "__main__":
    sys.exit(getattr(Toy(Path(sys.argv[1])), sys.argv[2])(sys.argv[3:]))
