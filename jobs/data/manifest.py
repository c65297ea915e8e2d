"""Read, write and check the manifest of a dataset. The manifest of a user's own folder is made by a scan."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

from jobs.data.readers import h5py_parts
from jobs.errors import DatasetError
from jobs.model import reading
from jobs.system import files, untrusted

SCHEMA = 1
MOST_BYTES = 1 << 31  # enough for 10,000,000 files with names of 200 characters
MANIFEST_NAME = "manifest.json"
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
HDF5_SUFFIXES = (".h5", ".hdf5", ".nc")
ANY_SUFFIX = ("",)
SUFFIXES_OF_OURS = (*IMAGE_SUFFIXES, ".bin", ".h5")
_QUANTILES = {"min": 0.0, "p10": 0.1, "p25": 0.25, "median": 0.5, "p75": 0.75, "p90": 0.9, "max": 1.0}
_LIST_BYTES = 1 << 31
_NAMED_KINDS = 8  # number of kinds of files that a record names
_NAMED_FILES = 3  # number of files that an error names


class DatasetFile(NamedTuple):
    """A file of a dataset: its path relative to the dataset, its size in bytes, and the number of its class."""

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
    """The manifest of a dataset: the files with their sizes and classes, and the origin of the files."""

    kind: Literal["synthetic", "folder"]  # `synthetic`: made by this program; `folder`: the user's own files
    # For a synthetic dataset, the parameters that determine the bytes of the files. For a folder, the parameters of the
    # scan, such as the name of the HDF5 data set.
    parameters: Mapping[str, Any]
    # Versions of the generator and of the libraries, which determine the bytes of a synthetic dataset. None for a
    # folder.
    generator: Mapping[str, Any] | None
    files: tuple[DatasetFile, ...]  # sorted by name (folder) or by number (synthetic)
    classes: tuple[str, ...]  # names of the classes; the number of a class is an index into this tuple
    # For objects (S3), the ETag of each object, and the SHA-256 in hexadecimal if this program made the object. None
    # for files.
    objects: tuple[tuple[str | None, str | None], ...] | None = None
    # For a user's own files, what a scan found and left out: the number of files of each other kind, by suffix.
    left_out: Mapping[str, int] = field(default_factory=dict)
    data_set: Mapping[str, float] = field(default_factory=dict)  # of HDF5 files: `h5py_parts.rows_of` the first file
    schema: int = SCHEMA

    @property
    def total_bytes(self) -> int:
        """Return the sum of the file sizes."""
        return sum(file.size for file in self.files)

    @property
    def quantiles(self) -> dict[str, float]:
        """Return quantiles of the file sizes in bytes, by the name of the quantile, such as `median`."""
        sizes = sorted(file.size for file in self.files)
        return {name: _quantile(sizes, share) for name, share in _QUANTILES.items()}

    @property
    def checksum(self) -> str:
        """Return a checksum of the names and sizes of all files, which does not depend on the order of the files."""
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
    """Return a quantile of sorted numbers by linear interpolation, without numpy, whose import is slow."""
    position = share * (len(ordered) - 1)
    lower = int(position)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (position - lower) * (ordered[upper] - ordered[lower])


def load_manifest(folder: Path) -> Manifest:
    """Return the manifest of a dataset that this program made.

    Raises DatasetError if the manifest is missing, damaged, or written by a newer version of this program.
    """
    path = folder / MANIFEST_NAME
    try:
        return parse_manifest(files.read_file(path, MOST_BYTES), str(path))
    except FileNotFoundError as error:
        message = f"no dataset in {folder}: {MANIFEST_NAME} is missing"
        raise DatasetError(message, "make the dataset first; an incomplete dataset is completed") from error
    except OSError as error:
        message = f"cannot read {path}: {error.strerror}"
        raise DatasetError(message, f"make {path} a file that you may read") from error


def parse_manifest(data: bytes, path: str) -> Manifest:
    """Return the manifest whose JSON text is `data`; `path` is its name in errors.

    Raises DatasetError if the manifest is damaged, or written by a newer version of this program.
    """
    try:
        return _manifest_of_document(reading.check_value(untrusted.json_value(data), _Document, SCHEMA))
    except (ValueError, KeyError, TypeError) as error:
        message = f"{path} is damaged: {error}"
        raise DatasetError(message, f"`rm {path}` and give the same command again; correct files stay") from error
    except reading.NewerFileError as error:
        message = f"{path} has {error}, but this program can read only schema {SCHEMA}"
        raise DatasetError(message, "update this program, or make the dataset in another folder") from error


def _manifest_of_document(document: Mapping[str, Any]) -> Manifest:
    """Return the manifest in a JSON document; raise ValueError if the lists in the document contradict its checksum."""
    if invalid := [name for name, *_ in document["files"] if not files.is_possible_name_below(name)]:
        raise ValueError(f"{invalid[0]!r} is not the name of a file below the dataset's folder")
    if (objects := document.get("objects")) is not None and len(objects) != len(document["files"]):
        raise ValueError("the lists of files and objects differ in length")
    manifest = Manifest(
        kind=document["kind"],
        parameters=document["parameters"],
        generator=document["generator"],
        files=tuple(DatasetFile(*file) for file in document["files"]),
        classes=tuple(document["classes"]),
        objects=None if objects is None else tuple((etag, digest) for etag, digest in objects),
    )
    if manifest.checksum != document["checksum"]:
        raise ValueError("the checksum in the manifest differs from the checksum of the list of files")
    return manifest


def manifest_root(path: Path) -> Path:
    """Return the folder to which the file names of a dataset are relative. A single file gives its parent folder."""
    return path.parent if path.is_file() else path


def scan_folder(
    folder: Path, hdf5: str | None = None, *, any_kind: bool = False, listed: Path | None = None
) -> Manifest:
    """Return the manifest of a user's own JPEG and PNG files, without writing a file; each sub-folder is a class.

    Files directly in `folder` have the class `.`. Links are followed. The manifest also lists an unreadable file,
    because the benchmark counts unreadable files. It counts the files of other kinds, which no run reads.

    With `hdf5`, the name of an HDF5 data set, the manifest lists HDF5 files instead, and the first file is checked for
    the data set. With `any_kind`, the manifest lists every file. With `any_kind` and a file as
    `folder`, the manifest lists only this file. With `listed`, a text file with one name per line, the manifest lists
    only the files with these names.

    Raises DatasetError if the folder is missing, has no files to list, or cannot be read completely.
    """
    parameters: dict[str, Any] = {"any_kind": True} if any_kind else {} if hdf5 is None else {"hdf5": hdf5}
    endings, left_out, data_set = file_suffixes(parameters), dict[str, int](), dict[str, float]()
    if any_kind and folder.is_file():
        parameters["file"], sizes = folder.name, {folder.name: folder.stat().st_size}
        folder = folder.parent
    else:
        sizes, left_out = (_sizes_listed(folder, listed), {}) if listed else _sizes(folder, endings)
    if not sizes or (any_kind and not sum(sizes.values())):
        what = "files with content" if any_kind else "images" if hdf5 is None else "HDF5 files"
        message = f"no {what} in {folder}"
        kinds = ", ".join(endings) or "any"
        raise DatasetError(message, f"name a folder that has {kinds} files, also in sub-folders")
    if hdf5 is not None:
        data_set = h5py_parts.rows_of(folder / min(sizes), hdf5)
    return replace(manifest_of_own_files(parameters, sizes), left_out=left_out, data_set=data_set)


def manifest_of_own_files(
    parameters: Mapping[str, Any], sizes: Mapping[str, int], etags: Mapping[str, str | None] | None = None
) -> Manifest:
    """Return the manifest of a user's own files, from `sizes` (bytes, by name); for objects, also from their ETags."""
    names = sorted(sizes)
    folders = {name: str(Path(name).parent) for name in names}
    classes = tuple(sorted(set(folders.values())))
    labels = {name: label for label, name in enumerate(classes)}
    return Manifest(
        kind="folder",
        parameters=parameters,
        generator=None,
        files=tuple(DatasetFile(name, sizes[name], labels[folders[name]]) for name in names),
        classes=classes,
        objects=None if etags is None else tuple((etags[name], None) for name in names),
    )


