"""A real Slurm on one machine: munge, slurmctld and a few slurmd on loopback, in a folder of its own.

For tests it is a fixture (tests/slurm/conftest.py); for a person, a shell with the cluster in it::

    python -m tests.slurm.lab [--nodes 4] [--cpus 2]

It needs root, and Debian's ``slurm-wlm`` and ``munge``. Nothing outside its folder is written, and only daemons that it
started are stopped, by pid.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo", "scontrol")
_UP_TIMEOUT_S = 30
_DRAIN_TIMEOUT_S = 10
_STOP_TIMEOUT_S = 5
_LONGEST_SOCKET = 107  # bytes of a unix socket's path, unix(7)

_CONF = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/log/jobcomp.log
MailProg=/bin/true
MpiDefault=none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0,bf_interval=1,default_queue_depth=2000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
MaxArraySize={max_array}
MaxJobCount=20000
FirstJobId={first_job_id}
MinJobAge=3600
KillWait=2
SlurmdTimeout=10
GresTypes=gpu
Licenses=lustre:1,nvme:1
{nodes}
PartitionName=debug Nodes=n[1-{count}] Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=excl Nodes=n[1-{count}] OverSubscribe=EXCLUSIVE MaxTime=60 State=UP PriorityTier=1
PartitionName=high Nodes=n[1-{count}] MaxTime=INFINITE State=UP PriorityTier=10
"""
_NODE = (
    "NodeName=n{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory=2000 "
    "Gres=gpu:1 Feature=lustre,nvme State=UNKNOWN"
)


def missing() -> str | None:
    """Say why there can be no lab here; None where there can."""
    if os.geteuid() != 0:
        return "a Slurm of one's own needs root"
    lacking = [program for program in PROGRAMS if shutil.which(program) is None]
    return f"not installed: {', '.join(lacking)} (apt-get install slurm-wlm munge)" if lacking else None


@dataclass
class Lab:
    """One cluster.

    Attributes
    ----------
    folder
        Everything lies in it; short, for a unix socket's path is limited.
    nodes, cpus
        Virtual nodes, and CPUs of each.
    max_array
        ``MaxArraySize``: the largest array index plus one.
    """

    folder: Path
    nodes: int = 4
    cpus: int = 2
    max_array: int = 1001

    @property
    def conf(self) -> Path:
        """``slurm.conf``; every client needs it in ``SLURM_CONF``."""
        return self.folder / "slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        """Environment of a login shell on this cluster."""
        return {**os.environ, "SLURM_CONF": str(self.conf)}

    def up(self) -> None:
        """Start all daemons and wait until every node is idle."""
        self._write()
        run = self.folder / "run"
        self._daemon(
            "munged", f"--key-file={self.folder}/key/munge", f"--socket={self.folder}/munge.sock",
            f"--pid-file={run}/munged.pid", f"--seed-file={self.folder}/key/seed",
            f"--log-file={self.folder}/log/munged.log",
        )  # fmt: skip
        self._daemon("slurmctld", "-c")
        for number in range(1, self.nodes + 1):
            self.start_node(number)
        deadline = time.monotonic() + _UP_TIMEOUT_S
        while self.run("sinfo", "-h", "-p", "debug", "-t", "idle", "-o", "%D", check=False) != str(self.nodes):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the lab did not come up; its logs are in {self.folder}/log")
            time.sleep(0.1)

    def down(self) -> None:
        """Cancel and drain first, then stop: a step that cannot report to slurmctld never exits."""
        self.run("scancel", "-u", "root", check=False)
        deadline = time.monotonic() + _DRAIN_TIMEOUT_S
        while self.run("squeue", "-h", check=False) and time.monotonic() < deadline:
            time.sleep(0.1)
        pids = [self._pid(path) for path in sorted((self.folder / "run").glob("*.pid"), reverse=True)]
        for number in (signal.SIGTERM, signal.SIGKILL):
            self._signal([pid for pid in pids if pid], number)
        self._signal(self._stray_steps(), signal.SIGKILL)

    def run(self, *words: str, check: bool = True) -> str:
        """Run a client of this cluster and return what it prints."""
        done = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=check
        )
        return done.stdout.strip()

    def start_node(self, number: int) -> None:
        """Start the slurmd of a node, at first or after it was killed."""
        self._daemon("slurmd", "-N", f"n{number}")

    def kill_node(self, number: int) -> None:
        """Take a node away as a power cut does."""
        pid = self._pid(self.folder / "run" / f"slurmd.n{number}.pid")
        if pid:
            os.kill(pid, signal.SIGKILL)

    def _write(self) -> None:
        if len(f"{self.folder}/munge.sock".encode()) > _LONGEST_SOCKET:
            raise ValueError(f"{self.folder} is too long for a unix socket")
        for part in ("state", "log", "run", "key", *(f"spool/n{i}" for i in range(1, self.nodes + 1))):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)  # munged refuses a socket that not everybody can reach
        (self.folder / "key").chmod(0o700)
        key = self.folder / "key" / "munge"
        if not key.exists():
            key.write_bytes(secrets.token_bytes(128))
            key.chmod(0o600)
        host = socket.gethostname().partition(".")[0]
        ports = _free_ports(self.nodes + 1)
        numbers = range(1, self.nodes + 1)
        nodes = "\n".join(_NODE.format(i=i, host=host, port=ports[i], cpus=self.cpus) for i in numbers)
        (self.folder / "gres.conf").write_text(f"NodeName=n[1-{self.nodes}] Name=gpu File=/dev/null\n")
        text = _CONF.format(
            host=host, port=ports[0], folder=self.folder, nodes=nodes, count=self.nodes, max_array=self.max_array,
            first_job_id=int(time.time()) % 60_000_000,
        )  # fmt: skip
        self.conf.write_text(text)

    def _daemon(self, *words: str) -> None:
        # Not captured: a daemon would keep the pipe open for ever.
        with (self.folder / "log" / "start.log").open("a") as log:
            subprocess.run(words, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True)

    def _pid(self, path: Path) -> int | None:
        try:
            return int(path.read_text())
        except (FileNotFoundError, ValueError):
            return None

    def _signal(self, pids: list[int], number: signal.Signals) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.05)

    def _stray_steps(self) -> list[int]:
        """Find slurmstepd processes of this lab that outlived their slurmd."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (process / "cmdline").read_bytes().startswith(b"slurmstepd:"):
                    environment = (process / "environ").read_bytes().split(b"\0")
                    if f"SLURM_CONF={self.conf}".encode() in environment:
                        found.append(int(process.name))
        return found


@contextlib.contextmanager
def lab(**shape: int):
    """Bring a lab up in a temporary folder, and down again."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    cluster = Lab(folder, **shape)
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()
        shutil.rmtree(folder, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    """Find ports that nobody listens on now."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def main() -> None:
    """Give a person a shell on a lab."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--cpus", type=int, default=2, help="of each node")
    options = parser.parse_args()
    reason = missing()
    if reason:
        sys.exit(f"error: {reason}")
    with lab(nodes=options.nodes, cpus=options.cpus) as cluster:
        print(f"{options.nodes} nodes of {options.cpus} CPUs in {cluster.folder}; leave the shell to take them down")
        subprocess.run([os.environ.get("SHELL", "/bin/sh")], env=cluster.environment, check=False)


if __name__ == "__main__":
    main()
