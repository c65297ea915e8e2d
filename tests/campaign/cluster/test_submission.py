import pytest

from campaign.cluster import submission
from campaign.cluster.submission import find_job_id
from campaign.errors import SchedulerError
from campaign.slurm.client import RefusedError, SubmissionRefusal
from campaign.worker.batch import read_batches
from tests.campaign.fake_slurm import SQUEUE_HEAD
from tests.campaign.on_disk import leave_batch, squeue_line

TIMED_OUT = RefusedError("Batch job submission failed: Socket timed out on send/recv operation")
UNREACHED = RefusedError("Batch job submission failed: Unable to contact slurm controller")
NO_SPACE = OSError(28, "No space left on device")
REFUSED = RefusedError("invalid partition specified: nowhere")


@pytest.fixture(autouse=True)
def time(clock):
    return clock(submission)


@pytest.fixture
def batch(folder):
    return leave_batch(folder)


def _listed(batch):
    return "69|0|RUNNING|None|n1|/somebody/else", squeue_line(batch, 0, "PENDING")


@pytest.mark.parametrize("error", [TIMED_OUT, NO_SPACE, REFUSED])
def test_a_job_that_slurm_lists_was_taken_whatever_sbatch_said(error, batch, programs, folder):
    programs.answer("squeue", *_listed(batch))

    assert find_job_id(batch, error) == "70"
    assert read_batches(folder)[0].open_workers() == [0, 1]


@pytest.mark.parametrize("error", [TIMED_OUT, UNREACHED])
def test_a_job_that_a_busy_controller_lists_late_was_taken(error, batch, programs, time):
    (programs.folder / "answer").write_text("\n".join((SQUEUE_HEAD, *_listed(batch))))
    programs("squeue", f"head -$([ $(wc -l < {programs.log}) -lt 4 ] && echo 1 || echo 9) {programs.folder}/answer")

    assert find_job_id(batch, error) == "70"
    assert time.now == 1010.0


@pytest.mark.parametrize("error", [TIMED_OUT, UNREACHED, RefusedError("x", SubmissionRefusal.NO_ANSWER)])
def test_a_job_that_a_busy_controller_does_not_list_yet_is_not_refused_and_stays_open(error, batch, programs, folder):
    programs.answer("squeue", _listed(batch)[0])

    with pytest.raises(SchedulerError, match=r"^Slurm does not say whether it accepted 2 jobs: ") as caught:
        find_job_id(batch, error)

    assert "refused" not in str(caught.value)
    assert len(programs.calls) == 4
    assert read_batches(folder)[0].open_workers() == [0, 1]


@pytest.mark.parametrize("listed", [False, True], ids=["asked for once", "kept as refused"])
def test_what_slurm_refuses_outright_is_refused(listed, batch, programs, folder):
    programs.answer("squeue", *[squeue_line(batch, 0, "FAILED", "BadConstraints")] * listed)

    with pytest.raises(SchedulerError, match=r"refused 2 jobs: invalid partition specified: nowhere$"):
        find_job_id(batch, REFUSED)

    assert len(programs.calls) == 1
    assert read_batches(folder)[0].refused == "invalid partition specified: nowhere"


@pytest.mark.parametrize("error", [TIMED_OUT, REFUSED])
def test_while_slurm_does_not_say_the_job_is_open(error, batch, programs, folder):
    programs("squeue", "exit 1")

    with pytest.raises(SchedulerError, match="does not say whether it accepted 2 jobs") as caught:
        find_job_id(batch, error)

    assert "the same command" in caught.value.hint
    assert read_batches(folder)[0].open_workers() == [0, 1]
