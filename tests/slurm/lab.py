"""A real Slurm on one machine: munge, slurmctld and a few slurmd on loopback, in a folder of its own.

For tests it is a fixture (tests/acceptance/test_slurm_lab.py); for a person, a shell with the cluster in it::

    python -m tests.slurm.lab [--nodes 4] [--cpus 2] [--accounting] [--memory-limit]

It needs root, and Debian's ``slurm-wlm`` and ``munge``; for ``sacct``, ``slurmdbd``, ``mariadb-server-core`` and
``mariadb-client-core`` (which starts no service). Nothing outside its folder is written, and only what it started is
stopped, by pid.
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
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo", "scontrol")
ACCOUNTING_PROGRAMS = ("slurmdbd", "sacct", "mariadbd", "mariadb-install-db", "my_print_defaults")
CLIENTS = ("sacct", "sbatch", "scancel", "scontrol", "sinfo", "squeue")
TOO_MANY = (  # as sbatch 22.05.8 prints it where an association's MaxSubmitJobs is reached
    "sbatch: error: AssocMaxSubmitJobLimit\n"
    "sbatch: error: Batch job submission failed: "
    "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
)
_HERE = Path(__file__).parent
_UP_TIMEOUT_S = 30
_DRAIN_TIMEOUT_S = 10  # SIGKILL comes about 4.6 s after SIGTERM, with KillWait=2
_STOP_TIMEOUT_S = 5
_LONGEST_SOCKET = 107  # bytes of a unix socket's path, unix(7)
_MEMORY_MB = 256_000  # of a node, on paper (config_overrides): a job without --mem is never limited

_NODE = (
    "NodeName=n{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory={memory} "
    "Gres=gpu:1 Feature=lustre,nvme State=UNKNOWN"
)
_ACCOUNTED = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={folder}/munge.sock"""
_MEMORY_LIMITED = """\
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU={per_cpu}
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
JobAcctGatherParams=OverMemoryKill"""
_MEMORY_FREE = "SelectTypeParameters=CR_Core\nJobAcctGatherType=jobacct_gather/none"
_DATABASE_USER = """\
CREATE USER slurm@127.0.0.1 IDENTIFIED BY '{password}';
GRANT ALL ON slurm_acct_db.* TO slurm@127.0.0.1;
"""


def missing(*, accounting: bool = False) -> str | None:
    """Say why there can be no lab here; None where there can."""
    if os.geteuid() != 0:
        return "a Slurm of one's own needs root"
    lacking = [name for name in PROGRAMS + ACCOUNTING_PROGRAMS * accounting if shutil.which(name) is None]
    packages = "slurm-wlm munge" + " slurmdbd mariadb-server-core mariadb-client-core" * accounting
    return f"not installed: {', '.join(lacking)} (apt-get install {packages})" if lacking else None


