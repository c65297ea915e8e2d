"""Rules about data sets, and about copies of their files."""

from __future__ import annotations

from functools import lru_cache

from campaign.errors import UsageError
from jobs.benchmarks.registry import benchmarks
from jobs.model.conduct import Flat


def _can_be_staged(rule: str, benchmark: str, node_root: str | None) -> None:
    if "staging" not in benchmarks()[benchmark].settings:
        hint = "benchmark.stage=FOLDER copies its files" if benchmark == "climate" else "leave out staging"
        raise UsageError(f"staging={rule}: benchmark={benchmark} reads no copies that stage apply made", hint)
    if node_root is not None:
        raise UsageError(f"staging={rule}: ranks read below storage.node_root, which has no copies", "staging=none")


def check(values: Flat) -> None:
    """Refuse a dataset that cannot be generated or is too small, and copies for a benchmark that reads none."""
    if values["staging"] != "none":
        _can_be_staged(values["staging"], values["benchmark.name"], values.get("storage.node_root"))
    _of_folder(values)
    if "dataset.seed" in values:
        made = {name: value for name, value in values.items() if name.startswith("dataset.") and name != "dataset.name"}
        files, classes = made.get("dataset.files", 1), made.get("dataset.classes", 1)
        if classes > files:
            raise UsageError(
                f"dataset.classes={classes} with dataset.files={files} leaves classes empty",
                "at most as many classes as files",
            )
        files_made = _can_be_made(tuple((name.partition(".")[2], value) for name, value in made.items()))
        if benchmarks()[values["benchmark.name"]].data in ("hdf5", "files"):
            return
        enough_data(values, files_made)
        if "dataset.sigma" not in made:
            _no_images(values)


def enough_data(values: Flat, files: int) -> None:
    """Refuse more batches than the dataset has images for, and snapshots later than the last step."""
    iterations, batch_size, nodes = values["iterations"], values["batch_size"], values.get("nodes", 1)
    if files < nodes:
        raise UsageError(f"nodes={nodes} share {files} files of the dataset", f"nodes={files} or fewer")
    files //= nodes
    if iterations is None and benchmarks()[values["benchmark.name"]].whole_batches and batch_size > files:
        raise UsageError(
            f"a training takes whole batches: batch_size={batch_size}, and the dataset has {files} images",
            f"batch_size={files} or less",
        )
    if iterations is not None and iterations * batch_size > files:
        raise UsageError(
            f"iterations={iterations} of batch_size={batch_size} need {iterations * batch_size} images, "
            f"the dataset has {files}{' for each node' if nodes > 1 else ''}",
            f"iterations={files // batch_size} or fewer, or iterations=null for each file once"
            if files >= batch_size
            else f"batch_size={files} or less",
        )
    every, steps = values.get("checkpoint.every"), max(1, files // batch_size) if iterations is None else iterations
    if every is not None and every > steps:
        raise UsageError(
            f"checkpoint.every={every} saves nothing in {steps} iterations", f"checkpoint.every={steps} or less"
        )


def _of_folder(values: Flat) -> None:
    """Refuse the user's HDF5 files for a benchmark of images, and images for a benchmark of HDF5 files."""
    named, data = values.get("dataset.hdf5"), benchmarks()[values["benchmark.name"]].data
    if named is not None and not (named.isprintable() and all(named.split("/"))):
        raise UsageError(f"dataset.hdf5={named!r} is no path of a data set", "dataset.hdf5=climate/data, say")
    if named is not None and data == "images":
        _no_images(values)
    if named is None and data == "hdf5" and "dataset.path" in values:
        raise UsageError(f"benchmark={values['benchmark.name']} reads HDF5", "dataset.hdf5=NAME of the data set")


def _no_images(values: Flat) -> None:
    decodes = (
        benchmarks()[values["benchmark.name"]].data == "images" and not benchmarks()[values["benchmark.name"]].any_name
    )
    if values.get("benchmark.preprocess", decodes):
        raise UsageError(
            f"dataset={values['dataset.name']} has no images to decode",
            "benchmark=micro benchmark.preprocess=false, or benchmark=malware, which takes any bytes for an image",
        )


@lru_cache
def _can_be_made(parameters: tuple[tuple[str, float], ...]) -> int:
    """Return the number of files of a dataset; refuse one that cannot exist, as JPEGs with too many bytes per pixel."""
    from jobs.data.specs import spec_of  # noqa: PLC0415 - numpy, only where there is a cell

    try:
        return spec_of(dict(parameters)).files
    except ValueError as error:
        raise UsageError(f"dataset: {error}", "see `python -m campaign help dataset`") from error
