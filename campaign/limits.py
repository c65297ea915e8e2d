"""What values a configuration may take, beyond their types."""

from __future__ import annotations

import dataclasses
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from campaign.cell import flat
from campaign.errors import UsageError, nearest
from campaign.explain import unknown_key
from campaign.schema import Campaign, Checks, Cluster, Folder, Micro, Storage, Synthetic
from jobs.run import BENCHMARKS

if TYPE_CHECKING:
    from collections.abc import Mapping

_NODES: dict[str, tuple[type, ...]] = {
    "benchmark": (Micro,),
    "dataset": (Synthetic, Folder),
    "storage": (Storage,),
    "cluster": (Cluster,),
    "checks": (Checks,),
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]{0,31}")  # stands in cell ids, file names and scripts
_NAMES = ("benchmark.name", "dataset.name", "storage.name", "cluster.name")
_PATHS = ("campaign_dir", "storage.root", "dataset.path")
_CLUSTERS = ("debug", "local")
_WEEK_S = 7 * 24 * 3600
_RANGES: dict[str, tuple[float, float]] = {
    "threads": (1, 1024),
    "batch_size": (1, 65_536),
    "prefetch": (0, 1024),
    "iterations": (1, 10**9),
    "seed": (0, 2**31 - 1),
    "runs": (1, 1000),
    "warmup_runs": (0, 999),
    "min_valid_runs": (1, 1000),
    "run_timeout_s": (1, _WEEK_S),
    "order_seed": (0, 2**31 - 1),
    "benchmark.image_size": (8, 4096),
    "benchmark.private_threads": (0, 1024),
    "dataset.files": (1, 10_000_000),
    "dataset.median_bytes": (1_000, 100_000_000),
    "dataset.sigma": (0, 2),
    "dataset.width": (16, 16_384),
    "dataset.height": (16, 16_384),
    "dataset.classes": (1, 100_000),
    "dataset.seed": (0, 2**31 - 1),
    "checks.resident_max": (0, 1),
    "checks.device_bytes_min": (0, 1),
    "checks.time_error_max": (0, 1),
    "checks.other_mb_per_s_max": (0, 1e6),
    "checks.other_cpu_max": (0, 1e4),
    "checks.spread_max": (0, 100),
}


def check(point: Mapping[str, Any]) -> None:
    """Refuse a composed configuration whose keys or values cannot be meant.

    Raises
    ------
    UsageError
        Naming the key, its value and what is legal.
    """
    _closed(point)
    values = dict(flat(point))
    for key, (least, most) in _RANGES.items():
        value = values.get(key)
        if value is not None and not least <= value <= most:
            raise UsageError(f"{key}={value} is out of range", f"legal: {least:g} to {most:g}")
    for key in _NAMES:
        if not _NAME.fullmatch(str(values[key])):
            raise UsageError(f"{key}={values[key]!r} is no name", "letters, digits and '_', at most 32")
    for key in _PATHS:
        text = values.get(key)
        if text is not None and (not text.strip() or not text.isprintable()):
            raise UsageError(f"{key}={text!r} is no path", "give a folder without line breaks")
    if values["benchmark.name"] not in BENCHMARKS:
        name = values["benchmark.name"]
        raise UsageError(f"benchmark.name={name} is no benchmark", nearest(name, BENCHMARKS))
    if values["cluster.name"] not in _CLUSTERS:
        name = values["cluster.name"]
        raise UsageError(f"cluster.name={name} is no cluster", nearest(name, _CLUSTERS))
    _together(values)


def _together(values: Mapping[str, Any]) -> None:
    """Refuse values that are legal alone and impossible together."""
    if values["warmup_runs"] >= values["runs"]:
        raise UsageError(
            f"runs={values['runs']} with warmup_runs={values['warmup_runs']} leaves no measured run",
            f"runs={values['warmup_runs'] + 1} or more",
        )
    files = values.get("dataset.files")
    if files is not None:
        if values["dataset.classes"] > files:
            raise UsageError(
                f"dataset.classes={values['dataset.classes']} with dataset.files={files} leaves classes empty",
                "at most as many classes as files",
            )
        enough_images(values["iterations"], values["batch_size"], files)
        _can_be_made(tuple(values[f"dataset.{field.name}"] for field in dataclasses.fields(Synthetic)[1:]))


@lru_cache
def _can_be_made(dataset: tuple[float, ...]) -> None:
    """Refuse images that no JPEG can be: too many bytes for their pixels, say; `dataset` in the schema's order."""
    from jobs.images import ImageSpec  # noqa: PLC0415 - numpy, only where there is a cell

    names = [field.name for field in dataclasses.fields(Synthetic)[1:]]
    try:
        ImageSpec(**dict(zip(names, dataset, strict=True)))  # type: ignore[arg-type] # checked by the schema
    except ValueError as error:
        raise UsageError(f"dataset: {error}", "see the keys of dataset=demo in `python -m campaign --help`") from error


def enough_images(iterations: int | None, batch_size: int, files: int) -> None:
    """Refuse more whole batches than the dataset has images for."""
    if iterations is not None and iterations * batch_size > files:
        raise UsageError(
            f"iterations={iterations} of batch_size={batch_size} need {iterations * batch_size} images, "
            f"the dataset has {files}",
            f"iterations={files // batch_size} or fewer, or iterations=null for each file once",
        )


def _closed(point: Mapping[str, Any]) -> None:
    """Refuse keys that ``+key=value`` added: nothing would read them."""
    known = {field.name for field in dataclasses.fields(Campaign)}
    for key in point:
        if key not in known:
            raise unknown_key(key, Campaign)
    for name in known:
        if name not in point:
            raise UsageError(f"{name} is missing", f"do not delete it; give it a value: {name}=…")
    for name, types in _NODES.items():
        node = point[name]
        if not isinstance(node, dict):
            raise UsageError(f"{name} is no choice of its group", f"see `python -m campaign --help` for {name}")
        fitting = max(types, key=lambda t: len(_names(t) & node.keys()))
        for key in node.keys() - _names(fitting):
            raise unknown_key(f"{name}.{key}", fitting)
        for key in _names(fitting) - node.keys():
            raise UsageError(f"{name}.{key} is missing", f"give it a value: {name}.{key}=…")


def _names(node: type) -> set[str]:
    return {field.name for field in dataclasses.fields(node)}
