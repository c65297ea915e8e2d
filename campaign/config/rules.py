"""Rules about several settings: a configuration with settings that contradict each other is refused."""

from __future__ import annotations

import re
from collections.abc import Iterable

from campaign.config import rules_of_data, rules_of_slurm, rules_of_storage
from campaign.config.rules_of_storage import STORAGES
from campaign.errors import RefusalsError, UsageError, nearest
from jobs import steps
from jobs.benchmarks.registry import benchmarks, names_of
from jobs.judging import stopping
from jobs.model.conduct import Flat, Point
from jobs.model.declared import declared
from jobs.model.settings import flat

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]{0,31}")  # stands in cell ids, file names and scripts
_NAMED = (*STORAGES, "benchmark", "dataset", "storage", "accelerator", "cluster", "site")
_PATHS = (
    "campaign_dir",
    "storage.root",
    "storage.node_root",
    "storage.device",
    "dataset.path",
    *(f"{key}.root" for key in STORAGES),
)
ACCELERATORS = ("auto", "cpu", "gpu", "emulated")
CLUSTERS = (*rules_of_slurm.HERE, *rules_of_slurm.ON_SLURM)


def check(point: Point, values: Flat | None = None) -> None:
    """Refuse a composed configuration with values that contradict each other; raises UsageError or RefusalsError.

    `values`: the same by dotted keys, if they are known.
    """
    values = dict(flat(point)) if values is None else values
    of_site = {f"site.storages.{name}": name for name in point["site"]["storages"]}
    _texts(
        values,
        {**{f"{key}.name": values[f"{key}.name"] for key in _NAMED if f"{key}.name" in values}, **of_site},
        (*_PATHS, *(f"{path}.root" for path in of_site)),
    )
    for group, legal in (("benchmark", benchmarks()), ("cluster", CLUSTERS), ("accelerator", ACCELERATORS)):
        if (name := values[f"{group}.name"]) not in legal:
            raise UsageError(f"{group}.name={name} is no {group}", nearest(name, legal))
    rules_of_slurm.check_words(point)
    _runs(values)
    _benchmark(values, point)
    rules_of_storage.check_snapshots(values)
    rules_of_data.check(values)
    _accelerator(values)
    rules_of_storage.check_storage(values)
    rules_of_slurm.check(values)
    _ring(values)


def refusals(point: Point, values: Flat | None = None) -> list[tuple[str, str]]:
    """Check a point as `check` does; return the refusals that are collected over all points, each with its cure."""
    try:
        check(point, values)
    except RefusalsError as error:
        return [*error.refusals]
    return []


def _texts(values: Flat, names: Flat, paths: Iterable[str]) -> None:
    for key, name in names.items():
        if not _NAME.fullmatch(str(name)):
            raise UsageError(f"{key}={name!r} is not a valid name", "letters, digits and '_', at most 32")
    for key in paths:
        text = values.get(key)
        if text is not None and (not text.strip() or not text.isprintable()):
            raise UsageError(f"{key}={text!r} is no path", "name a folder, without line breaks")


def _runs(values: Flat) -> None:
    """Refuse numbers of runs that leave no measured run, or too few for ``until_spread``.

    Also refuse steps of a profile that are no range, and parts of a profile that has no calls.
    """
    _steps(values["profile.tensorflow"])
    if values["profile.every"] is not None and values["profile.posix"] != "trace":
        raise UsageError(
            f"profile.every={values['profile.every']} with profile.posix={values['profile.posix']}: only a trace has"
            " calls that can be divided",
            "profile.posix=trace",
        )
    runs, warmups = values["runs"], values["warmup_runs"]
    if warmups >= runs:
        raise UsageError(
            f"runs={runs} with warmup_runs={warmups} leaves no measured run", f"runs={warmups + 1} or more"
        )
    least = max(runs, warmups + stopping.FEWEST_RUNS)
    if values["until_spread"] is not None and values["max_runs"] < least:
        raise UsageError(
            f"max_runs={values['max_runs']} with until_spread={values['until_spread']}: runs={runs} with"
            f" warmup_runs={warmups} is more, or an interval of the median needs {stopping.FEWEST_RUNS} measured runs",
            f"max_runs={least} or more",
        )


def _steps(asked: str) -> None:
    try:
        if asked != steps.NONE:
            steps.window(asked)
    except ValueError:
        raise UsageError(
            f"profile.tensorflow={asked} is no window of steps", "5-15, from the fifth step to the 15th; all; or none"
        ) from None


def _benchmark(values: Flat, point: Point) -> None:
    """Refuse keys of another benchmark, and what the benchmark itself refuses."""
    name = values["benchmark.name"]
    benchmark = benchmarks()[name]
    if point["benchmark"].keys() != declared(benchmark.keys).keys():
        raise UsageError(f"benchmark.name={name} does not fit the other keys of benchmark", f"write benchmark={name}")
    if values["nodes"] > 1 and not benchmark.several_nodes:
        those = names_of("several_nodes")
        raise UsageError(
            f"nodes={values['nodes']}: benchmark={name} runs on one node", f"benchmark={' or '.join(those)}"
        )
    if refused := benchmark.refusal(values):
        raise UsageError(*refused)


def _accelerator(values: Flat) -> None:
    """Refuse an accelerator for a benchmark that computes nothing, and ``step_s`` without ``accelerator=emulated``."""
    name, step_s = values["accelerator.name"], values["accelerator.step_s"]
    if not benchmarks()[values["benchmark.name"]].computes and name != "auto":
        raise UsageError(
            f"accelerator={name}: benchmark={values['benchmark.name']} computes nothing",
            f"benchmark={' or '.join(names_of('computes'))}, or leave out accelerator",
        )
    if (step_s is None) == (name == "emulated"):
        raise UsageError(
            f"accelerator.step_s={step_s} with accelerator={name}", "it is the seconds of accelerator=emulated"
        )


def _ring(values: Flat) -> None:
    """Refuse TensorFlow's ring on a network that is not trusted, because its servers check no password."""
    if values["sync"] == "ring" and not values["site.trusted_network"]:
        raise UsageError(
            "sync=ring without site.trusted_network=true: whoever reaches a node's port can run operations as you",
            "sync=allreduce adds up through a hub that asks for a secret; site.trusted_network=true only where nobody "
            "else has the nodes or reaches their network",
        )
