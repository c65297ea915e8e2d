"""Record what a real Slurm answers about jobs in every state; see README.md beside it.

    python tests/campaign/slurm/recorded/record.py FOLDER

takes three minutes, as root, on a machine with slurm-wlm, munge, slurmdbd and mariadb-server-core.
"""

import shutil
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4]))
from tests.slurm import lab as laboratory

NAME = "tfio"
WORK = Path("/tmp/tfio")  # noqa: S108  the same in every recording, so that recordings compare
COMMANDS = {
    "squeue-r": ("squeue", "-r", "--states=all", "-h", "-o", "%i|%j|%T|%r|%N|%Z|%V|%S"),
    "sacct-X": ("sacct", "-X", "-n", "-P", f"--name={NAME}", "-o",
                "JobID,JobName,State,ExitCode,DerivedExitCode,NodeList,Reason,WorkDir,Submit,Start,End"),
}  # fmt: skip
HOG = "python3 -c 'import time; a = b\"x\" * 400_000_000; time.sleep(60)'"
STUBBORN = "trap : TERM; while :; do sleep 1; done"
# Situation: options of sbatch, what the job does.
JOBS = {
    "timeout": ("--time=1 -w n1", "sleep 600"),
    "node-fail": ("--no-requeue -w n6", "sleep 600"),
    "node-fail-requeued": ("-w n6", "sleep 600"),
    "preempted-requeued": ("-w n5", "sleep 600"),
    "preempted-no-requeue": ("--no-requeue -w n5", "sleep 600"),
    "completed": ("", "true"),
    "completed-with-step": ("", "srun true"),
    "failed-1": ("", "exit 1"),
    "failed-step": ("", "srun sh -c 'exit 3'"),
    "killed-9": ("", "kill -9 $$"),
    "killed-9-child": ("", "sh -c 'kill -9 $$'"),
    "killed-15": ("", "kill -15 $$"),
    "no-output-folder": ("-o /nonexistent/out", "true"),
    "out-of-memory": ("--mem=100M", HOG),
    "running": ("", "sleep 600"),
    "suspended": ("-w n4", "sleep 600"),
    "licence-holder": ("-L lustre:1", "sleep 600"),
    "pending-licenses": ("-L lustre:1", "sleep 600"),
    "cancelled": ("", "sleep 600"),
    "completing": ("", STUBBORN),
    "pending-begin": ("--begin=now+3600", "true"),
    "pending-held": ("--hold", "true"),
    "cancelled-pending": ("--hold", "true"),
    "array-failed-some": ("--array=0-3", "exit $SLURM_ARRAY_TASK_ID"),
    "array-task-limit": ("--array=1-5%1", "sleep 600"),
    "array-waiting": ("-L nvme:1 --array=1-5", "sleep 600"),
    "array-waiting-limited": ("-L lustre:1 --array=2-5%1", "sleep 600"),
    "array-held-sparse": ("--array=1,3,7-9 --hold", "sleep 600"),
    "array-cancelled-pending": ("--array=0-5%1", "sleep 600"),
    "array-cancelled-whole": ("--array=0-5%1", "sleep 600"),
    "array-cancelled-before-start": ("--array=0-5 --hold", "sleep 600"),
    "array-cancelled-one-pending": ("--array=0-5%1 --hold", "sleep 600"),
}


def _submit(lab, numbers, situation, options, body):
    folder = WORK / situation
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    given = [f"-J{NAME}", f"--chdir={folder}", f"--comment={situation}", "-o", str(folder / "out"), *options.split()]
    numbers[situation] = lab.run("sbatch", "--parsable", *given, "--wrap", body)
    with (OUT / "jobs.tsv").open("a") as table:
        table.write(f"{numbers[situation]}\t{situation}\t{options}\t{body}\n")


def _snapshot(lab, moment):
    for name, command in COMMANDS.items():
        (OUT / f"{name}.{moment}.txt").write_text(lab.run(*command) + "\n")


def main():
    with laboratory.lab(nodes=8, cpus=2, accounting=True, memory_limit=True) as lab:
        try:
            record(lab)
        finally:
            (OUT / "jobcomp.log").write_text((lab.folder / "log" / "jobcomp.log").read_text())


def record(lab):
    numbers = {}
    for situation, (options, body) in JOBS.items():
        _submit(lab, numbers, situation, options, body)
    time.sleep(4)
    lab.run("scontrol", "suspend", numbers["suspended"])
    _submit(lab, numbers, "preemptor", "-p high -w n5 --exclusive", "sleep 30")
    _submit(lab, numbers, "pending-dependency", f"-d afterok:{numbers['running']}", "true")
    _submit(lab, numbers, "pending-never", f"-d afterok:{numbers['failed-1']}", "true")
    _submit(lab, numbers, "pending-resources", "-N4 --exclusive", "true")
    _submit(lab, numbers, "pending-priority", "-N4 --exclusive", "true")
    lab.kill_node(6)
    for situation in ("cancelled", "cancelled-pending", "array-cancelled-whole", "array-cancelled-before-start"):
        lab.run("scancel", numbers[situation])
    lab.run("scancel", "--state=PENDING", numbers["array-cancelled-pending"])
    lab.run("scancel", numbers["array-cancelled-one-pending"] + "_3")
    time.sleep(5)
    lab.run("scancel", numbers["completing"])
    time.sleep(0.5)
    _snapshot(lab, "early")
    time.sleep(95)
    _snapshot(lab, "late")
    lab.run("scancel", "-u", "root")
    time.sleep(8)
    _snapshot(lab, "after")


if __name__ == "__main__":
    OUT = Path(sys.argv[1])
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "jobs.tsv").unlink(missing_ok=True)
    main()
