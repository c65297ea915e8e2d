"""What values a configuration may take, beyond their types."""

from __future__ import annotations

import dataclasses
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from campaign.cells.cell import flat
from campaign.config.closed import HERE, ON_SLURM, check_keys
from campaign.config.keys import baseline_limits, checkpoint_limits, runs, slurm
from campaign.config.schema import Synthetic
from campaign.errors import UsageError, nearest
from jobs.run import BENCHMARKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]{0,31}")  # stands in cell ids, file names and scripts
_NAMES = (
    *(f"{key}.name" for key in checkpoint_limits.STORAGES),
    "benchmark.name",
    "dataset.name",
    "storage.name",
    "accelerator.name",
    "cluster.name",
    "site.name",
)
_PATHS = ("campaign_dir", "storage.root", "dataset.path", *(f"{key}.root" for key in checkpoint_limits.STORAGES))
_WEEK_S = 7 * 24 * 3600
_YEAR_MIN = 365 * 24 * 60
# lfs-setstripe(1): at most 2000 OSTs, -1 for all; a stripe of less than 4 GiB.
_STRIPES: dict[str, tuple[float, float]] = {"stripe_count": (-1, 2000), "stripe_size_mib": (1, 4095)}
_RANGES: dict[str, tuple[float, float]] = {
    "threads": (1, 1024),
    "batch_size": (1, 65_536),
    "prefetch": (0, 1024),
    "iterations": (1, 10**9),
    "seed": (0, 2**31 - 1),
    "run_timeout_s": (1, _WEEK_S),
    "order_seed": (0, 2**31 - 1),
    "benchmark.image_size": (8, 4096),
    "benchmark.private_threads": (0, 1024),
    "benchmark.width": (0.01, 4),
    "benchmark.learning_rate": (0, 10),
    "benchmark.dropout": (0, 0.99),
    "accelerator.step_s": (0, 3600),
    "trace.interval_s": (0.1, 3600),
    "trace.tail_s": (0, 3600),
    "dataset.files": (1, 10_000_000),
    "dataset.median_bytes": (1_000, 100_000_000),
    "dataset.sigma": (0, 2),
    "dataset.width": (16, 16_384),
    "dataset.height": (16, 16_384),
    "dataset.classes": (1, 100_000),
    "dataset.seed": (0, 2**31 - 1),
    "site.gpus_per_node": (0, 64),
    "site.timeout_max_min": (1, _YEAR_MIN),
    "site.spread_max": (0, 100),
    "site.other_cpu_max": (0, 1e4),
    **{f"storage.{key}": limits for key, limits in _STRIPES.items()},
    **runs.RANGES,
    **checkpoint_limits.RANGES,
    **baseline_limits.RANGES,
    "cluster.timeout_min": (1, _YEAR_MIN),
    "cluster.mem_gb": (0.001, 100_000),
    "cluster.cpus_per_task": (1, 1024),
    "cluster.gpus_per_node": (0, 64),
    "cluster.cells_per_job": (1, 100_000),
    "cluster.parallel": (1, 100_000),
    "cluster.max_requeues": (0, 1000),
    "cluster.signal_delay_s": (1, 65_535),  # sbatch(1), --signal
    "cluster.save_patience_s": (0, _WEEK_S),
    "checks.resident_max": (0, 1),
    "checks.device_bytes_min": (0, 1),
    "checks.time_error_max": (0, 1),
    "checks.other_mb_per_s_max": (0, 1e6),
    "checks.other_cpu_max": (0, 1e4),
    "checks.spread_max": (0, 100),
    "checks.peak_max": (0, 1000),
}


_CHOICES = (
    ("benchmark.name", BENCHMARKS),
    ("cluster.name", (*HERE, *ON_SLURM)),
    ("accelerator.name", ("auto", "cpu", "gpu", "emulated")),
)


def check(point: Mapping[str, Any]) -> None:
    """Refuse a composed configuration whose keys or values cannot be meant.

    Raises
    ------
    UsageError
        Naming the key, its value and what is legal.
    """
    check_keys(point)
    values = dict(flat(point))
    of_site = {f"site.storages.{name}": name for name in point["site"]["storages"]}
    _numbers(values, _RANGES | {f"{path}.{key}": limits for path in of_site for key, limits in _STRIPES.items()})
    _texts(
        values,
        {**{key: values[key] for key in _NAMES if key in values}, **of_site},
        (*_PATHS, *(f"{path}.root" for path in of_site)),
    )
    for key, legal in _CHOICES:
        if values[key] not in legal:
            raise UsageError(f"{key}={values[key]} is no {key.partition('.')[0]}", nearest(values[key], legal))
    slurm.check(point)
    _together(values)


def _numbers(values: Mapping[str, Any], ranges: Mapping[str, tuple[float, float]]) -> None:
    for key, (least, most) in ranges.items():
        value = values.get(key)
        if value is not None and not least <= value <= most:
            raise UsageError(f"{key}={value} is out of range", f"legal: {least:g} to {most:g}")


