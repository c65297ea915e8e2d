"""What others may have made is read through one module (`jobs/system/untrusted.py`); the others are named here."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOORS = {"jobs/system/untrusted.py", "jobs/system/files.py"}
PARSERS = {
    *("json.loads", "json.load", "zipfile.ZipFile", "np.load", "np.fromfile", "np.memmap", "np.lib.format.read_array"),
    *("zlib.decompress", "zlib.decompressobj", "gzip.open", "gzip.decompress", "pickle.load", "pickle.loads"),
    *("h5py.File", "darshan.DarshanReport", "openpyxl.load_workbook", "pd.read_csv", "pd.read_pickle", "Image.open"),
    *("marshal.loads", "shelve.open", "tarfile.open", "ET.parse", "ET.fromstring", "yaml.load", "yaml.safe_load"),
}
OPENERS = {"open", "os.open"}
METHODS = {"read_text", "read_bytes"}
OF_OUR_OWN = {
    "analysis/figures/kit/save.py": "the folder of a figure, to make its name durable; a figure drawn a moment before",
    "analysis/output/tables.py": "what was made a text a moment before",
    "analysis/statistics/selection.py": "what was made a text a moment before",
    "analysis/traces/system.py": "a text that the door has read",
    "analysis/claims/judge_claim.py": "what was made a text a moment before",
    "campaign/cli/help.py": "our own configuration, and the user's",
    "campaign/config/recipes.py": "our own configuration",
    "campaign/config/reference.py": "our own configuration",
    "campaign/console.py": "/dev/tty",
    "campaign/doctor_node.py": "/sys",
    "campaign/slurm/scheduler.py": "Slurm's log of finished jobs",
    "campaign/staging/cost.py": "files whose reading is timed, as a run reads them",
    "campaign/testbed/ceph.py": "/proc, and the answers of a gateway of our own",
    "campaign/testbed/serving.py": "/proc, and a loop device of our own",
    "campaign/testbed/spec.py": "its own source",
    "campaign/testbed/state.py": "/proc and /sys",
    "campaign/testbed/throttle.py": "/sys",
    "campaign/worker/runner.py": "the log of a run that the door has opened",
    "jobs/__main__.py": "an option of the command line",
    "jobs/data/synthetic_hdf5.py": "a file that is being made",
    "jobs/data/readers/h5py_parts.py": "HDF5 files, looked at before anything is followed (test_strangers_hdf5.py)",
    "jobs/events/nersc_logs.py": "a workbook that the door has opened; how much it unpacks to is asked first",
    "jobs/events/tensorflow_trace.py": "its own table of rules",
    "jobs/profiler/saved_profiles.py": "a spill that the door has opened; a Darshan log, in a process of its own",
    "jobs/system/programs.py": "a pipe between two processes of ours",
}


def _calls(source):
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield node.lineno, ast.unparse(node.func)


def _reads(source, *, whole):
    """Calls that open, list, unpack or parse; with `whole` those of files, too (of jobs: test_files_alone.py)."""
    for line, called in _calls(source):
        owner, _, name = called.rpartition(".")
        opens = called in OPENERS or (owner and name in METHODS)
        if called in PARSERS or (whole and opens):
            yield f"{line}: {called}"


@pytest.mark.parametrize("room", ["analysis", "campaign", "jobs"])
def test_no_other_module_reads_what_others_may_have_made(room):
    sources = {str(source.relative_to(ROOT)): source for source in (ROOT / room).rglob("*.py")}
    found = {name: [*_reads(source, whole=room != "jobs")] for name, source in sources.items() if name not in DOORS}

    assert {name: reads for name, reads in found.items() if reads and name not in OF_OUR_OWN} == {}
    assert [name for name in OF_OUR_OWN if name.startswith(f"{room}/") and not found.get(name)] == []
