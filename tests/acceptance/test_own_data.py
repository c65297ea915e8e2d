"""The user's own data: all of them are read and evicted, or what is not is named."""

import os
import shlex
import sys

import h5py
import numpy as np
import pytest
from PIL import Image

from jobs.cold import cold_files
from tests.acceptance import door

pytestmark = pytest.mark.long

FEW = (*door.SHARED, "checks.time_error_max=1", "wait_quiet_s=null")
MB = 10**6


def images(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    for name in names:
        Image.fromarray(pixels).save(folder / name)


def texts(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(os.urandom(MB))
    return folder


def stall(cli, tmp_path, *program, data, runs=1):
    """Measure cold runs of a program; returns the command and the record."""
    done = cli("stall", "--cold", "--runs", runs, "--json", "--data", data, *FEW, "--", *program)
    return done, *door.judged(tmp_path / "stall")


def test_images_that_no_run_reads_are_named_before_the_run_in_the_record_and_by_show(cli, tmp_path):
    images(tmp_path / "images", *(f"{number}.jpg" for number in range(12)))
    images(tmp_path / "images" / ".hidden", ".dot.png")
    for number, kind in enumerate(("webp", "webp", "TIF", "jfif")):
        (tmp_path / "images" / f"{number}.{kind}").write_bytes(b"x")
    words = ("dataset=folder", f"dataset.path={tmp_path}/images", "batch_size=13", "runs=2", *FEW)

    dry = cli(*words, "--dry-run")
    done = cli(*words)

    (record,) = door.records(tmp_path / "results")
    shown = cli("show", record["cell"]["id"])
    assert (dry.code, done.code) == (0, 0)
    assert record["dataset"]["files"] == record["runs"][-1]["images"] == 13
    assert record["dataset"]["left_out"] == {".webp": 2, ".tif": 1, ".jfif": 1}
    assert all("4 of 17" in text and "2 .webp" in text for text in (dry.err, done.err, shown.out))


def test_a_folder_with_a_comma_in_its_name_gets_its_quotes_as_the_cure(cli, tmp_path):
    images(tmp_path / "x,y", "a.jpg")

    done = cli("dataset=folder", f"dataset.path={tmp_path}/x,y", "--dry-run")
    cured = shlex.split(done.err.partition("quote the name: ")[2])

    assert (done.code, cli("dataset=folder", *cured, "batch_size=1", "--dry-run").code) == (2, 0)


def test_own_hdf5_files_are_read_whole_and_rows_that_they_do_not_have_are_refused_by_the_plan(cli, tmp_path):
    (tmp_path / "own").mkdir()
    for number in range(20):
        with h5py.File(tmp_path / "own" / f"{number:02}.h5", "w") as file:
            file["x"] = np.ones((224, 30, 3), np.float32)
    words = ("benchmark=climate", "dataset=folder", f"dataset.path={tmp_path}/own", "dataset.hdf5=x", *FEW)

    few = cli(*words, "benchmark.channels=[0,1]", "--dry-run")
    odd = cli(*words, "benchmark.channels=[0,224]", "--dry-run")
    done = cli(*words, "runs=2", "threads=1", "prefetch=0", "accelerator.step_s=0.01")

    (record,) = door.records(tmp_path / "results")
    shown, run = cli("show", record["cell"]["id"]), record["runs"][-1]
    assert (odd.code, few.code, done.code) == (2, 0, 0), done.err
    assert "2 of 224 rows" in few.err
    assert run["bytes_read"] == run["images"] * 224 * 30 * 3 * 4
    assert (record["dataset"]["rows_read"], record["dataset"]["rows"]) == (224, 224)
    assert "224 of 224 rows" in shown.out


def test_all_files_below_a_folder_are_its_data(cli, tmp_path):
    data = texts(tmp_path / "data", "a", ".git/objects/b", ".c", "manifest.json")

    done, record = stall(cli, tmp_path, "cat", *(data / each for each in ("a", ".git/objects/b", ".c")), data=data)
    with cold_files(data) as proof:
        b"".join(path.read_bytes() for path in data.rglob("*") if path.is_file())

    assert (record["dataset"]["files"], record["dataset"]["bytes"]) == (4, 4 * MB)
    assert record["runs"][-1]["device_bytes"] >= 3 * MB, done.err
    assert (proof.files, proof.bytes) == (4, 4 * MB)


def test_a_programs_output_is_not_stored_and_does_not_shorten_its_work(cli, tmp_path):
    data = texts(tmp_path / "data", *map(str, range(8)))
    noise = "import sys; sys.stderr.write('early ' + 'x' * 300_000 + ' late')"

    done, record = stall(
        cli, tmp_path, "sh", "-c", f'grep -a "" -r {data}; {sys.executable} -c "{noise}"', data=data, runs=2
    )

    logs = [path.read_text() for path in tmp_path.glob("stall/records/*/run-*.log")]
    assert done.code == 0, done.err
    assert (
        record["runs"][-1]["data_in_memory_bytes"] >= 8 * MB
    )  # grep ends at the first match if it writes to /dev/null
    assert len(logs) == 3
    assert all(len(log) <= 1 << 16 and log.endswith(" late") for log in logs)


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("cat {data}/*; exit 3", ["valid", "valid"]),
        ("exit 3", ["failed"]),
        ("cat {data}/*; echo >> {count}; exit $(wc -l < {count})", ["valid", "invalid"]),
    ],
    ids=["the_same_in_all_runs", "no_data_read", "another_in_each_run"],
)
def test_an_exit_code_is_an_answer_if_it_is_always_the_same_and_the_data_were_read(cli, tmp_path, script, status):
    data = texts(tmp_path / "data", "a", "b")
    script = script.format(data=data, count=tmp_path / "count")

    done, record = stall(cli, tmp_path, "sh", "-c", script, data=data, runs=2)

    assert [run["status"] for run in record["runs"] if run["role"] == "measured"][: len(status)] == status, done.err
