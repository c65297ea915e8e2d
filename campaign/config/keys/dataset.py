"""The group ``dataset``: its keys and what can be meant by them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from omegaconf import MISSING

from campaign.config.keys import checkpoint
from campaign.errors import UsageError
from jobs.benchmarks.registry import benchmarks

if TYPE_CHECKING:
    from collections.abc import Mapping

RANGES: dict[str, tuple[float, float]] = {
    "dataset.files": (1, 10_000_000),
    "dataset.median_bytes": (1_000, 100_000_000),
    "dataset.sigma": (0, 2),
    "dataset.width": (16, 16_384),
    "dataset.height": (16, 16_384),
    "dataset.classes": (1, 100_000),
    "dataset.seed": (0, 2**31 - 1),
}


@dataclass
class Synthetic:
    """Group ``dataset``: images made from a seed."""

    name: str = MISSING
    files: int = MISSING
    median_bytes: int = MISSING
    sigma: float = MISSING
    width: int = MISSING
    height: int = MISSING
    classes: int = MISSING
    seed: int = MISSING


@dataclass
class Folder:
    """Group ``dataset``: the user's own images."""

    name: str = MISSING
    path: str = MISSING


def check(values: Mapping[str, Any]) -> None:
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


def enough_data(values: Mapping[str, Any], files: int) -> None:
    """Refuse more whole batches than the dataset has images for, and snapshots that none of them would come to."""
    iterations, batch_size = values["iterations"], values["batch_size"]
    if iterations is None and benchmarks()[values["benchmark.name"]].whole_batches and batch_size > files:
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
    checkpoint.something_to_save(values.get("checkpoint.every"), iterations, batch_size, files)


@lru_cache
def _can_be_made(dataset: tuple[float, ...]) -> None:
    """Refuse images that no JPEG can be: too many bytes for their pixels, say; `dataset` in the schema's order."""
    from jobs.data.images import ImageSpec  # noqa: PLC0415 - numpy, only where there is a cell

    names = [field.name for field in dataclasses.fields(Synthetic)[1:]]
    try:
        ImageSpec(**dict(zip(names, dataset, strict=True)))  # type: ignore[arg-type] # checked by the schema
    except ValueError as error:
        raise UsageError(f"dataset: {error}", "see the keys of dataset=demo in `python -m campaign --help`") from error