def verify_files(folder: Path, manifest: Manifest) -> None:
    """Raise DatasetError if the names or sizes of a dataset's files differ from its manifest.

    Files with a suffix that the dataset does not use are ignored.
    """
    own = manifest.kind == "folder"
    sizes = _sizes(folder, file_suffixes(manifest.parameters))[0] if own else _sizes_of_ours(folder)
    if complaint := manifest_difference(manifest, sizes):
        added = sizes.keys() - {file.name for file in manifest.files}
        raise DatasetError(f"{folder} {complaint}", _cure(folder, manifest, repairable=not added))


def manifest_difference(manifest: Manifest, sizes: Mapping[str, int], changed: Sequence[str] = ()) -> str:
    """Return a text about the differences between a manifest and the stored files; "" if there is no difference.

    `sizes` has the sizes of the stored files in bytes, by name. `changed` has the names of files with wrong content.
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
        return "change no file while a campaign uses the folder; start the campaign again, which lists the files again"
    remake = f"`rm {folder / MANIFEST_NAME}` and give the same command again: only files that differ are written"
    return remake if repairable else f"move files that are not part of the dataset out of {folder}, or {remake}"


def _sizes_of_ours(folder: Path) -> dict[str, int]:
    """Return the sizes in bytes of the files of a dataset made by this program, by name. Links are not followed."""
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
    """Return the suffixes of the files in a user's own folder, according to the parameters of the manifest."""
    return ANY_SUFFIX if "any_kind" in parameters else HDF5_SUFFIXES if "hdf5" in parameters else IMAGE_SUFFIXES


