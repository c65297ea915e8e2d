"""The manifest of a dataset: written by this program or made by a scan of a user's folder, and checked later."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

from jobs.data.readers import Part, h5py_parts
from jobs.errors import DatasetError
from jobs.model import reading
from jobs.system import files, untrusted

SCHEMA = 1
MOST_BYTES = 1 << 31  # 10,000,000 files with names of 200 characters
MANIFEST_NAME = "manifest.json"
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
HDF5_SUFFIXES = (".h5", ".hdf5", ".nc")
ANY_SUFFIX = ("",)
SUFFIXES_OF_OURS = (*IMAGE_SUFFIXES, ".bin", ".h5")
_QUANTILES = {"min": 0.0, "p10": 0.1, "p25": 0.25, "median": 0.5, "p75": 0.75, "p90": 0.9, "max": 1.0}
_LIST_BYTES = 1 << 31
_NAMED_FILES = 3  # number of files that an error names


class ImageFile(NamedTuple):
    """One image: its path relative to the dataset, its size in bytes, and the number of its class."""

    name: str
    size: int
    label: int


class _Document(TypedDict):
    kind: str
    parameters: dict[str, Any]
    generator: dict[str, Any] | None
    files: list[tuple[str, int, int]]
    classes: list[str]
    checksum: str
    objects: NotRequired[list[tuple[str | None, str | None]] | None]


@dataclass(frozen=True)
class Manifest:
    """The manifest of a dataset: its files with sizes and classes, and the origin of their bytes."""

    kind: Literal["synthetic", "folder"]  # `synthetic`: made by this program; `folder`: the user's own files
    # Parameters that determine the bytes of a synthetic dataset; the data set to read in a folder of HDF5 files.
    parameters: Mapping[str, Any]
    # Versions that determine its bytes (of the generator, numpy, Pillow); None for a folder.
    generator: Mapping[str, Any] | None
    files: tuple[ImageFile, ...]  # in the order of names (folder) or of numbers (synthetic)
    classes: tuple[str, ...]  # names, in the order of the labels
    # For objects (S3): ETag and, if this program made it, SHA-256 in hexadecimal, per file; else None.
    objects: tuple[tuple[str | None, str | None], ...] | None = None
    schema: int = SCHEMA

    @property
    def total_bytes(self) -> int:
        """Return the sum of the file sizes."""
        return sum(file.size for file in self.files)

    @property
    def quantiles(self) -> dict[str, float]:
        """Return quantiles of the file sizes in bytes, by name of the quantile."""
        sizes = sorted(file.size for file in self.files)
        return {name: _quantile(sizes, share) for name, share in _QUANTILES.items()}

    @property
    def checksum(self) -> str:
        """Return a checksum over names and sizes of the files, independent of their order."""
        lines = sorted(f"{file.name}\t{file.size}\n" for file in self.files)
        return "sha256:" + hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()

    @property
    def summary(self) -> dict[str, Any]:
        """Return the manifest without the list of files, for the record of a measurement."""
        return {
            "schema": self.schema,
            "kind": self.kind,
            "parameters": dict(self.parameters),
            "generator": None if self.generator is None else dict(self.generator),
            "file_count": len(self.files),
            "total_bytes": self.total_bytes,
            "size_quantiles_bytes": self.quantiles,
            "checksum": self.checksum,
        }

    def to_json(self) -> str:
        """Return the text of `manifest.json`."""
        objects = {} if self.objects is None else {"objects": self.objects}
        return json.dumps({**self.summary, "classes": self.classes, "files": self.files, **objects}) + "\n"


def _quantile(ordered: list[int], share: float) -> float:
    """Return a quantile, interpolated linearly; numpy would cost every command line its import."""
    position = share * (len(ordered) - 1)
    lower = int(position)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (position - lower) * (ordered[upper] - ordered[lower])


def load_manifest(folder: Path) -> Manifest:
    """Return the manifest of a dataset of this program; raise DatasetError if it is missing, damaged or newer."""
    path = folder / MANIFEST_NAME
    try:
        return parse_manifest(files.read_file(path, MOST_BYTES), str(path))
    except FileNotFoundError as error:
        message = f"no dataset in {folder}: {MANIFEST_NAME} is missing"
        raise DatasetError(message, "make the dataset first; an interrupted one is resumed") from error
    except OSError as error:
        message = f"cannot read {path}: {error.strerror}"
        raise DatasetError(message, f"make {path} a file that you may read") from error


def parse_manifest(data: bytes, path: str) -> Manifest:
    """Return the manifest whose JSON is `data`; raise DatasetError if it is damaged or newer."""
    try:
        return _manifest_of_document(reading.check_value(untrusted.json_value(data), _Document, SCHEMA))
    except (ValueError, KeyError, TypeError) as error:
        message = f"{path} is damaged: {error}"
        raise DatasetError(message, f"`rm {path}` and give the same command again; correct files stay") from error
    except reading.NewerFileError as error:
        message = f"{path} has {error}, this program knows {SCHEMA}"
        raise DatasetError(message, "update this program, or make the dataset in another folder") from error


def _manifest_of_document(document: Mapping[str, Any]) -> Manifest:
    """Return the manifest of a JSON document; raise ValueError if its lists contradict its checksum or each other."""
    if invalid := [name for name, *_ in document["files"] if not files.is_possible_name_below(name)]:
        raise ValueError(f"{invalid[0]!r} is no name of a file below it")
    if (objects := document.get("objects")) is not None and len(objects) != len(document["files"]):
        raise ValueError("its lists of files and objects differ in length")
    manifest = Manifest(
        kind=document["kind"],
        parameters=document["parameters"],
        generator=document["generator"],
        files=tuple(ImageFile(*file) for file in document["files"]),
        classes=tuple(document["classes"]),
        objects=None if objects is None else tuple((etag, digest) for etag, digest in objects),
    )
    if manifest.checksum != document["checksum"]:
        raise ValueError("its checksum is not that of its list of files")
    return manifest


def manifest_root(path: Path) -> Path:
    """Return the folder to which the file names of a data set are relative; for a single file its folder."""
    return path.parent if path.is_file() else path


def scan_folder(
    folder: Path, hdf5: str | None = None, *, any_kind: bool = False, listed: Path | None = None
) -> Manifest:
    """Return the manifest of a user's own JPEG and PNG files; each sub-folder is a class; nothing is written.

    With `hdf5`, the name of a data set, it lists HDF5 files instead, and looks into the first one. With `any_kind` it
    lists every file except a manifest, or only `folder` itself if that is a file, or only the files that the file
    `listed` names, one per line. Files at the top have the class `.`. Names that begin with a dot are skipped; links
    are followed. An unreadable file is listed, too: the benchmark counts it.

    Raises DatasetError if the folder is missing, cannot be read completely or has no images.
    """
    parameters: dict[str, Any] = {"any_kind": True} if any_kind else {} if hdf5 is None else {"hdf5": hdf5}
    endings = file_suffixes(parameters)
    if any_kind and folder.is_file():
        parameters["file"], sizes = folder.name, {folder.name: folder.stat().st_size}
        folder = folder.parent
    else:
        sizes = _sizes_listed(folder, listed) if listed else _sizes(folder, endings)
    if not sizes or (any_kind and not sum(sizes.values())):
        what = "files with content" if any_kind else "images" if hdf5 is None else "HDF5 files"
        message = f"no {what} in {folder}"
        kinds = ", ".join(endings) or "any"
        raise DatasetError(message, f"name a folder that has {kinds} files or sub-folders of them")
    if hdf5 is not None:
        h5py_parts.parts_bytes(folder / min(sizes), [Part(hdf5)])
    return manifest_of_own_files(parameters, sizes)


def manifest_of_own_files(
    parameters: Mapping[str, Any], sizes: Mapping[str, int], etags: Mapping[str, str | None] | None = None
) -> Manifest:
    """Return the manifest of a user's own files (sizes in bytes, by name) or objects (with `etags`, by name)."""
    names = sorted(sizes)
    folders = {name: str(Path(name).parent) for name in names}
    classes = tuple(sorted(set(folders.values())))
    labels = {name: label for label, name in enumerate(classes)}
    return Manifest(
        kind="folder",
        parameters=parameters,
        generator=None,
        files=tuple(ImageFile(name, sizes[name], labels[folders[name]]) for name in names),
        classes=classes,
        objects=None if etags is None else tuple((etags[name], None) for name in names),
    )


