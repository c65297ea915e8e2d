import pytest

from campaign.config.command_line import again, split
from campaign.errors import UsageError


@pytest.mark.parametrize(
    ("words", "hydra"),
    [
        ("storage=local -m threads=1,2 --config-dir /x", "-m --config-dir /x storage=local threads=1,2"),
        ("threads=1,2", "-m threads=1,2"),  # a grid needs no flag
        ("threads=1 --hydra-help", "--hydra-help threads=1"),  # what only shows something is no multirun
        ("threads=1 --cfg job", "--cfg job threads=1"),
        ("threads=1 --cfg=job", "--cfg=job threads=1"),
        ("threads=1 --info", "--info threads=1"),
        ("threads=1 -sc", "-sc threads=1"),
        ("--info plugins threads=1", "--info plugins threads=1"),  # its optional value
        ("--info threads=1", "--info threads=1"),  # an override is none
        ("-m threads=1 --dry-run seed=2", "-m threads=1 seed=2"),  # ours, and may stand anywhere
    ],
)
def test_flags_come_first_wherever_they_were_written(words, hydra):
    found = split(words.split())

    assert found.hydra == tuple(hydra.split())
    assert found.dry_run is ("--dry-run" in words)


def test_the_users_configuration_folder_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("CAMPAIGN_CONFIG_DIR", "/my/conf")

    assert split(["threads=1"]).hydra == ("-m", "--config-dir", "/my/conf", "threads=1")
    assert split(["-cd", "/other"]).hydra == ("-m", "-cd", "/other")


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["--dryrun"], "--dryrun", "--dry-run"),
        (["--experimental-rerun", "config.pickle"], "--experimental-rerun", ""),  # it would load a pickle
        (["--config-dir"], "needs a value", ""),
    ],
)
def test_a_flag_that_cannot_be_meant_is_refused(words, message, hint):
    with pytest.raises(UsageError, match=message) as caught:
        split(words)

    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("word", "hydra"),
    [
        ("cluster.pool=n[1-4],n7", "cluster.pool='n[1-4],n7'"),
        ("cluster.partition=gpu,long", "cluster.partition='gpu,long'"),
        ("cluster.exclude='n[1-4]'", "cluster.exclude='n[1-4]'"),
        ("cluster.account=${oc.env:ME}", "cluster.account=${oc.env:ME}"),
        ("cluster.qos=null", "cluster.qos=null"),
        ("cluster.timeout_min=5", "cluster.timeout_min=5"),
        ("storage.name=a,b", "storage.name=a,b"),
    ],
)
def test_words_for_sbatch_are_taken_as_they_stand(word, hydra):
    assert split([word]).hydra == ("-m", hydra)


def test_the_command_that_goes_on_has_no_flag_of_before_and_for_one_cell_its_hash():
    words = ["threads=1,2", "--yes", "--only", "a,b", "cluster.pool=n[1-2]", "redo=true", "--only=c", "--dry-run"]

    assert again(words) == "python -m campaign threads=1,2 --only a,b 'cluster.pool=n[1-2]' --only=c"
    assert again(words, "micro-t1-0ce30f7495") == (
        "python -m campaign threads=1,2 'cluster.pool=n[1-2]' --only 0ce30f7495"
    )
    assert split(words).only == ("a", "b", "c")
    with pytest.raises(UsageError, match="--only needs cells"):
        split(["--only"])
