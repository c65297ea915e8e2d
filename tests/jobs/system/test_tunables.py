"""What else can change the speed of a run: each is changed for real, in a process or on a device of its own.

Which library answers the calls of a process, by libraries that are preloaded for real.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.system import tunables
from tests.jobs.jobs_factory import ROOT
from tests.lies import setup
from tests.lies.lie import MissingError

ASK = "import json; from jobs.system import tunables; print(json.dumps(tunables.{}()))"


def asked(what, *inside, **environment):
    """Return what a process says of itself that is started by the command `inside`."""
    if inside and not shutil.which(inside[0]):
        pytest.skip(f"there is no {inside[0]}")
    command = [*inside, sys.executable, "-c", ASK.format(what)]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(ROOT)} | environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.fixture
def disk(tmp_path):
    """A file system on a loop device; a function that mounts it with options returns it."""
    with contextlib.ExitStack() as stack:

        def make(*options, fs="ext4", mib=16):
            try:
                return setup.disk(stack, tmp_path / "disk.img", tmp_path / "disk", *options, fs=fs, mib=mib)
            except MissingError as error:
                pytest.skip(str(error))

        yield make


@pytest.mark.parametrize(
    ("inside", "name", "value"),
    [
        (("nice", "-n", "7"), "nice", os.getpriority(os.PRIO_PROCESS, 0) + 7),
        (("ionice", "-c", "2", "-n", "5"), "io_priority", "best effort 5"),
        (("ionice", "-c", "3"), "io_priority", "idle"),
        (("chrt", "--batch", "0"), "scheduling", "batch"),
        (("strace", "-o", "/dev/null", "-e", "trace=none"), "tracer", "strace"),
    ],
)
def test_how_the_kernel_treats_a_process_is_seen(inside, name, value):
    assert asked("describe_process", *inside)[name] == value
    assert asked("describe_process").get(name) != value


def test_variables_that_libraries_obey_are_seen_and_no_others():
    secret = {"TF_VAR_password": "x", "TF_TOKEN_app": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    ours = {"TF_CPP_MIN_LOG_LEVEL": "1", "TF_CONFIG": "{}"}
    theirs = {"MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1", "TF_ENABLE_ONEDNN_OPTS": "0", "LD_BIND_NOW": "1"}
    theirs |= {"ONEDNN_MAX_CPU_ISA": "SSE41", "PYTHONTRACEMALLOC": "1", "CUDA_LAUNCH_BLOCKING": "1"}

    found = asked("describe_process", **secret, **ours, **theirs)

    assert theirs.items() <= found.items()
    assert not {*secret, *ours} & {*found}


def test_states_of_idle_processors_that_are_disabled_are_seen(tmp_path, monkeypatch):
    state = Path("/sys/devices/system/cpu/cpu0/cpuidle/state1/disable")
    if os.geteuid() or not state.exists():  # a virtual machine may have none: then files that lie as sysfs has them
        state = tmp_path / state.relative_to("/sys/devices/system/cpu")
        state.parent.mkdir(parents=True)
        state.write_text("0\n")
        monkeypatch.setitem(tunables._MACHINE_FILES, "cpu_idle_disabled", f"{tmp_path}/cpu*/cpuidle/state*/disable")  # noqa: SLF001
    before, now = tunables.describe_machine(), "1" if state.read_text().strip() == "0" else "0"

    try:
        state.write_text(now)
        after = tunables.describe_machine()
    finally:
        state.write_text("0" if now == "1" else "1")

    assert {name for name in after if after[name] != before.get(name)} == {"cpu_idle_disabled"}


def test_a_long_value_stands_there_by_its_checksum():
    paths = [asked("describe_process", LD_LIBRARY_PATH="/x" * 200 + end)["LD_LIBRARY_PATH"] for end in ("", "y", "")]

    assert paths[0] == paths[2] != paths[1]
    assert "400 letters" in paths[0]
    assert len(paths[1]) < 100


def test_a_process_on_one_processor_is_seen():
    core = str(min(os.sched_getaffinity(0)))

    assert asked("describe_machine", "taskset", "-c", core)["cpus"] == "1 of 1 core"
    assert tunables.describe_machine()["cpus"].startswith(f"{len(os.sched_getaffinity(0))} of ")


@pytest.mark.parametrize(("given", "cpus"), [("1", "those of the job"), ("2", "1 of 1 core")])
def test_a_job_has_as_many_processors_as_its_cell_has_threads_and_only_fewer_are_a_condition(given, cpus):
    core = str(min(os.sched_getaffinity(0)))

    found = asked("describe_machine", "taskset", "-c", core, SLURM_CPUS_PER_TASK=given)

    assert found["cpus"] == cpus
    assert "memory_limit_bytes" not in found


def test_of_a_list_of_choices_the_one_in_force_is_taken_and_of_several_files_each_value(tmp_path):
    texts = {"a": "always [madvise] never\n", "b": "madvise\n", "c": "powersave\n", "d": ""}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)

    assert tunables._first_lines(tmp_path / name for name in texts) == "madvise, powersave"  # noqa: SLF001
    assert tunables._first_lines([tmp_path / "d", tmp_path / "none"]) is None  # noqa: SLF001


def test_the_queue_of_a_device_is_seen_and_that_of_the_one_below_apart(disk):
    made = disk()
    before = tunables.describe_storage(made.point)

    (Path("/sys/block", made.device, "queue/read_ahead_kb")).write_text("4")
    after = tunables.describe_storage(made.point)

    assert {name for name in before if before[name] != after.get(name)} == {"read_ahead_kb"}
    assert after["read_ahead_kb"] == "4"
    assert {"scheduler", "nr_requests", "dio", "below.scheduler", "below.read_ahead_kb"} <= {*before}
    assert after == tunables.describe_storage(Path("/dev", made.device)) | {
        name: after[name] for name in ("mount",)
    }  # a baseline may read the device


def test_what_the_scheduler_of_a_device_is_set_to_is_seen(disk):
    made = disk()
    queue = Path("/sys/block", made.device, "queue")
    (queue / "scheduler").write_text("mq-deadline")
    before = tunables.describe_storage(made.point)

    (queue / "iosched/read_expire").write_text("20")
    after = tunables.describe_storage(made.point)
    (queue / "scheduler").write_text("none")  # the device of a loop stays, and its settings with it

    assert {name for name in after if after[name] != before.get(name)} == {"scheduler_settings"}
    assert "read_expire 20," in after["scheduler_settings"]


def test_how_it_is_mounted_is_seen_those_options_too_that_the_file_system_has_everywhere(disk):
    made = disk()
    before = tunables.describe_storage(made.point)["mount"]

    setup.call("mount", "-o", "remount,commit=7,noatime", made.point)
    after = tunables.describe_storage(made.point)["mount"]

    assert "commit=7" not in before
    assert {"commit=7", "noatime"} <= {*after.removeprefix("ext4 ").split(",")}
