import pytest

from campaign.errors import EnvironmentFaultError
from campaign.worker import batch as batches
from campaign.worker.runner import last_lines
from tests.campaign.on_disk import leave_batch
from tests.campaign.work_lists import LATER


@pytest.fixture
def made(folder):
    """A function that writes a batch."""

    def make(name="first-0", cells=(("a", "b"), ("c",)), **more):
        return leave_batch(folder, name, cells, **more)

    return make


def test_a_batch_is_found_again_as_it_was_saved_for_its_owner_alone(folder, made):
    assert batches.read_batches(folder) == []
    one, other = made(job_id="77"), made("second-0", utc=LATER, refused="invalid partition")

    assert batches.read_batches(folder) == [one, other]
    assert (one.open_workers(), other.open_workers()) == ([0, 1], [])
    assert one.folder.stat().st_mode & 0o777 == 0o700


def test_batches_come_back_oldest_first_and_those_of_one_submission_in_their_order(folder, made):
    late, tenth, ninth = made("a-0", utc=LATER), made("b-10"), made("b-9")

    assert batches.read_batches(folder) == [ninth, tenth, late]


def test_a_cell_belongs_to_the_worker_that_had_it_last(made):
    early, late = made(), made("second-0", cells=(("d",), ("b",)), utc=LATER)

    found = batches.last_workers([early, late])

    assert found == {"a": (early, 0), "b": (late, 1), "c": (early, 1), "d": (late, 0)}


def test_how_workers_ended_is_kept_and_what_was_known_first_stands(folder, made):
    batch = made()
    batch.save_ends({})
    assert not (batch.folder / "ended.json").exists()
    batch.save_ends({0: {"code": "NODE_FAIL"}})
    (again,) = batches.read_batches(folder)
    assert again.open_workers() == [1]
    again.save_ends({0: {"code": "LOST"}, 1: {"code": "COMPLETED"}})
    again.save()

    (found,) = batches.read_batches(folder)

    assert found.ended == {0: {"code": "NODE_FAIL"}, 1: {"code": "COMPLETED"}}
    assert found.open_workers() == []


def test_the_error_that_a_worker_left_is_its_own_where_it_could_be_written_whole(made):
    batch = made()
    (batch.folder / "work-0.error.json").write_text('{"mess')
    (batch.folder / "work-1.error.json").write_text('{"message": "no space", "hint": "free some"}')

    assert batch.worker_error(0) is None
    assert batch.worker_error(1) == {"message": "no space", "hint": "free some"}


MOVED = "slurmstepd-n1: error: execve(): /moved/away/bin/python: No such file or directory"
SRUN = "srun: error: n1: task 0: Exited with exit code 2"


@pytest.mark.parametrize(
    ("log", "says"),
    [
        (["old", MOVED, SRUN], MOVED),
        (["srun: error: n1: task 0: Killed"], "srun: error: n1: task 0: Killed"),
        (
            ["old", "srun: error: n1: task 0: Killed", "srun: Force Terminated StepId=70.0"],
            "srun: error: n1: task 0: Killed",
        ),
        (["old", "last", "", "slurmstepd: error: *** JOB 70 ON n1 CANCELLED ***"], "last"),
        *((["y", "x" * length], "x" * min(300, length)) for length in (299, 300, 301)),
        ([], None),
        (["", "  "], None),
    ],
)
@pytest.mark.parametrize("cluster", ["slurm", "local"])
def test_the_last_words_of_a_worker_are_the_last_telling_line_of_its_last_log(log, says, cluster, made):
    batch = made(cluster=cluster)
    names = ("70_1_0_log.err", "71_1_0_log.err") if cluster == "slurm" else ("1_0_log.err", "2_0_log.err")
    for name, lines in zip(names, (["of an earlier start"], log), strict=True):
        (batch.folder / name).write_text("\n".join(lines))
    if cluster == "slurm":
        (batch.folder / "72_0_0_log.err").write_text("of another worker")

    assert batch.last_log_line(1) == (f"{says} ({batch.folder / names[1]})" if says else "")
    assert batch.last_log_line(7) == (batch.last_log_line(1) if cluster == "local" else "")


@pytest.mark.parametrize(("lines", "shown"), [(14, 14), (15, 15), (16, 15), (1000, 15)])
def test_the_end_of_a_log_is_a_few_lines_of_64_kib_at_most(lines, shown, tmp_path):
    log = tmp_path / "log"
    log.write_text("\n".join(f"line {number}" for number in range(lines)))
    assert last_lines(log).splitlines() == [f"line {number}" for number in range(lines - shown, lines)]
    assert last_lines(log, 1) == f"line {lines - 1}"
    log.write_bytes(b"a" + b"b" * (1 << 16))
    assert last_lines(log) == "b" * (1 << 16)
    log.write_bytes(b"a" + b"b" * ((1 << 16) - 1))
    assert last_lines(log).startswith("ab")
    assert last_lines(tmp_path / "none") == ""


def test_cancelled_workers_are_kept_in_their_order_with_those_before(made):
    batch = made()
    assert batch.cancelled_workers() == []
    for indices in ([12, 3], [3, 5], []):
        batch.save_cancelled(indices)
    assert batch.cancelled_workers() == [3, 5, 12]


@pytest.mark.parametrize(("name", "text"), [("batch.json", "{"), ("batch.json", "{}"), ("ended.json", "[]")])
def test_a_damaged_file_of_a_batch_is_told_with_the_cure(name, text, folder, made):
    file = made().folder / name
    file.write_text(text)

    with pytest.raises(EnvironmentFaultError, match=rf"first-0/{name} is damaged") as caught:
        batches.read_batches(folder)

    assert "move the folder of this file away" in caught.value.hint
    assert file.read_text() == text
