"""Refuse configurations whose settings contradict each other, and jobs that the site does not allow.

A setting that is written into a batch script is legal if a shell and sbatch read its value as one plain word.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from campaign.config import rules_of_data_and_storage
from campaign.config.rules_of_data_and_storage import STORAGES
from campaign.errors import RefusalsError, UsageError
from jobs import steps
from jobs.benchmarks.registry import benchmarks, names_of
from jobs.judging import intervals
from jobs.model.conduct import SBATCH_TEXTS, Flat, Point
from jobs.model.declared import declared_settings
from jobs.model.settings import flat_items
from jobs.parser import nearest_hint

HERE, ON_SLURM = ("debug", "local"), ("auto", "slurm")  # choices of the group `cluster`
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]{0,31}")  # names become parts of cell ids, file names and scripts
_NAMED_NODES = (*STORAGES, "benchmark", "dataset", "storage", "accelerator", "cluster", "site")
_PATHS = (
    "campaign_dir",
    "storage.root",
    "storage.node_root",
    "storage.device",
    "dataset.path",
    *(f"{key}.root" for key in STORAGES),
)
ACCELERATORS = ("auto", "cpu", "gpu", "emulated")
CLUSTERS = (*HERE, *ON_SLURM)

_LIST = (re.compile(r"[A-Za-z0-9_.,-]+"), "letters, digits and _ . , -")
_NODES = (re.compile(r"[A-Za-z0-9_.,\[\]-]+"), "node names like n[1-4],n7")
_REMARK = (re.compile(r"[A-Za-z0-9_.,:=/@+-]+"), "letters, digits and _ . , : = / @ + -")
_LICENSES = (re.compile(r"[A-Za-z0-9_.@:,/-]+"), "licences like lustre:1,matlab@server:2")
_LEGAL_TEXTS = {
    "partition": _LIST,
    "account": _LIST,
    "qos": _LIST,
    "constraint": (re.compile(r"[A-Za-z0-9_,&|\[\]*()!-]+"), "features like K80&haswell or [rack1|rack2]"),
    "pool": _NODES,
    "exclude": _NODES,
    "dependency": (re.compile(r"[A-Za-z0-9_:,?+]+"), "dependencies like afterok:123"),
    "licenses": _LICENSES,
    "license": _LICENSES,
    "wckey": _LIST,
    "comment": _REMARK,
}
_MODULE = re.compile(r"[A-Za-z0-9_.+/][A-Za-z0-9_.+/-]*")
_OPTION = re.compile(r"[a-z][a-z-]*")
_EXPANDED_BY_SBATCH = re.compile(r"[%\\'\"\r\n]")  # characters that sbatch interprets in file names

# Options of sbatch that have their own key in the configuration. Below: options that the campaign itself sets.
_HAS_A_KEY = {name: f"cluster.{name}" for name in (*SBATCH_TEXTS, "exclusive")} | {
    "nodelist": "cluster.pool",
    "time": "cluster.timeout_min",
    "mem": "cluster.mem_gb",
    "cpus-per-task": "cluster.cpus_per_task",
    "gpus-per-node": "cluster.gpus_per_node",
}
_OPTIONS_OF_CAMPAIGN = (
    "job-name", "array", "chdir", "output", "error", "open-mode", "signal", "requeue", "no-requeue", "wrap", "parsable",
    "wait", "nodes", "ntasks", "ntasks-per-node", "tasks-per-node", "oversubscribe", "clusters", "cluster-constraint",
    "test-only", "help", "usage", "version",
)  # fmt: skip
# sbatch accepts an unambiguous prefix of an option (getopt_long). These options are prefixes of other options.
_NOT_SHORTENED = ("gpus",)


def check_point(point: Point, values: Flat | None = None) -> None:
    """Raise UsageError or RefusalsError if the settings of a composed configuration contradict each other.

    `values` are the settings of `point` by dotted keys; the caller may pass them to save time.
    """
    values = dict(flat_items(point)) if values is None else values
    of_site = {f"site.storages.{name}": name for name in point["site"]["storages"]}
    _check_texts(
        values,
        {**{f"{key}.name": values[f"{key}.name"] for key in _NAMED_NODES if f"{key}.name" in values}, **of_site},
        (*_PATHS, *(f"{path}.root" for path in of_site)),
    )
    is_defined = "accelerator.sample_bytes" in values
    accelerators = (values["accelerator.name"],) if is_defined else ACCELERATORS
    for group, legal in (("benchmark", benchmarks()), ("cluster", CLUSTERS), ("accelerator", accelerators)):
        if (name := values[f"{group}.name"]) not in legal:
            raise UsageError(f"{group}.name={name} is no {group}", nearest_hint(name, legal))
    _check_script_texts(point)
    _check_numbers_of_runs(values)
    _check_benchmark(values, point)
    rules_of_data_and_storage.check_checkpoint_target(values)
    rules_of_data_and_storage.check_data(values)
    _check_accelerator(values)
    rules_of_data_and_storage.check_storage(values)
    _check_jobs(values)
    _check_ring(values)


def collect_refusals(point: Point, values: Flat | None = None) -> list[tuple[str, str]]:
    """Call `check_point` and return the refusals of its RefusalsError, each with the cure; raise any other error."""
    try:
        check_point(point, values)
    except RefusalsError as error:
        return [*error.refusals]
    return []


def _check_texts(values: Flat, names: Flat, paths: Iterable[str]) -> None:
    """Refuse names that cannot be a part of a cell id, and paths that are empty or unprintable."""
    for key, name in names.items():
        if not _NAME.fullmatch(str(name)):
            raise UsageError(f"{key}={name!r} is not a valid name", "use at most 32 letters, digits and '_'")
    for key in paths:
        text = values.get(key)
        if text is not None and (not text.strip() or not text.isprintable()):
            raise UsageError(f"{key}={text!r} is no path", "name a folder without line breaks")


def _check_numbers_of_runs(values: Flat) -> None:
    """Refuse numbers of runs with no measured run, or too few runs for ``until_spread``; refuse wrong profile settings.

    A profile setting is wrong if its steps are no range, or if ``profile.every`` is set for a profile that does not
    record single calls.
    """
    _check_profile_steps(values["profile.tensorflow"])
    if values["profile.every"] is not None and values["profile.posix"] != "trace":
        raise UsageError(
            f"profile.every={values['profile.every']} with profile.posix={values['profile.posix']}: only a trace"
            " records single calls",
            "set profile.posix=trace",
        )
    runs, warmups = values["runs"], values["warmup_runs"]
    if warmups >= runs:
        raise UsageError(
            f"runs={runs} with warmup_runs={warmups} leaves no measured run", f"set runs={warmups + 1} or more"
        )
    least = max(runs, warmups + intervals.FEWEST_RUNS)
    if values["until_spread"] is not None and values["max_runs"] < least:
        raise UsageError(
            f"max_runs={values['max_runs']} with until_spread={values['until_spread']} is too small: runs={runs} with"
            f" warmup_runs={warmups}, and an interval of the median needs {intervals.FEWEST_RUNS} measured runs",
            f"set max_runs={least} or more",
        )


def _check_profile_steps(text: str) -> None:
    """Refuse a window of profiled steps that cannot be read."""
    try:
        if text != steps.NONE:
            steps.step_window(text)
    except ValueError:
        raise UsageError(
            f"profile.tensorflow={text} is no window of steps", "write 5-15 for the steps 5 to 15, or all, or none"
        ) from None


def _check_benchmark(values: Flat, point: Point) -> None:
    """Refuse keys of another benchmark, and settings that the benchmark itself refuses."""
    name = values["benchmark.name"]
    benchmark = benchmarks()[name]
    if point["benchmark"].keys() != declared_settings(benchmark.keys).keys():
        raise UsageError(f"benchmark.name={name} does not fit the other keys of benchmark", f"write benchmark={name}")
    if values["nodes"] > 1 and not benchmark.several_nodes:
        benchmark_names = names_of("several_nodes")
        raise UsageError(
            f"nodes={values['nodes']}: benchmark={name} runs on one node", f"benchmark={' or '.join(benchmark_names)}"
        )
    if refusal := benchmark.settings_error(values):
        raise UsageError(*refusal)


def _check_accelerator(values: Flat) -> None:
    """Refuse an accelerator for a benchmark that computes nothing, and ``step_s`` without ``accelerator=emulated``."""
    name, step_s = values["accelerator.name"], values["accelerator.step_s"]
    if "accelerator.sample_bytes" in values:
        if values["benchmark.name"] != "feed":
            raise UsageError(f"accelerator={name} is for benchmark=feed", f"accelerator={' or '.join(ACCELERATORS)}")
        return
    if not benchmarks()[values["benchmark.name"]].computes and name != "auto":
        raise UsageError(
            f"accelerator={name}: benchmark={values['benchmark.name']} computes nothing",
            f"benchmark={' or '.join(names_of('computes'))}, or leave out accelerator",
        )
    if (step_s is None) == (name == "emulated"):
        raise UsageError(
            f"accelerator.step_s={step_s} with accelerator={name}",
            "set accelerator.step_s only together with accelerator=emulated",
        )


def _check_ring(values: Flat) -> None:
    """Refuse ``sync=ring`` on a network that is not trusted, because TensorFlow's servers check no password."""
    if values["sync"] == "ring" and not values["site.trusted_network"]:
        raise UsageError(
            "sync=ring without site.trusted_network=true: whoever reaches a node's port can run operations as you",
            "sync=allreduce uses a hub that asks for a secret; set site.trusted_network=true only if nobody else uses "
            "the nodes or reaches their network",
        )


