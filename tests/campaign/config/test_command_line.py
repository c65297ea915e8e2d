from __future__ import annotations

import pytest

from campaign.config.command_line import split
from campaign.errors import UsageError


def test_flags_come_first_wherever_they_were_written():
    words = split(["storage=local", "-m", "threads=1,2", "--config-dir", "/x"])

    assert words.hydra == ("-m", "--config-dir", "/x", "storage=local", "threads=1,2")


def test_a_grid_needs_no_multirun_flag():
    assert split(["threads=1,2"]).hydra == ("-m", "threads=1,2")


def test_dry_run_is_ours_and_may_stand_anywhere():
    words = split(["-m", "threads=1", "--dry-run", "seed=2"])

    assert words.dry_run
    assert words.hydra == ("-m", "threads=1", "seed=2")


@pytest.mark.parametrize("flags", [["--hydra-help"], ["--cfg", "job"], ["--cfg=job"], ["--info"], ["-sc"]])
def test_a_flag_that_only_shows_something_is_no_multirun(flags):
    assert split(["threads=1", *flags]).hydra == (*flags, "threads=1")


def test_info_takes_its_optional_value_but_no_override():
    assert split(["--info", "plugins", "threads=1"]).hydra == ("--info", "plugins", "threads=1")
    assert split(["--info", "threads=1"]).hydra == ("--info", "threads=1")


def test_the_users_configuration_folder_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("CAMPAIGN_CONFIG_DIR", "/my/conf")

    assert split(["threads=1"]).hydra == ("-m", "--config-dir", "/my/conf", "threads=1")
    assert split(["-cd", "/other"]).hydra == ("-m", "-cd", "/other")


def test_an_unknown_flag_is_named_with_the_nearest_one():
    with pytest.raises(UsageError, match="--dryrun") as caught:
        split(["--dryrun"])

    assert "--dry-run" in caught.value.hint


def test_loading_a_pickled_configuration_is_not_offered():
    with pytest.raises(UsageError):
        split(["--experimental-rerun", "config.pickle"])


def test_a_flag_without_its_value_is_an_error():
    with pytest.raises(UsageError, match="needs a value"):
        split(["--config-dir"])