def verify_files(folder: Path, manifest: Manifest) -> None:
    """Raise DatasetError if names or sizes of images differ from the manifest; other files are ignored."""
    own = manifest.kind == "folder"
    sizes = _sizes(folder, file_suffixes(manifest.parameters)) if own else _sizes_of_ours(folder)
    if complaint := manifest_difference(manifest, sizes):
        added = sizes.keys() - {file.name for file in manifest.files}
        raise DatasetError(f"{folder} {complaint}", _cure(folder, manifest, repairable=not added))


def manifest_difference(manifest: Manifest, sizes: Mapping[str, int], changed: Sequence[str] = ()) -> str:
    """Return the differences between a manifest and files (sizes in bytes, by name) as text; empty if there are none.

    `changed`: names of files whose content is known to differ.
    """
    expected = {file.name: file.size for file in manifest.files}
    complaints = {
        "missing": [name for name in expected if name not in sizes],
        "of the wrong size": [name for name, size in expected.items() if sizes.get(name, size) != size],
        "with other bytes": changed,
        "not in the manifest": [name for name in sizes if name not in expected],
    }
    summary = "; ".join(f"{len(names)} {fault} ({_shorten(names)})" for fault, names in complaints.items() if names)
    return f"does not match its manifest of {len(expected)} files: {summary}" if summary else ""


