import pytest

from campaign.config.command_line import command_to_continue, parse_command_line
from campaign.errors import UsageError


@pytest.mark.parametrize(
    ("words", "flags", "shown", "overrides"),
    [
        ("storage=local -m threads=1,2 -cd /x", "--config-dir /x", "", "storage=local threads=1,2"),
        ("threads=1 --hydra-help", "", "--hydra-help", "threads=1"),
        ("threads=1 --cfg job seed=1", "", "--cfg job", "threads=1 seed=1"),
        ("threads=1 --cfg=job --resolve", "", "--cfg job --resolve", "threads=1"),
        ("threads=1 -sc", "", "-sc", "threads=1"),
        ("--info plugins threads=1", "", "--info plugins", "threads=1"),  # its optional value
        ("--info threads=1", "", "--info", "threads=1"),  # an override is none
        ("-m threads=1 --dry-run seed=2", "", "", "threads=1 seed=2"),  # ours, and may stand anywhere
    ],
)
def test_flags_may_stand_anywhere(words, flags, shown, overrides):
    found = parse_command_line(words.split())

    assert (found.config_dir_flags, found.hydra_flags, found.overrides) == tuple(
        tuple(each.split()) for each in (flags, shown, overrides)
    )
    assert found.dry_run is ("--dry-run" in words)


def test_the_users_configuration_folder_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("CAMPAIGN_CONFIG_DIR", "/my/conf")

    assert parse_command_line(["threads=1"]).config_dir == "/my/conf"
    assert parse_command_line(["-cd", "/other"]).config_dir == "/other"


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["--dryrun"], "--dryrun", "--dry-run"),
        (["--experimental-rerun", "config.pickle"], "--experimental-rerun", ""),  # it would load a pickle
        (["--config-dir"], "needs a value", ""),
        (["--config-path=/x"], "has no effect here", "--config-dir"),
        (["-cn", "mine"], "has no effect here", "+paper=mine"),
    ],
)
def test_a_flag_that_cannot_be_meant_is_refused(words, message, hint):
    with pytest.raises(UsageError, match=message) as caught:
        parse_command_line(words)

    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("word", "read"),
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
def test_words_for_sbatch_are_taken_as_they_stand(word, read):
    assert parse_command_line([word]).overrides == (read,)


def test_the_command_that_goes_on_has_no_flag_of_before_and_for_one_cell_its_hash():
    words = ["threads=1,2", "--yes", "--only", "a,b", "cluster.pool=n[1-2]", "redo=true", "--only=c", "--dry-run"]

    assert command_to_continue(words) == "python -m campaign threads=1,2 --only a,b 'cluster.pool=n[1-2]' --only=c"
    assert command_to_continue(words, "micro-t1-0ce30f7495") == (
        "python -m campaign threads=1,2 'cluster.pool=n[1-2]' --only 0ce30f7495"
    )
    assert parse_command_line(words).only == ("a", "b", "c")
    with pytest.raises(UsageError, match="--only needs cells"):
        parse_command_line(["--only"])
