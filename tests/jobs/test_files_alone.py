"""One module opens, reads, lists, writes, renames and removes what lies on storages."""

import ast
from pathlib import Path

JOBS = Path(__file__).parents[2] / "jobs"
MODULE = "system/files.py"
DEEDS = {
    *("open", "read_text", "read_bytes", "write_text", "write_bytes", "mkdir", "makedirs", "touch", "unlink", "remove"),
    *("rename", "rmdir", "rmtree", "scandir", "listdir", "iterdir", "glob", "rglob", "symlink_to", "link", "copyfile"),
}
NOT_STORAGES = {
    "benchmarks/accelerator.py": "/dev",
    "benchmarks/emulated_accelerators.py": "reads only, within the clock",
    "benchmarks/user_program.py": "a list of pipes",
    "__init__.py": "the marks of a program, in a folder that is the run's alone",
    "profiler/files_seen.py": "what the processes of a program leave in a folder that is the run's alone",
    "fork_server.py": "/dev/null",
    "observe/counters.py": "/proc",
    "observe/conditions.py": "/proc and /sys",
    "system/traffic.py": "/proc and /sys",
    "events/tensorflow_trace.py": "the folder of its own source",
    "profiler/build.py": "the folder of its own source",
    "profiler/profile.py": "/proc",
    "ranks/hub.py": "a list of connections",
    "ranks/rank.py": "/proc",
    "system/clock.py": "/proc",
    "system/cgroup.py": "/proc and /sys",
    "system/device.py": "/proc and /sys",
    "system/making_lock.py": "/proc",
    "system/threads.py": "/proc",
    "system/tunables.py": "/proc and /sys, and a folder of a storage for its attributes",
    "system/untrusted.py": "names and kinds of what lies in a folder; files are opened by files.py",
    "parser.py": "/dev/null",
    "terminal.py": "/dev/null",
    "system/page_cache.py": "pages of the files that a run reads; links of a user's own images are followed",
    "data/readers/h5py_parts.py": "objects within an HDF5 file that is open",
}


def _deeds(source):
    for node in ast.walk(ast.parse(source.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        owner, _, name = called.rpartition(".")
        of_a_path = name in DEEDS or (name == "replace" and len(node.args) == 1 and not node.keywords)
        if called == "open" or (owner and of_a_path and owner not in ("files", "self.store")):
            yield f"{node.lineno}: {called}"


def test_no_other_module_touches_what_lies_on_a_storage():
    deeds = {str(source.relative_to(JOBS)): [*_deeds(source)] for source in JOBS.rglob("*.py")}

    assert {name: found for name, found in deeds.items() if found and name not in {*NOT_STORAGES, MODULE}} == {}
    assert [name for name in NOT_STORAGES if not deeds[name]] == []
