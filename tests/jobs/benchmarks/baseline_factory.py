"""Baselines of small files: what a worker asks of a run, and what an engine is told to do."""

import copy

from jobs import run
from jobs.benchmarks import baseline
from jobs.benchmarks.engines import datafile
from jobs.benchmarks.engines.engine import EngineOrder
from tests.jobs.jobs_factory import judged_in_time

MIB = 1 << 20


def order(file, access="read", *, size=8 * MIB, block=MIB, **more):
    """Return what an engine is to do to a file."""
    return EngineOrder(access, file, size, block, **{"direct": True, **more})


def read_file(folder, mib=8):
    """Return a file of random bytes on the device, as campaigns make it."""
    return datafile.make_data_file(datafile.make_marked_folder(folder / "baseline"), mib * MIB, lambda *_: None)


def execute(file, access="read", *, block=MIB, size=8 * MIB, raw=None, **changes):
    """Do one run here, by the built-in engine unless another one is asked for; returns its figures."""
    settings = copy.deepcopy(baseline.BENCHMARK.defaults)
    settings |= {key: changes[key] for key in changes if key in settings}
    settings["benchmark"] |= {"access": access, "engine": "builtin"}
    settings["benchmark"] |= {key: changes[key] for key in changes if key in settings["benchmark"]}
    asked = {"file": str(file), "file_bytes": size, "block_bytes": block, "raw": raw and str(raw)}
    request = {"settings": settings, "trace": None, "baseline": asked}
    return judged_in_time(lambda: run.execute(request), request)