def count_kinds(names: Iterable[str]) -> dict[str, int]:
    """Return the number of files of each frequent kind, by suffix in lower case, and of all other kinds together."""
    suffixes = (Path(name).suffix.lower().encode(errors="backslashreplace").decode() for name in names)
    kinds = Counter(suffix or "without suffix" for suffix in suffixes)
    frequent = dict(kinds.most_common(_NAMED_KINDS))
    others = kinds.total() - sum(frequent.values())
    return frequent | ({"of other kinds": others} if others else {})


def _sizes(folder: Path, suffixes: tuple[str, ...]) -> tuple[dict[str, int], dict[str, int]]:
    """Return the sizes in bytes of the files below a folder whose names end with a suffix, by relative name.

    The second result has the number of all other files, by kind.
    """
    _require_folder(folder)
    try:
        found = [(str(path.relative_to(folder)), path, status) for path, status in untrusted.files_below(folder)]
    except untrusted.UntrustedError as error:
        raise DatasetError(f"{folder} cannot be a dataset: {error}", "name a folder of ordinary files") from error
    except OSError as error:
        message = f"cannot read the folder {error.filename}: {error.strerror}"
        raise DatasetError(message, f"`chmod u+rx {error.filename}`, or move this folder out of the dataset") from error
    wanted = {name: _size(path, status) for name, path, status in found if name.lower().endswith(suffixes)}
    return wanted, count_kinds(name for name, *_ in found if name not in wanted)


def _sizes_listed(folder: Path, listed: Path) -> dict[str, int]:
    """Return the sizes in bytes of the files whose names are in the text file `listed`, by name."""
    _require_folder(folder)
    try:
        names = untrusted.read_bounded(listed, _LIST_BYTES).decode(errors="surrogateescape").splitlines()
        if invalid := [name for name in names if not files.is_possible_name_below(name)]:
            raise DatasetError(
                f"{listed} names {invalid[0]!r}, which is no file below {folder}",
                "write names that are relative to dataset.path",
            )
        return {name: _size(folder / name, (folder / name).stat()) for name in names}
    except (OSError, untrusted.UntrustedError) as error:
        raise DatasetError(
            f"cannot use the list of files {listed}: {error}", "write one name per line, relative to dataset.path"
        ) from error


def _size(path: Path, status: os.stat_result) -> int:
    """Return the size of a file in bytes, or 0 for a broken link; raise DatasetError for a pipe, socket or device."""
    if stat.S_ISLNK(status.st_mode):
        return 0
    if not stat.S_ISREG(status.st_mode):
        message = f"{path} has a name like a file of the dataset, but is a pipe, a socket or a device"
        raise DatasetError(message, f"move {path} out of the dataset")
    return status.st_size
