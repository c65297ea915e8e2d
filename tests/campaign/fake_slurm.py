"""A Slurm of shell scripts, and a clock that nobody waits for."""

import time

SQUEUE_HEAD = "ARRAY_JOB_ID|ARRAY_TASK_ID|STATE|REASON|NODELIST|WORK_DIR"


ARRAYS = {"70": "/c/workers/first-0", "71": "/c/workers/second-0"}
TASKS = 1000


def crowd(line):
    """What Slurm prints of two arrays of a thousand tasks, each task by `line(array, folder, index)`, in turns."""
    return [line(array, folder, index) for index in range(TASKS) for array, folder in ARRAYS.items()]


class Programs:
    """Slurm's clients as scripts, the only programs on PATH; each logs its words."""

    def __init__(self, folder):
        self.folder = folder
        self.log = folder / "log"

    def __call__(self, name, text="exit 0"):
        program = self.folder / name
        lines = ("#!/bin/sh", "PATH=/usr/bin:/bin", f'echo {name} "$*" >> {self.log}', text, "")
        program.write_text("\n".join(lines), encoding="utf-8")
        program.chmod(0o755)

    def answer(self, name, *lines):
        if name == "squeue":
            lines = (SQUEUE_HEAD, *lines)
        (self.folder / f"{name}.answer").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        self(name, f"cat {self.folder}/{name}.answer")

    @property
    def calls(self):
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []

    @property
    def asked(self):
        return [call.split()[0] for call in self.calls]


class Clock:
    def __init__(self):
        self.now = 1000.0

    strftime, localtime = time.strftime, time.localtime

    def monotonic(self):
        return self.now

    time = monotonic

    def sleep(self, seconds):
        self.now += seconds
