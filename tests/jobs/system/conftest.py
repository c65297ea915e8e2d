"""Control groups as the kernel shows them in files."""

import pytest


@pytest.fixture
def machine(tmp_path):
    """Return a function that writes ``/proc/self`` and a tree of control groups; it returns the former."""

    def make(version, files, path="/a/b", root="/"):
        mount, proc = tmp_path / "cgroup", tmp_path / "self"
        for name, text in files.items():
            (mount / name).parent.mkdir(parents=True, exist_ok=True)
            (mount / name).write_text(text)
        proc.mkdir()
        (proc / "cgroup").write_text(f"0::{path}\n" if version == 2 else f"4:memory,cpu,blkio:{path}\n0::/\n")
        kind, options = ("cgroup2", "rw") if version == 2 else ("cgroup", "rw,cpu,memory,blkio")
        (proc / "mountinfo").write_text(f"30 20 0:25 {root} {mount} rw - {kind} {kind} {options}\n")
        return proc

    return make
