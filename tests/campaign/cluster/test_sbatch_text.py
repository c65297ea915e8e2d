"""What each key of ``cluster`` and of a storage's sharing does to the jobs."""

import inspect
import re
import sys

import pytest
import submitit

from campaign.cells import cell_plan
from campaign.cluster import price, submission
from campaign.config.collect import make_cells
from campaign.worker.batch import CampaignCall
from tests.campaign.work_lists import grid


@pytest.fixture(autouse=True)
def srun(programs):
    """What submitit wants to find, and a cluster of four nodes."""
    programs("srun")
    programs("sinfo", "printf 'n1\nn2\nn3\nn4\n'")
    programs(
        "scontrol",
        'case "$2 $3" in "hostnames n[2-4]") printf "n2\nn3\nn4\n";; hostlistsorted*) echo "[$3]";; *) echo n9;; esac',
    )


@pytest.fixture
def arrays(folder):
    """Arrays of array jobs that words lead to; `at_most` tasks each."""

    def made(*words, at_most=1001):
        cells, conduct = make_cells(grid("cluster=slurm", *words))
        entries = cell_plan.make_plan(cells, conduct, folder).to_do
        return list(
            submission.make_arrays(entries, CampaignCall(folder, conduct, "0a1b2c3d", "2026-11-21", words), at_most)
        )

    return made


@pytest.fixture
def script(arrays):
    """The script of the only array."""

    def text(*words):
        (array,) = arrays(*words)
        return array.script()

    return text


def test_submitit_makes_the_text_of_a_script_by_the_function_that_is_called():
    """It is submitit's own: with another version it may take other arguments, or be gone."""
    made = inspect.signature(submitit.SlurmExecutor._make_submission_file_text)  # noqa: SLF001

    assert [*made.parameters] == ["self", "command", "uid"]


def _asks(text, option):
    return f"#SBATCH --{option}\n" in text


def test_a_script_runs_our_worker_on_its_own_list_and_is_known_by_its_folder(script, folder):
    text = script("threads=1,2")

    batch = folder.workers / "0a1b2c3d-0"
    assert _asks(text, f"chdir={batch}")
    assert _asks(text, "job-name=tfio-results-micro-0a1b2c3d")
    assert _asks(text, f"comment='tfio-campaign {folder.root} micro'")
    assert "wckey" not in text
    assert _asks(text, "array=0-1%1")
    assert _asks(text, "requeue")
    assert re.search(rf"-m campaign\.worker {batch}/work-\${{SLURM_ARRAY_TASK_ID}}\.json$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("cluster.partition=gpu", "partition=gpu"),
        ("cluster.account=a1", "account=a1"),
        ("cluster.qos=high", "qos=high"),
        ("cluster.constraint=lustre", "constraint=lustre"),
        ("cluster.wckey=w1", "wckey=w1"),
        ("cluster.comment='project=x'", "comment=project=x"),
        ("cluster.exclude='n[3-4],n7'", "exclude='n[3-4],n7'"),
        ("cluster.dependency='afterok:12'", "dependency=afterok:12"),
        ("cluster.licenses='matlab:1'", "licenses=matlab:1"),
        ("cluster.gpus_per_node=2", "gpus-per-node=2"),
        ("cluster.timeout_min=17", "time=17"),
        ("cluster.mem_gb=4.2", "mem=4006M"),  # 4.2e9 bytes in MiB, rounded up
        ("cluster.signal_delay_s=33", "signal=USR2@33"),
        ("threads=1,8,4", "cpus-per-task=8"),
        ("threads=2 cluster.cpus_per_task=7", "cpus-per-task=7"),
        ("threads=1,2,3,4 cluster.parallel=3", "array=0-3%3"),
        ("threads=1,2 storage.shared=true", "array=0-1%1"),
        ("threads=1,2 storage.shared=false", "array=0-1%2"),
        ("threads=1,2,3,4,5 cluster.cells_per_job=2", "array=0-2%1"),
        ("storage.exclusive=license storage.license='lustre:1' cluster.licenses='a:1'", "licenses=a:1,lustre:1"),
        ("storage.exclusive=singleton cluster.dependency='afterok:12'", "dependency=afterok:12,singleton"),
        ("", "exclusive"),
        ("+cluster.extra.mail-type=END +cluster.extra.reservation=null", "mail-type=END"),
        ("+cluster.extra.contiguous=true", "contiguous"),
    ],
)
def test_what_words_ask_sbatch_for(words, option, script):
    assert _asks(script(*words.split()), option)


def test_what_no_key_asks_for_is_left_to_slurm_and_a_step_has_all_processors_of_its_job(script):
    text = script("cluster.exclusive=false", "+cluster.extra.reservation=null", "storage.exclusive=lock")
    options = "partition|account|qos|mem|gpus-per-node|dependency|licenses|exclusive|reservation"
    assert not re.search(rf"--({options})\b", text)
    assert re.search(r"^srun .* --cpus-per-task=7 ", script("cluster.cpus_per_task=7"), re.MULTILINE)


def test_cluster_modules_and_prelude_come_first_and_end_the_job_where_they_fail(script):
    text = script("cluster.modules=[gcc/12.2,cuda]", "cluster.prelude=['source /site/env.sh','export A=1']")

    before, _, after = text.partition("export PYTHONPATH")
    first = ("module load gcc/12.2", "module load cuda", "source /site/env.sh", "export A=1")
    assert before.endswith("".join(f"\n{each} || exit 3" for each in first) + "\n")
    assert f"{sys.executable} -P -u -m campaign.worker " in after  # no file of the job's folder stands for a module


def test_more_cells_than_an_array_can_hold_go_into_arrays_that_wait_for_each_other(arrays):
    first, second, third = arrays("threads=1,2,3,4,5", at_most=2)

    assert [len(array.tasks) for array in (first, second, third)] == [2, 2, 1]
    assert (first.previous_array, second.previous_array, third.previous_array) == (None, first, second)
    assert len({array.folder for array in (first, second, third)}) == 3
    assert _asks(second.script({second.previous_array.folder: "77"}), "dependency=afterany:77")


def test_what_is_handed_over_again_has_a_folder_of_its_own(arrays, folder):
    (folder.workers / "0a1b2c3d-0").mkdir()
    (folder.workers / "0a1b2c3d-10").mkdir()

    (again,) = arrays()

    assert again.folder.name == "0a1b2c3d-11"


def test_each_storage_has_an_array_of_its_own(arrays, tmp_path):
    made = arrays("threads=1,2", f"storage.root={tmp_path}/a,{tmp_path}/b")

    assert [len(array.tasks) for array in made] == [2, 2]
    assert len({array.tasks[0][0].cell.settings["storage"]["root"] for array in made}) == 2


def test_cells_of_other_numbers_of_nodes_are_jobs_of_as_many_that_follow_one_another(arrays, folder):
    made = arrays("nodes=1,2,4", "seed=0,1", "cluster.timeout_min=60")

    assert [each.nodes for each in made] == [1, 2, 4]
    assert [each.previous_array for each in made] == [None, *made[:2]]
    assert all(
        _asks(each.script(), f"nodes={each.nodes}") and _asks(each.script(), "ntasks-per-node=1") for each in made
    )
    assert ["--kill-on-bad-exit=0 --wait=60" in each.script() for each in made] == [False, True, True]
    cost = price.price_arrays(made, folder)
    assert (cost.jobs, cost.nodes, cost.at_most_h) == (6, 14, 14.0)
    assert "6 jobs on 14 nodes of at most 60 min" in str(cost)