def _texts(values: Mapping[str, Any], names: Mapping[str, Any], paths: Iterable[str]) -> None:
    for key, name in names.items():
        if not _NAME.fullmatch(str(name)):
            raise UsageError(f"{key}={name!r} is no name", "letters, digits and '_', at most 32")
    for key in paths:
        text = values.get(key)
        if text is not None and (not text.strip() or not text.isprintable()):
            raise UsageError(f"{key}={text!r} is no path", "name a folder, without line breaks")


def _together(values: Mapping[str, Any]) -> None:
    """Refuse values that are legal alone and impossible together."""
    runs.check(values)
    baseline_limits.check(values)
    checkpoint_limits.check(values)
    _data_together(values)
    _accelerator_together(values)
    _storage_together(values)
    if values["cluster.name"] in ON_SLURM:
        _slurm_together(values)
    elif values["detach"]:
        name = values["cluster.name"]
        raise UsageError(
            f"detach=true with cluster={name}: there is no scheduler to leave the campaign with",
            "cluster=slurm, or leave it to your shell: nohup python -m campaign … &",
        )


def _data_together(values: Mapping[str, Any]) -> None:
    """Refuse a synthetic dataset that cannot be made, or has too few images."""
    files = values.get("dataset.files")
    if files is not None:
        if values["dataset.classes"] > files:
            raise UsageError(
                f"dataset.classes={values['dataset.classes']} with dataset.files={files} leaves classes empty",
                "at most as many classes as files",
            )
        enough_data(values, files)
        _can_be_made(tuple(values[f"dataset.{field.name}"] for field in dataclasses.fields(Synthetic)[1:]))


def _accelerator_together(values: Mapping[str, Any]) -> None:
    """Refuse an accelerator where nothing computes, and a step of a length that nobody keeps."""
    name, step_s = values["accelerator.name"], values["accelerator.step_s"]
    if values["benchmark.name"] != "alexnet" and name != "auto":
        raise UsageError(
            f"accelerator={name}: benchmark={values['benchmark.name']} computes nothing",
            "benchmark=alexnet, or leave accelerator away",
        )
    if (step_s is None) == (name == "emulated"):
        raise UsageError(
            f"accelerator.step_s={step_s} with accelerator={name}",
            "it is the seconds of accelerator=emulated",
        )


def _storage_together(values: Mapping[str, Any]) -> None:
    """Refuse a storage that is nowhere, or is kept free by a licence that has no name."""
    name, site = values["storage.name"], values["site.name"]
    if values["storage.root"] is None:
        raise UsageError(
            f"storage={name} has no root here",
            f"storage.root=…, or site=… with a file that gives storages.{name}.root (site={site} does not)",
        )
    if values["storage.exclusive"] == "license" and values["storage.license"] is None:
        raise UsageError(
            f"storage.exclusive=license: storage={name} has no licence here",
            "storage.license=… (`scontrol show licenses` lists what the site has), or storage.exclusive=lock",
        )
    if values["storage.stripe_count"] == 0:
        raise UsageError(
            "storage.stripe_count=0 is the file system's own default", "say so with storage.stripe_count=null"
        )


def _slurm_together(values: Mapping[str, Any]) -> None:
    """Refuse jobs that the site would not take, or that could not be told of their end."""
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
    slurm.in_file_names(values["campaign_dir"])


@lru_cache
def _can_be_made(dataset: tuple[float, ...]) -> None:
    """Refuse images that no JPEG can be: too many bytes for their pixels, say; `dataset` in the schema's order."""
    from jobs.data.images import ImageSpec  # noqa: PLC0415 - numpy, only where there is a cell

    names = [field.name for field in dataclasses.fields(Synthetic)[1:]]
    try:
        ImageSpec(**dict(zip(names, dataset, strict=True)))  # type: ignore[arg-type] # checked by the schema
    except ValueError as error:
        raise UsageError(f"dataset: {error}", "see the keys of dataset=demo in `python -m campaign --help`") from error


def enough_data(values: Mapping[str, Any], files: int) -> None:
    """Refuse more whole batches than the dataset has images for, and snapshots that none of them would come to.

    Parameters
    ----------
    values
        The settings, flat.
    """
    iterations, batch_size = values["iterations"], values["batch_size"]
    if iterations is None and values["benchmark.name"] == "alexnet" and batch_size > files:
        raise UsageError(
            f"a training takes whole batches: batch_size={batch_size}, and the dataset has {files} images",
            f"batch_size={files} or less",
        )
    if iterations is not None and iterations * batch_size > files:
        raise UsageError(
            f"iterations={iterations} of batch_size={batch_size} need {iterations * batch_size} images, "
            f"the dataset has {files}",
            f"iterations={files // batch_size} or fewer, or iterations=null for each file once"
            if files >= batch_size
            else f"batch_size={files} or less",
        )
    checkpoint_limits.something_to_save(values.get("checkpoint.every"), iterations, batch_size, files)
