"""Fixtures of the acceptance tests: what a test finds in its folder before it gives a command."""

from __future__ import annotations

import os
import subprocess
from functools import partial

import pytest

from tests.acceptance import door


@pytest.fixture
def cli(tmp_path):
    """Give a command from an empty folder, as `door.cli` does."""
    return partial(door.cli, cwd=tmp_path)


@pytest.fixture
def start(tmp_path):
    """Start a command from an empty folder; what still runs of it at the test's end is killed."""
    started = []

    def go(*words, **more):
        started.append(door.start(*words, cwd=tmp_path, **more))
        return started[-1]

    yield go
    for process in door.processes_in(tmp_path):
        process.kill()
    for front in started:
        front.communicate()


@pytest.fixture
def site(tmp_path):
    """Write the file of a site of the user's own; returns the words that name it."""

    def write(text):
        file = tmp_path / "conf" / "site" / "mine.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"defaults: [none, _self_]\nname: mine\n{text}")
        return "--config-dir", tmp_path / "conf", "site=mine"

    return write


@pytest.fixture
def small_disk(tmp_path):
    """Mount a file system of 3 MB; returns its folder."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", "-l", place], check=True)