def _check_jobs(values: Flat) -> None:
    """Raise UsageError for jobs that the site does not allow, and for ``detach=true`` without Slurm."""
    if values["cluster.name"] in ON_SLURM:
        _check_job_limits(values)
    elif values["detach"]:
        name = values["cluster.name"]
        raise UsageError(
            f"detach=true with cluster={name}: detaching needs Slurm",
            "set cluster=slurm, or detach with your shell: nohup python -m campaign … &",
        )


def _check_script_texts(point: Point) -> None:
    """Raise UsageError for a value that would not be one plain word in a batch script."""
    site, cluster = point["site"], point["cluster"]
    storages = {f"site.storages.{name}": storage for name, storage in site["storages"].items()}
    nodes: dict[str, Any] = {"site": site, "cluster": cluster, "storage": point["storage"], **storages}
    for path, node in nodes.items():
        for name in _LEGAL_TEXTS.keys() & node.keys():
            _check_text(f"{path}.{name}", node[name], *_LEGAL_TEXTS[name])
        for module in node.get("modules") or ():
            _check_text(f"{path}.modules: {module!r}", module, _MODULE, "names like cuda/12.2, without spaces")
        for line in node.get("prelude") or ():
            if not line.strip() or not line.isprintable():
                raise UsageError(f"{path}.prelude: {line!r} is no command", "write each command as one line of text")
    for option, value in cluster.get("extra", {}).items():
        _check_extra_option(str(option), value)


