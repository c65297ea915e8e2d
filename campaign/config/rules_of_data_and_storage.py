"""Refuse impossible data sets, staged copies, storages and checkpoint targets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from campaign.errors import UsageError, raise_if_refused
from jobs.benchmarks.registry import benchmarks, names_of
from jobs.errors import FolderError
from jobs.model.conduct import Flat
from jobs.objects.address import address_without_secrets, is_endpoint, is_prefix, is_region, storage_of
from jobs.system.files import resolve_links

STORAGES = ("checkpoint", "checkpoint.fast", "checkpoint.slow")  # keys of the storages that snapshots are saved to
_RANK = "{rank}"
_BUCKET = re.compile("[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
# Keys that only work with files: the value that an object store needs, and the cure for any other value.
_SETTINGS_OF_FILES = (
    ("storage.shared", True, "leave storage.shared out: every node sees the same object store"),
    ("nodes", 1, "nodes=1, because the bytes from a store's disk are counted for all clients together, not by rank"),
    ("staging", "none", "staging=none, because staging copies files"),
    ("profile.posix", "none", "profile.posix=none profile.every=null, because objects are read through sockets"),
    ("benchmark.stage", None, "leave benchmark.stage out, because it copies files"),
)


def check_storage(values: Flat) -> None:
    """Raise UsageError for a storage without a needed licence, or with impossible settings.

    A storage without a root can be planned: `campaign.storage.roots.missing_root` refuses to measure it.
    """
    name, is_object_store = values["storage.name"], "storage.endpoint" in values
    if values.get(f"site.storages.{name}.kind") not in (None, "s3" if is_object_store else "posix"):
        other = "site" if is_object_store else "s3"
        raise UsageError(f"the site's file gives another kind of {name}", f"storage={other} storage.name={name}")
    if is_object_store:
        if values["storage.kind"] != "s3":
            raise UsageError(
                f"storage.kind={values['storage.kind']} does not fit storage=s3", "storage=site, or ssd, …"
            )
        raise_if_refused(_object_store_refusals(values))
    elif values["storage.root"] is not None:
        _check_node_root(values["storage.root"], values["storage.node_root"])
    if values["storage.exclusive"] == "license" and values["storage.license"] is None:
        raise UsageError(
            f"storage.exclusive=license: storage={name} has no licence here",
            "set storage.license=… (`scontrol show licenses` lists the licences), or storage.exclusive=lock",
        )
    if values.get("storage.stripe_count") == 0:
        raise UsageError("storage.stripe_count=0 is the file system's own default", "write storage.stripe_count=null")


def _object_store_refusals(values: Flat) -> Iterator[tuple[str, str]]:
    """Yield an error message and a cure for each wrong setting of an object store."""
    for word, example in (("endpoint", "https://s3.example.org"), ("bucket", "NAME")):
        if values[f"storage.{word}"] is None:
            reason = f"storage={values['storage.name']} has no {word}"
            yield reason, f"set storage.{word}={example}, or choose a site=… whose file sets the {word}"
    if values["storage.endpoint"] is not None:
        yield from endpoint_refusals("storage.endpoint", values)
    if not _BUCKET.fullmatch(values["storage.bucket"] or "any"):
        yield f"storage.bucket={values['storage.bucket']!r} is no bucket", "use 3 to 63 of a-z, 0-9, '.', '-'"
    if not is_region(values["storage.region"]):
        yield f"storage.region={values['storage.region']!r} is no region", "storage.region=us-east-1, for example"
    prefix = values["storage.prefix"]
    if not is_prefix(prefix.strip("/")):
        yield f"storage.prefix={prefix!r} is no prefix of keys", "write words between slashes: tests/of-mine"
    if values["storage.engine"] == "threads" and values["storage.concurrency"] is not None:
        reason = (
            f"storage.concurrency={values['storage.concurrency']}: the engine threads has threads=… requests in flight"
        )
        yield reason, "storage.engine=async, or leave out storage.concurrency"
    yield from _file_setting_refusals(values)


def _file_setting_refusals(values: Flat) -> Iterator[tuple[str, str]]:
    """Yield an error message and a cure for each setting that only works with files."""
    if values["cache"] == "warm":
        yield (
            "cache=warm: a client can neither fill nor examine the memory of an object store's servers",
            "cache=cold, which is proved by the bytes from the servers' disk; or cache=as_is, which proves nothing",
        )
    if benchmarks()[values["benchmark.name"]].data == "hdf5" and values["reader"] != "offsets":
        reason = f"reader={values['reader']} with an object store: the HDF5 library reads only files"
        yield reason, "reader=offsets, which gets ranges of the objects"
    if values.get("benchmark.control") == "metadata":
        reason = "benchmark.control=metadata opens files, and objects are not opened"
        yield reason, "benchmark.control=none,no_io,no_compute"
    for word, only, hint in _SETTINGS_OF_FILES:
        if values.get(word, only) != only:
            yield f"{word}={values[word]} with an object store", hint


def endpoint_refusals(key: str, values: Flat) -> Iterator[tuple[str, str]]:
    """Yield an error message and a cure if an endpoint is no address, or contains a password.

    A password is refused, because records contain the endpoint.
    """
    if not is_endpoint(text := values[key]):
        yield (
            f"{key}={address_without_secrets(text)!r} is no address of an object store",
            "write only https://HOST or http://HOST:PORT; set the credentials in the environment",
        )


def _check_node_root(root: str, node_root: str | None) -> None:
    """Refuse a ``node_root`` that names the same folder for all ranks, and relative paths."""
    if node_root is not None and not (_RANK in node_root and node_root.startswith("/") and root.startswith("/")):
        raise UsageError(
            f"storage.node_root={node_root} with storage.root={root} is not a folder for each rank",
            f"write absolute paths, with {_RANK} where the folders differ: storage.node_root='/mnt/node{_RANK}/data'",
        )


def check_checkpoint_target(values: Flat) -> None:
    """Refuse a checkpoint target for a benchmark that saves nothing, and settings without effect."""
    name = values["checkpoint.name"]
    if (name == "none", name == "burst_buffer") != ("checkpoint.every" not in values, "checkpoint.streams" in values):
        raise UsageError(
            f"checkpoint.name={name} does not fit the other keys of checkpoint", f"write checkpoint={name}"
        )
    if name == "none":
        return
    if not benchmarks()[values["benchmark.name"]].saves:
        raise UsageError(
            f"checkpoint={name}: benchmark={values['benchmark.name']} trains nothing",
            f"benchmark={' or '.join(names_of('saves'))}, or leave out checkpoint",
        )
    for key in STORAGES:
        _check_bucket(key, values)
    if name == "burst_buffer":
        fast, slow = (values[f"checkpoint.{side}.root"] for side in ("fast", "slow"))
        if fast and slow and "://" not in slow and resolve_links(fast) == resolve_links(slow):
            raise UsageError(f"checkpoint.fast and checkpoint.slow are both in {fast}", "name two storages")
    if values["checkpoint.mode"] == "sync" and values["checkpoint.in_flight"] > 1:
        raise UsageError(
            f"checkpoint.in_flight={values['checkpoint.in_flight']} with checkpoint.mode=sync: sync makes no copies in"
            " memory",
            "set checkpoint.mode=async, or leave out checkpoint.in_flight",
        )


def _check_bucket(key: str, values: Flat) -> None:
    """Refuse a bucket in place of a folder, and settings that a bucket does not support."""
    root = str(values.get(f"{key}.root") or "")
    if "://" not in root:
        return
    if key != "checkpoint.slow":
        raise UsageError(
            f"{key} is a bucket, but TensorFlow writes files",
            "set checkpoint=burst_buffer, where checkpoint.fast is a folder and checkpoint.slow may be a bucket",
        )
    if values.get(endpoint_key := f"site.storages.{values[f'{key}.name']}.endpoint"):
        raise_if_refused(endpoint_refusals(endpoint_key, values))
    try:
        storage_of(root)
    except FolderError as error:
        raise UsageError(
            f"checkpoint.slow.root={address_without_secrets(root)}: {error.message}", error.hint
        ) from error


def _check_staging(rule: str, benchmark: str, node_root: str | None) -> None:
    """Refuse staged copies if the benchmark would not read the copies, or if each rank has its own root."""
    if "staging" not in benchmarks()[benchmark].settings:
        hint = "set benchmark.stage=FOLDER to copy its files" if benchmark == "climate" else "leave out staging"
        raise UsageError(f"staging={rule}: benchmark={benchmark} cannot read the copies of `stage apply`", hint)
    if node_root is not None:
        raise UsageError(f"staging={rule}: ranks read below storage.node_root, which has no copies", "staging=none")


def check_data(values: Flat) -> None:
    """Refuse a data set that cannot be generated or is too small, and staged copies that would not be read."""
    if values["staging"] != "none":
        _check_staging(values["staging"], values["benchmark.name"], values.get("storage.node_root"))
    _check_folder_data(values)
    if "dataset.seed" in values:
        parameters = {
            name: value for name, value in values.items() if name.startswith("dataset.") and name != "dataset.name"
        }
        files, classes = parameters.get("dataset.files", 1), parameters.get("dataset.classes", 1)
        if classes > files:
            raise UsageError(
                f"dataset.classes={classes} with dataset.files={files} leaves classes empty",
                "set at most as many classes as files",
            )
        files_made = _count_files(tuple((name.partition(".")[2], value) for name, value in parameters.items()))
        if benchmarks()[values["benchmark.name"]].data in ("hdf5", "files"):
            return
        check_enough_data(values, files_made)
        if "dataset.sigma" not in parameters:
            _check_images(values)


def check_enough_data(values: Flat, files: int) -> None:
    """Refuse more batches than the data set has images for, and snapshots later than the last step."""
    iterations, batch_size, nodes = values["iterations"], values["batch_size"], values.get("nodes", 1)
    if files < nodes:
        raise UsageError(f"nodes={nodes} share {files} files of the dataset", f"nodes={files} or fewer")
    files //= nodes
    if iterations is None and benchmarks()[values["benchmark.name"]].whole_batches and batch_size > files:
        raise UsageError(
            f"a training takes whole batches: batch_size={batch_size}, but the dataset has only {files} images",
            f"batch_size={files} or less",
        )
    if iterations is not None and iterations * batch_size > files:
        raise UsageError(
            f"iterations={iterations} of batch_size={batch_size} need {iterations * batch_size} images, "
            f"the dataset has {files}{' for each node' if nodes > 1 else ''}",
            f"iterations={files // batch_size} or fewer, or iterations=null to read each file once"
            if files >= batch_size
            else f"batch_size={files} or less",
        )
    every, steps = values.get("checkpoint.every"), max(1, files // batch_size) if iterations is None else iterations
    if every is not None and every > steps:
        raise UsageError(
            f"checkpoint.every={every} saves nothing in {steps} iterations", f"checkpoint.every={steps} or less"
        )


def _check_folder_data(values: Flat) -> None:
    """Refuse the user's HDF5 files for a benchmark of images, and images for a benchmark of HDF5 files."""
    data_set, data = values.get("dataset.hdf5"), benchmarks()[values["benchmark.name"]].data
    if data_set is not None and not (data_set.isprintable() and all(data_set.split("/"))):
        raise UsageError(
            f"dataset.hdf5={data_set!r} is no path of a data set", "dataset.hdf5=climate/data, for example"
        )
    if data_set is not None and data == "images":
        _check_images(values)
    if data_set is None and data == "hdf5" and "dataset.path" in values:
        name = values["benchmark.name"]
        raise UsageError(f"benchmark={name} reads HDF5 files", "name the data set in the files: dataset.hdf5=…")


def _check_images(values: Flat) -> None:
    """Refuse a benchmark that decodes images if the data set has no images."""
    decodes = (
        benchmarks()[values["benchmark.name"]].data == "images" and not benchmarks()[values["benchmark.name"]].any_name
    )
    if values.get("benchmark.preprocess", decodes):
        raise UsageError(
            f"dataset={values['dataset.name']} has no images to decode",
            "benchmark=micro benchmark.preprocess=false; or benchmark=malware, which reads any bytes as an image",
        )


@lru_cache
def _count_files(parameters: tuple[tuple[str, float], ...]) -> int:
    """Return the number of files of a data set.

    Raises UsageError for an impossible data set, such as JPEG files with too many bytes per pixel.
    """
    from jobs.data.specs import dataset_spec  # noqa: PLC0415 - imports numpy, which takes long

    try:
        return dataset_spec(dict(parameters)).files
    except ValueError as error:
        raise UsageError(f"dataset: {error}", "see `python -m campaign help dataset`") from error