def _shorten(names: Sequence[str]) -> str:
    return ", ".join(sorted(names)[:_NAMED_FILES]) + (", …" if len(names) > _NAMED_FILES else "")


def _cure(folder: Path, manifest: Manifest, *, repairable: bool) -> str:
    """Return the cure for a dataset that does not match its manifest."""
    if manifest.kind == "folder":
        return "leave the folder alone while a campaign uses it; start the campaign again to list its files again"
    remake = f"`rm {folder / MANIFEST_NAME}` and give the same command again: only files that differ are written"
    return remake if repairable else f"move files that are not part of the dataset out of {folder}, or {remake}"


def _sizes_of_ours(folder: Path) -> dict[str, int]:
    """Return the sizes of a dataset made by this program, in bytes by name; links are not followed."""
    _require_folder(folder)
    try:
        statuses = files.folder_tree(folder)
    except OSError as error:
        message = f"cannot read {error.filename}: {error.strerror}"
        raise DatasetError(message, f"`chmod -R u+rX {folder}`, or name another place: storage.root=…") from error
    return {
        name: status.st_size
        for name, status in statuses.items()
        if name.lower().endswith(SUFFIXES_OF_OURS) and "/." not in f"/{name}" and stat.S_ISREG(status.st_mode)
    }


def _require_folder(folder: Path) -> None:
    if not folder.is_dir():
        fault = "is no folder" if folder.exists() else "does not exist"
        message = f"{folder} {fault}"
        raise DatasetError(message, "name an existing folder or file; paths are relative to the current folder")


def file_suffixes(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the suffixes of the files of a user's own folder, from the parameters of its manifest."""
    return ANY_SUFFIX if "any_kind" in parameters else HDF5_SUFFIXES if "hdf5" in parameters else IMAGE_SUFFIXES


def _sizes(folder: Path, suffixes: tuple[str, ...]) -> dict[str, int]:
    """Return the sizes in bytes of the files below a folder with one of these suffixes, by relative name."""
    _require_folder(folder)
    try:
        files_below = [
            (path, status) for path, status in untrusted.files_below(folder) if path.name.lower().endswith(suffixes)
        ]
    except untrusted.UntrustedError as error:
        raise DatasetError(f"{folder} cannot be a dataset: {error}", "name a folder of ordinary files") from error
    except OSError as error:
        message = f"cannot read the folder {error.filename}: {error.strerror}"
        raise DatasetError(message, f"`chmod u+rx {error.filename}`, or move it out of the dataset") from error
    sizes = {str(path.relative_to(folder)): _size(path, status) for path, status in files_below}
    return {name: size for name, size in sizes.items() if name != MANIFEST_NAME}


def _sizes_listed(folder: Path, listed: Path) -> dict[str, int]:
    """Return the sizes in bytes of the files that a list names, by name."""
    _require_folder(folder)
    try:
        names = untrusted.read_bounded(listed, _LIST_BYTES).decode(errors="surrogateescape").splitlines()
        if invalid := [name for name in names if not files.is_possible_name_below(name)]:
            raise DatasetError(
                f"{listed} names {invalid[0]!r}, which is no file below {folder}", "names relative to dataset.path"
            )
        return {name: _size(folder / name, (folder / name).stat()) for name in names}
    except (OSError, untrusted.UntrustedError) as error:
        raise DatasetError(
            f"{listed} does not list files: {error}", "one name per line, relative to dataset.path"
        ) from error


def _size(path: Path, status: os.stat_result) -> int:
    """Return the size of a file in bytes; 0 for a broken link. Raise DatasetError for a pipe, a socket or a device."""
    if stat.S_ISLNK(status.st_mode):
        return 0
    if not stat.S_ISREG(status.st_mode):
        message = f"{path} has a name like a file of the dataset, but is a pipe, a socket or a device"
        raise DatasetError(message, "move it out of the dataset")
    return status.st_size