@dataclass
class Lab:
    """One cluster of virtual nodes with so many CPUs each.

    With `accounting` (slurmdbd and MariaDB) ``sacct`` answers: a job is in it about 1 s after it became eligible, 4 s
    just after the start. With `memory_limit` a job whose processes together exceed its ``--mem`` is killed within about
    1 s; without cgroups the state is ``FAILED``, exit code ``0:9``, not ``OUT_OF_MEMORY``.
    """

    folder: Path  # everything lies in it; short, for a unix socket's path is limited
    nodes: int = 4
    cpus: int = 2
    accounting: bool = False
    memory_limit: bool = False
    _ports: dict[str | int, int] = field(default_factory=dict, repr=False)

    @property
    def conf(self) -> Path:
        """``slurm.conf``; every client needs it in ``SLURM_CONF``."""
        return self.folder / "slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        """Environment of a login shell on this cluster; its clients are counted and can be silenced."""
        return {**self._plain, "PATH": f"{self.folder}/bin:{os.environ['PATH']}"}

    @property
    def _plain(self) -> dict[str, str]:
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
        if self.accounting:
            self._start_accounting()
        self._daemon("slurmctld", "-c")
        for number in range(1, self.nodes + 1):
            self.start_node(number)
        self._wait(self._all_idle)

    def down(self) -> None:
        """Cancel and drain first, then stop: a step that cannot report to slurmctld never exits."""
        for number in range(1, self.nodes + 1):
            if not self._pid(f"slurmd.n{number}"):
                self.cut_power(number)
        if self._pid("slurmctld"):  # a client without it takes 9 s to fail
            self.run("scancel", "-u", "root", check=False)
            with contextlib.suppress(TimeoutError):
                self._wait(lambda: not self._steps(), _DRAIN_TIMEOUT_S)
        # Their state is thrown away: SIGTERM would cost 2 s with slurmd and again with munged.
        daemons = [self._pid(path.stem) for path in (self.folder / "run").glob("*.pid")]
        self._signal([pid for pid in daemons if pid], signal.SIGKILL)
        self._signal(self._strays(), signal.SIGKILL)

    def run(self, *words: str, check: bool = True) -> str:
        """Run a client of this cluster and return what it prints; never silenced, refused or counted."""
        done = subprocess.run(
            words, env=self._plain, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=check
        )
        return done.stdout.strip()

    # Faults. `mend` takes all of them back.

    def start_node(self, number: int) -> None:
        """Start the slurmd of a node, at first or after it was killed; Slurm has it idle within 2 s."""
        self._daemon("slurmd", "-N", f"n{number}")

    def kill_node(self, number: int) -> None:
        """Let a node fall silent, as a broken link does: its jobs run on. Noticed after 25-30 s (SlurmdTimeout)."""
        pid = self._pid(f"slurmd.n{number}")
        if pid:
            self._signal([pid], signal.SIGKILL)

    def cut_power(self, number: int) -> None:
        """Take a node away with everything that runs on it."""
        self.kill_node(number)
        on_it = [pid for pid, _, words in self._processes() if f"SLURMD_NODENAME=n{number}" in words]
        steps = [pid for pid in self._steps() if _children(pid) & {*on_it}]
        self._signal(steps, signal.SIGKILL)  # first, so that they report no end
        self._signal(on_it, signal.SIGKILL)

    def stop_controller(self) -> None:
        """Stop slurmctld: every client now fails, after 9 s; jobs run on."""
        pid = self._pid("slurmctld")
        if pid:
            os.kill(pid, signal.SIGTERM)
            self._wait(lambda: not self._pid("slurmctld"))

    def start_controller(self, *, forget: bool = False) -> None:
        """Start slurmctld and wait until it and its nodes answer.

        With ``forget`` it knows no job any more, kills those that still run, and counts ids from the first one again.
        """
        if forget:
            shutil.rmtree(self.folder / "state")
            (self.folder / "state").mkdir()
        self._daemon("slurmctld", *["-c"] * forget)
        self._wait(lambda: _listens(self._ports["slurmctld"]))  # without it a client takes 9 s to fail
        daemons = [self._pid(f"slurmd.n{number}") for number in range(1, self.nodes + 1)]
        for pid in filter(None, daemons):
            os.kill(pid, signal.SIGHUP)  # registers now; slurmctld asks only after 4 s
        silent = daemons.count(None)
        self._wait(lambda: sum(state.startswith("unk") for state in self._states()) <= silent)

    def silence(self, *programs: str) -> None:
        """Let these clients fail as they do when nobody answers, for whoever uses ``environment``."""
        for program in programs:
            self._note(f"{program}.silent").touch()

    def garble(self, *programs: str) -> None:
        """Let these clients print something of a wrapper's and exit with 0, for whoever uses ``environment``."""
        for program in programs:
            self._note(f"{program}.garbled").touch()

    def unsilence(self, *programs: str) -> None:
        """End what `silence` and `garble` began, for these clients or for all."""
        for program in programs or CLIENTS:
            for fault in ("silent", "garbled"):
                self._note(f"{program}.{fault}").unlink(missing_ok=True)

    def refuse_submissions(self, after: int = 0) -> None:
        """Let ``sbatch`` work ``after`` times more, then print `TOO_MANY` and exit 1."""
        self.accept_submissions()
        for number in range(after):
            self._note(f"ticket.{number}").touch()
        self._note("refusal").write_text(f"{TOO_MANY}\n")

    def accept_submissions(self) -> None:
        """End what `refuse_submissions` began."""
        for path in (self._note("refusal"), *self._note("").glob("ticket.*")):
            path.unlink(missing_ok=True)

    def calls(self, program: str) -> int:
        """Count the calls of a client by those who use ``environment``, since the start or the last `mend`."""
        path = self._note(f"{program}.calls")
        return path.stat().st_size if path.exists() else 0

    def release(self, job_id: str | int) -> None:
        """Let a requeued job start now instead of after 120 s (Reason=BeginTime)."""
        self.run("scontrol", "update", f"JobId={job_id}", "StartTime=now")

    def mend(self) -> None:
        """Take back every fault, cancel every job, forget the calls, and wait until every node is idle."""
        self.unsilence()
        self.accept_submissions()
        for path in self._note("").glob("*.calls"):
            path.unlink()
        if not self._pid("slurmctld"):
            self.start_controller()
        self.run("scancel", "-u", "root")
        lost = [number for number in range(1, self.nodes + 1) if not self._pid(f"slurmd.n{number}")]
        for number in range(1, self.nodes + 1):
            if number in lost:
                self.cut_power(number)
                # Else a job that was completing on it stays so for minutes; registering ends DOWN (ReturnToService=2).
                self.run("scontrol", "update", f"NodeName=n{number}", "State=DOWN", "Reason=mend")
                self.start_node(number)
            elif self._drained(number):  # "Duplicate jobid": the controller counted ids from the first one again
                self.run("scontrol", "update", f"NodeName=n{number}", "State=RESUME")
        self._wait(lambda: not self.run("squeue", "-h") and self._all_idle())
        if lost:  # else 22.05 holds the nodes for taken where a job that lost one went on, if one asks for whole nodes
            self.run("scontrol", "reconfigure")
            self._wait(self._all_idle)

    # Writing and starting.

    def _write(self) -> None:
        if len(f"{self.folder}/munge.sock".encode()) > _LONGEST_SOCKET:
            raise ValueError(f"{self.folder} is too long for a unix socket")
        parts = ("bin", "clients", "state", "log", "run", "key")
        numbers = range(1, self.nodes + 1)
        for part in (*parts, *(f"spool/n{i}" for i in numbers)):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)  # munged refuses a socket that not everybody can reach
        (self.folder / "key").chmod(0o700)
        _secret(self.folder / "key" / "munge", secrets.token_bytes(128))
        listening = ("slurmctld", "slurmdbd", "mariadbd", *numbers)
        self._ports = dict(zip(listening, find_free_ports(len(listening)), strict=True))
        self._write_clients()
        (self.folder / "gres.conf").write_text(f"NodeName=n[1-{self.nodes}] Name=gpu File=/dev/null\n")
        self.conf.write_text(self._slurm_conf())

    def _slurm_conf(self) -> str:
        host = _host()
        numbers = range(1, self.nodes + 1)
        of_each = {"host": host, "cpus": self.cpus, "memory": _MEMORY_MB}
        nodes = "\n".join(_NODE.format(i=i, port=self._ports[i], **of_each) for i in numbers)
        none = "AccountingStorageType=accounting_storage/none"
        accounted = _ACCOUNTED.format(port=self._ports["slurmdbd"], folder=self.folder)
        limited = _MEMORY_LIMITED.format(per_cpu=_MEMORY_MB // self.cpus)
        return (_HERE / "slurm.conf.in").read_text().format(
            host=host, port=self._ports["slurmctld"], folder=self.folder, nodes=nodes, count=self.nodes,
            first_job_id=int(time.time()) % 60_000_000,
            accounting=accounted if self.accounting else none, memory=limited if self.memory_limit else _MEMORY_FREE,
        )  # fmt: skip

    def _write_clients(self) -> None:
        for program in CLIENTS:
            real = Path(shutil.which(program) or f"/usr/bin/{program}").parent
            text = (_HERE / "client.sh").read_text().replace("@FOLDER@", str(self.folder)).replace("@REAL@", str(real))
            (self.folder / "bin" / program).write_text(text)
            (self.folder / "bin" / program).chmod(0o755)

    def _start_accounting(self) -> None:
        password = secrets.token_hex(16)
        ports = {"port": self._ports["slurmdbd"], "database_port": self._ports["mariadbd"]}
        text = (_HERE / "slurmdbd.conf.in").read_text()
        conf = text.format(folder=self.folder, host=_host(), password=password, **ports)
        _secret(self.folder / "slurmdbd.conf", conf.encode())
        _secret(self.folder / "key" / "user.sql", _DATABASE_USER.format(password=password).encode())
        base = ("--no-defaults", "--user=root", f"--datadir={self.folder}/db")
        self._daemon("mariadb-install-db", *base, "--skip-test-db", "--auth-root-authentication-method=normal")
        self._daemon(
            "setsid", "--fork", "mariadbd", *base, f"--pid-file={self.folder}/run/mariadbd.pid",
            f"--socket={self.folder}/run/db.sock", "--bind-address=127.0.0.1", f"--port={self._ports['mariadbd']}",
            "--skip-name-resolve", "--skip-log-bin", f"--init-file={self.folder}/key/user.sql",
            "--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900", "--innodb-flush-log-at-trx-commit=0",
        )  # fmt: skip
        self._wait(lambda: _listens(self._ports["mariadbd"]))
        self._daemon("slurmdbd")
        self._wait(lambda: _listens(self._ports["slurmdbd"]))

    def _daemon(self, *words: str) -> None:
        # Not captured: a daemon would keep the pipe open for ever.
        with (self.folder / "log" / "start.log").open("a") as log:
            subprocess.run(words, env=self._plain, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True)

    # Watching and stopping.

    def _note(self, name: str) -> Path:
        return self.folder / "clients" / name

    def _wait(self, ready: Callable[[], bool], timeout_s: float = _UP_TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not ready():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the lab did not get ready; its logs are in {self.folder}/log")
            time.sleep(0.05)

    def _states(self) -> list[str]:
        return self.run("sinfo", "-h", "-N", "-p", "debug", "-o", "%T", check=False).split()

    def _drained(self, number: int) -> bool:
        return self.run("sinfo", "-h", "-n", f"n{number}", "-p", "debug", "-o", "%T").startswith("drain")

    def _all_idle(self) -> bool:
        return self._states() == ["idle"] * self.nodes

    def _pid(self, daemon: str) -> int | None:
        """Read a daemon's pid; None where it does not run."""
        with contextlib.suppress(FileNotFoundError, ValueError, psutil.NoSuchProcess):
            pid = int((self.folder / "run" / f"{daemon}.pid").read_text())
            return pid if alive(pid) and psutil.Process(pid).name() == daemon.partition(".")[0] else None
        return None

    def _signal(self, pids: list[int], number: signal.Signals) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        with contextlib.suppress(TimeoutError):
            self._wait(lambda: not any(map(alive, pids)), _STOP_TIMEOUT_S)

    def _processes(self) -> list[tuple[int, str, list[str]]]:
        """List what was started with this lab's ``SLURM_CONF``: pid, command line, environment."""
        # psutil ends an environment at its first gap, and slurmstepd writes its title over the beginning of its own.
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                environment = os.fsdecode((process / "environ").read_bytes()).split("\0")
                if f"SLURM_CONF={self.conf}" in environment:
                    command = os.fsdecode((process / "cmdline").read_bytes())
                    found.append((int(process.name), command, environment))
        return found

    def _steps(self) -> list[int]:
        return [pid for pid, command, _ in self._processes() if command.startswith("slurmstepd:")]

    def _strays(self) -> list[int]:
        """Find what outlives its slurmd, or its job: without cgroups an orphan of a job escapes Slurm."""
        jobs = [pid for pid, _, words in self._processes() if any(word.startswith("SLURM_JOB_ID=") for word in words)]
        return [*self._steps(), *jobs]


@contextlib.contextmanager
def lab(**shape: int):
    """Bring a lab up in a temporary folder, and down again; ``shape`` is what `Lab` takes."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    cluster = Lab(folder, **shape)
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()
        shutil.rmtree(folder, ignore_errors=True)


def find_free_ports(count: int) -> list[int]:
    """Find ports below those that the kernel gives to clients, which could take one while its daemon is stopped."""
    ports: set[int] = set()
    while len(ports) < count:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", 20_000 + secrets.randbelow(12_000)))
            ports.add(probe.getsockname()[1])
    return list(ports)


def _host() -> str:
    return socket.gethostname().partition(".")[0]


def _secret(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def alive(pid: int) -> bool:
    """Say whether a process runs; a zombie does not."""
    # A process whose parent is pid 1 can stay a zombie for seconds in a container.
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def _children(pid: int) -> set[int]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return {child.pid for child in psutil.Process(pid).children()}
    return set()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def main() -> None:
    """Give a person a shell on a lab."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--cpus", type=int, default=2, help="of each node")
    parser.add_argument("--accounting", action="store_true", help="with slurmdbd, so that sacct answers")
    parser.add_argument("--memory-limit", action="store_true", help="kill a job that exceeds its --mem")
    options = parser.parse_args()
    reason = missing(accounting=options.accounting)
    if reason:
        sys.exit(f"error: {reason}")
    with lab(**vars(options)) as cluster:
        print(f"{options.nodes} nodes of {options.cpus} CPUs in {cluster.folder}; leave the shell to take them down")
        subprocess.run([os.environ.get("SHELL", "/bin/sh")], env=cluster.environment, check=False)


if __name__ == "__main__":
    main()