@lru_cache
def _check_folder_name(folder: str, current: str) -> None:
    """Refuse a campaign folder with characters that Slurm expands in the file names of a job's output."""
    path = str(Path(current, Path(folder).expanduser()))
    odd_character = _EXPANDED_BY_SBATCH.search(path)
    if odd_character:
        raise UsageError(
            f"campaign_dir={path} has a {odd_character.group()!r}, which Slurm would expand in names of files",
            "name a folder without %, \\ and quotes with campaign_dir=…, or set cluster=local",
        )


def _check_text(path: str, value: str | None, legal: re.Pattern[str], example: str) -> None:
    """Refuse a value with characters that are not legal in a batch script."""
    if value is not None and not legal.fullmatch(value):
        assignment = path if repr(value) in path else f"{path}={value!r}"
        raise UsageError(f"{assignment} is not allowed in a batch script", f"legal: {example}")


def _check_extra_option(option: str, value: Any) -> None:
    """Refuse an option that sbatch does not have or that the campaign itself sets, and a value that is no plain text.

    The option is a key of ``cluster.extra``.
    """
    path = f"cluster.extra.{option}"
    if not _OPTION.fullmatch(option):
        corrected = option.replace("_", "-").lower()
        cure = (
            f"write {corrected}" if _OPTION.fullmatch(corrected) else "write the option as in sbatch --help: mail-type"
        )
        raise UsageError(f"{path} is no long option of sbatch", cure)
    for reserved in (*_HAS_A_KEY, *_OPTIONS_OF_CAMPAIGN):
        if option == reserved or (reserved.startswith(option) and option not in _NOT_SHORTENED):
            if reserved in _HAS_A_KEY:
                raise UsageError(f"{path}: --{reserved} has a key of its own", f"{_HAS_A_KEY[reserved]}=…")
            raise UsageError(f"{path}: the campaign itself decides about --{reserved}", f"leave out {option}")
    if isinstance(value, (dict, list)) or (isinstance(value, str) and not (value and value.isprintable())):
        raise UsageError(
            f"{path}={value!r} is no plain value",
            "give one line of text, a number, true (option without value) or null (no option)",
        )


def _check_job_limits(values: Flat) -> None:
    """Refuse jobs that are longer than the site allows, or that would get the signal to stop before they start.

    Also refuse ``retries`` with ``detach=true``, and a campaign folder with characters that Slurm expands.
    """
    minutes, longest = values["cluster.timeout_min"], values["site.timeout_max_min"]
    if longest is not None and minutes > longest:
        raise UsageError(
            f"cluster.timeout_min={minutes}: site={values['site.name']} allows {longest} minutes",
            f"cluster.timeout_min={longest} or less; a job that needs more time is requeued and continues",
        )
    if values["cluster.signal_delay_s"] >= minutes * 60:
        raise UsageError(
            f"cluster.signal_delay_s={values['cluster.signal_delay_s']} with cluster.timeout_min={minutes} "
            "would tell a job to stop before it has started",
            f"cluster.signal_delay_s={minutes * 60 - 1} or less, or a longer cluster.timeout_min",
        )
    if values["detach"] and values["retries"]:
        raise UsageError(
            f"retries={values['retries']} with detach=true: no process would run that could try again",
            "leave out retries or detach; cluster.max_requeues=… lets Slurm try again",
        )
    _check_folder_name(values["campaign_dir"], os.getcwd())  # noqa: PTH109 - ten times as fast as Path.cwd()
