"""Faults that users met once: each has the command that showed it, and what the tool must answer."""

import json
import os
import shutil
from pathlib import Path

import pytest
from PIL import Image

from tests.acceptance import door

SAVE = """
import sys, threading, time
from pathlib import Path
from jobs.burst_buffer import BurstBuffer
for name in ("fast", "slow"):
    Path(name).mkdir()
def write(folder):
    file = open(folder / "weights", "wb")
    file.write(b"0123456789")
    file.flush()
    def go_on():
        time.sleep(float(sys.argv[1]))
        file.write(b"x" * 2_000_000)
        file.close()
    thread = threading.Thread(target=go_on)
    thread.start()
    if sys.argv[2] == "join":
        thread.join()
buffer = BurstBuffer("fast", "slow")
try:
    print(buffer.save(1, write).bytes)
finally:
    buffer.wait_until_drained(20)
    buffer.close()
"""


@pytest.mark.parametrize("flag", ["--yes=no", "--dry-run=false", "--json=0", "-m=1"])
def test_a_flag_takes_no_value(cli, tmp_path, flag):
    done = cli("threads=1", flag)

    assert (done.code, done.out, [*tmp_path.iterdir()]) == (2, "", [])
    assert door.is_one_cure(done.err)
    assert flag.partition("=")[0] in done.err


def test_a_dry_run_needs_no_root_and_a_run_has_one_word_as_its_cure(cli, tmp_path):
    words = ("-m", "threads=1,2,4,8", "storage=lustre")

    plan, run = cli(*words, "--dry-run"), cli(*words)

    assert [line.split("-")[3] for line in plan.out.splitlines()] == ["t1", "t2", "t4", "t8"]
    assert (plan.code, "storage.root=" in plan.err) == (0, True)
    assert (run.code, run.out, [*tmp_path.iterdir()]) == (2, "", [])
    assert "storage.root=" in run.err.partition("hint: ")[2]


@pytest.mark.parametrize(("delay_s", "ends"), [("0.5", "leave"), ("0", "leave"), ("0.1", "join")])
def test_a_snapshot_that_is_still_written_is_no_snapshot(tmp_path, delay_s, ends):
    done = door.script(SAVE, delay_s, ends, cwd=tmp_path)
    listed = door.cli("list", "fast", "slow", cwd=tmp_path, program="jobs.burst_buffer")
    newest = door.cli("restore", "fast", "slow", cwd=tmp_path, program="jobs.burst_buffer")

    if ends == "join":
        assert (done.code, done.out.split()[0], listed.out.count("complete")) == (0, "2000010", 2)
        assert Path(newest.out.strip(), "weights").stat().st_size == 2_000_010
    else:
        assert (done.code, listed.out, newest.code) == (1, "", 1)
        assert "weights" in done.err


def test_a_full_disk_does_not_kill_the_program_whose_files_are_watched(small_disk, tmp_path):
    (tmp_path / "many").mkdir()
    for number in range(5000):
        (tmp_path / "many" / f"{number}").write_bytes(b"x")
    (small_disk / "ballast").write_bytes(bytes(2_000_000))
    program = "import pathlib; [p.read_bytes() for p in pathlib.Path('many').iterdir()]; open('ended', 'w')"

    done = door.cli("stall", "--yes", "--", "python", "-c", program, cwd=tmp_path, TMPDIR=small_disk)

    assert (tmp_path / "ended").exists()
    assert done.code in (2, 3)
    assert "--data" in done.err.partition("hint: ")[2]


def test_measure_of_own_images_repeats_its_answer_until_they_change(cli, tmp_path):
    (tmp_path / "images").mkdir()
    for number in range(40):
        Image.effect_noise((64, 64), 50).convert("RGB").save(tmp_path / "images" / f"{number}.jpg")
    words = ("measure", tmp_path, "--data", "images", "runs=2", "threads=1", "--yes", "--json", *door.SHARED)

    first, again = cli(*words), cli(*words)
    (tmp_path / "images" / "3.jpg").touch()
    changed = cli(*words)

    assert (first.code, again.code, again.json) == (0, 0, first.json), first.err
    assert (changed.code, "images" in changed.err) == (2, True)


def test_a_worker_of_this_machine_sees_what_the_shell_sees(cli, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").write_bytes(os.urandom(100_000))
    (tmp_path / "see.py").write_text(
        "import os, sys\nopen(sys.argv[1]).close()\nopen(sys.argv[2], 'w').write(os.environ['CUDA_VISIBLE_DEVICES'])"
    )
    program = f"benchmark.argv=[python,{tmp_path}/see.py,{tmp_path}/data/a,{tmp_path}/seen]"

    words = ("benchmark=command", program, "dataset=folder", "dataset.path=data", "runs=1", "warmup_runs=0")
    done = cli(*words, *door.SHARED, CUDA_VISIBLE_DEVICES="0")

    assert done.code in (0, 1), done.err
    assert (tmp_path / "seen").read_text() == "0"


LOGS = Path(pytest.importorskip("darshan").__file__).parent / "examples" / "example_logs"


def test_a_darshan_log_says_what_it_does_not_know(tmp_path):
    shutil.copy(LOGS / "ior_hdf5_example.darshan", tmp_path / "short.darshan")

    asked, told = door.traced("calls", ["short.darshan", "--json"], ["short.darshan"], cwd=tmp_path)
    (found,) = asked.json

    assert (found["bytes_read"], found["wall_s"], found["read_mb_per_s"]) == (4_202_504, 0.0, None)
    assert told.code == 0
    assert all(word in told.out for word in ("MPI-IO", "H5D", "4 ranks", "1 s"))
    assert "0.0 MB/s" not in told.out


def test_a_trace_of_which_nothing_is_known_is_undecided(tmp_path):
    script = """
import os, sys, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
tf.profiler.experimental.start("trace")
for number in range(5):
    with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
        time.sleep(0.05)
tf.profiler.experimental.stop()
"""
    door.script(script, cwd=tmp_path)
    (trace,) = tmp_path.glob("trace/plugins/profile/*/*.xplane.pb")

    ((found,),) = [done.json for done in door.traced("steps", [trace, "--json"], cwd=tmp_path)]

    assert "undecided" in found["verdict"]["words"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda summary: summary.pop("num_files_train"), 1),
        (lambda summary: summary.update(metric={"save_checkpoint_io_mean_GB_per_second": 1.5}), 2),
    ],
    ids=["no number of files", "a run of checkpoints"],
)
def test_the_referee_says_unknown_of_what_a_folder_lacks(tmp_path, change, code):
    summary = json.loads((door.STORED / "strangers" / "dlio" / "summary.json").read_text())
    change(summary)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "summary.json").write_text(json.dumps(summary))

    done = door.cli("mlperf", "run", "--step", 0.3, "--batch", 4, "--minimum", 90, cwd=tmp_path, program="analysis")

    assert done.code == code, done.err
    assert "0.00" not in done.out
    assert "below" not in done.out
