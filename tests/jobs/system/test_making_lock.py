"""Who waits for data that another process makes is told so."""

import fcntl
import os
import threading
import time

import pytest
from filelock import FileLock

from jobs.system import files, making_lock
from jobs.system.making_lock import acquire_making_lock


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(making_lock, "_MESSAGE_AFTER_S", 0.05)


def test_a_lock_that_another_process_has_is_waited_for_and_its_holder_named(tmp_path, capsys):
    theirs, user = (tmp_path / "lock").open("w"), files.user_name(os.geteuid())
    fcntl.flock(theirs, fcntl.LOCK_EX)
    threading.Timer(0.3, theirs.close).start()

    with acquire_making_lock(FileLock(tmp_path / "lock")):
        assert theirs.closed

    assert capsys.readouterr().err == f"waiting for process {os.getpid()} of {user}, which makes {tmp_path}\n"


def test_a_free_lock_is_taken_without_a_word(tmp_path, capsys):
    began = time.monotonic()

    with acquire_making_lock(FileLock(tmp_path / "lock")) as lock:
        assert lock.is_locked

    assert time.monotonic() - began < 1
    assert capsys.readouterr().err == ""
