"""Rules about Slurm: the characters that a value may bring into a batch script, and the jobs that are possible.

A value is legal if a shell and sbatch read it as one plain word.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from campaign.errors import UsageError
from jobs.model.conduct import Flat, Point

HERE, ON_SLURM = ("debug", "local"), ("auto", "slurm")  # choices of the group

_LIST = (re.compile(r"[A-Za-z0-9_.,-]+"), "letters, digits and _ . , -")
_NODES = (re.compile(r"[A-Za-z0-9_.,\[\]-]+"), "node names like n[1-4],n7")
_REMARK = (re.compile(r"[A-Za-z0-9_.,:=/@+-]+"), "letters, digits and _ . , : = / @ + -")
_LICENSES = (re.compile(r"[A-Za-z0-9_.@:,/-]+"), "licences like lustre:1,matlab@server:2")
_WORDS = {
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
_ASKED = [name for name in _WORDS if name != "license"]  # of a job; a licence is of a storage
_MODULE = re.compile(r"[A-Za-z0-9_.+/][A-Za-z0-9_.+/-]*")
_OPTION = re.compile(r"[a-z][a-z-]*")
_IN_A_FILE_NAME = re.compile(r"[%\\'\"\r\n]")  # sbatch expands and unquotes these in names of files

# Options of sbatch that have a key of their own, and those that the campaign decides about.
_HAS_A_KEY = {name: f"cluster.{name}" for name in (*_ASKED, "exclusive")} | {
    "nodelist": "cluster.pool",
    "time": "cluster.timeout_min",
    "mem": "cluster.mem_gb",
    "cpus-per-task": "cluster.cpus_per_task",
    "gpus-per-node": "cluster.gpus_per_node",
}
_OURS = (
    "job-name", "array", "chdir", "output", "error", "open-mode", "signal", "requeue", "no-requeue", "wrap", "parsable",
    "wait", "nodes", "ntasks", "ntasks-per-node", "tasks-per-node", "oversubscribe", "clusters", "cluster-constraint",
    "test-only", "help", "usage", "version",
)  # fmt: skip
# sbatch takes any beginning of an option that fits no other one (getopt_long); this beginning is an option itself.
_NOT_SHORTENED = ("gpus",)


def check(values: Flat) -> None:
    """Refuse jobs that the site does not allow, and ``detach=true`` without a scheduler."""
    if values["cluster.name"] in ON_SLURM:
        _job_together(values)
    elif values["detach"]:
        name = values["cluster.name"]
        raise UsageError(
            f"detach=true with cluster={name}: there is no scheduler to leave the campaign with",
            "cluster=slurm, or leave it to your shell: nohup python -m campaign … &",
        )


def check_words(point: Point) -> None:
    """Refuse values that are no plain word in a batch script."""
    site, cluster = point["site"], point["cluster"]
    storages = {f"site.storages.{name}": each for name, each in site["storages"].items()}
    nodes: dict[str, Any] = {"site": site, "cluster": cluster, "storage": point["storage"], **storages}
    for path, node in nodes.items():
        for name in _WORDS.keys() & node.keys():
            _word(f"{path}.{name}", node[name], *_WORDS[name])
        for module in node.get("modules") or ():
            _word(f"{path}.modules: {module!r}", module, _MODULE, "names like cuda/12.2, without spaces")
        for line in node.get("prelude") or ():
            if not line.strip() or not line.isprintable():
                raise UsageError(f"{path}.prelude: {line!r} is no command", "give each command as one line of its own")
    for option, value in cluster.get("extra", {}).items():
        _extra(str(option), value)


@lru_cache
def _in_file_names(folder: str, current: str) -> None:
    """Refuse a campaign folder with characters that Slurm expands: the folder is part of the names of job outputs."""
    whole = str(Path(current, Path(folder).expanduser()))
    found = _IN_A_FILE_NAME.search(whole)
    if found:
        raise UsageError(
            f"campaign_dir={whole} has a {found.group()!r}, which Slurm would expand in names of files",
            "name a folder without % \\ and quotes: campaign_dir=…, or cluster=local",
        )


def _word(path: str, value: str | None, legal: re.Pattern[str], example: str) -> None:
    if value is not None and not legal.fullmatch(value):
        said = path if repr(value) in path else f"{path}={value!r}"
        raise UsageError(f"{said} cannot stand in a batch script", f"legal: {example}")


def _extra(option: str, value: Any) -> None:
    """Refuse an option that sbatch does not have or that the campaign itself sets, and a value that is not plain."""
    path = f"cluster.extra.{option}"
    if not _OPTION.fullmatch(option):
        written = option.replace("_", "-").lower()
        cure = (
            f"write {written}" if _OPTION.fullmatch(written) else "options are written as in sbatch --help: mail-type"
        )
        raise UsageError(f"{path} is no long option of sbatch", cure)
    for taken in (*_HAS_A_KEY, *_OURS):
        if option == taken or (taken.startswith(option) and option not in _NOT_SHORTENED):
            if taken in _HAS_A_KEY:
                raise UsageError(f"{path}: --{taken} has a key of its own", f"{_HAS_A_KEY[taken]}=…")
            raise UsageError(f"{path}: the campaign itself decides about --{taken}", f"leave out {option}")
    if isinstance(value, (dict, list)) or (isinstance(value, str) and not (value and value.isprintable())):
        raise UsageError(
            f"{path}={value!r} is no plain value",
            "give one line of text, a number, true (the option alone) or null (left out)",
        )


def _job_together(values: Flat) -> None:
    """Refuse jobs that are longer than the site allows, or that would get the signal to save before they begin."""
    minutes, longest = values["cluster.timeout_min"], values["site.timeout_max_min"]
    if longest is not None and minutes > longest:
        raise UsageError(
            f"cluster.timeout_min={minutes}: site={values['site.name']} allows {longest} minutes",
            f"cluster.timeout_min={longest} or less; a job that needs longer is begun again where it stopped",
        )
    if values["cluster.signal_delay_s"] >= minutes * 60:
        raise UsageError(
            f"cluster.signal_delay_s={values['cluster.signal_delay_s']} with cluster.timeout_min={minutes} "
            "tells a job to save before it has begun",
            f"cluster.signal_delay_s={minutes * 60 - 1} or less, or a longer cluster.timeout_min",
        )
    if values["detach"] and values["retries"]:
        raise UsageError(
            f"retries={values['retries']} with detach=true: no process is left to try again",
            "leave out one of them; max_requeues=… is Slurm's own",
        )
    _in_file_names(values["campaign_dir"], os.getcwd())  # noqa: PTH109 - ten times as fast
