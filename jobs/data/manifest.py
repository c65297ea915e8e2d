"""What a dataset holds: the manifest of our own, the scan of a user's, and the check against the disk."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict

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
_NAMED = 3  # files that an error names; the rest are counted


class ImageFile(NamedTuple):
    """One image: its path relative to the dataset, its size in bytes, and the number of its class."""

    name: str
    size: int
    label: int


class _Document(TypedDict):
    kind: str
    parameters: dict[str, Any]
    generator: dict[str, Any] | None
    files: list[Any]  # millions: each is looked at when it is taken
    classes: list[str]
    checksum: str


@dataclass(frozen=True)
class Manifest:
    """What a dataset holds."""

    kind: Literal["synthetic", "folder"]  # `synthetic`: made by us, from `parameters`; `folder`: the user's own
    # Of a synthetic dataset, all that its bytes follow from; of a folder of HDF5 files, the data set that is read.
    parameters: Mapping[str, Any]
    # Versions that its bytes depend on: of the generator, numpy, Pillow; None for a folder.
    generator: Mapping[str, Any] | None
    files: tuple[ImageFile, ...]  # sorted by name where they were scanned, by number where they were made
    classes: tuple[str, ...]  # names, in the order of the labels
    # Of objects (S3), beside each file: ETag, and SHA-256 in hex digits where we made it; None for files.
    objects: tuple[tuple[str | None, str | None], ...] | None = None
    schema: int = SCHEMA

    @property
    def total_bytes(self) -> int:
        """Return the sum of the file sizes."""
        return sum(file.size for file in self.files)

    @property
    def quantiles(self) -> dict[str, float]:
        """Return quantiles of the file size in bytes, by name."""
        sizes = sorted(file.size for file in self.files)
        return {name: _quantile(sizes, share) for name, share in _QUANTILES.items()}

    @property
    def checksum(self) -> str:
        """Return a checksum of names and sizes, whatever their order."""
        lines = sorted(f"{file.name}\t{file.size}\n" for file in self.files)
        return "sha256:" + hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()

    @property
    def summary(self) -> dict[str, Any]:
        """Return all but the list of files, for a record of a measurement."""
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
    """Interpolate linearly between the order statistics; numpy would cost every command line its import."""
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def load(folder: Path) -> Manifest:
    """Read the manifest of a dataset made by us; raises DatasetError where it is missing, damaged or newer."""
    path = folder / MANIFEST_NAME
    try:
        return _parsed(reading.read(path, _Document, SCHEMA, most_bytes=MOST_BYTES))
    except FileNotFoundError as error:
        message = f"no dataset in {folder}: {MANIFEST_NAME} is missing"
        raise DatasetError(message, "make the dataset first; making one that was interrupted resumes") from error
    except OSError as error:
        message = f"cannot read {path}: {error.strerror}"
        raise DatasetError(message, f"make {path} readable for you") from error
    except (ValueError, KeyError, TypeError) as error:
        message = f"{path} is damaged: {error}"
        raise DatasetError(
            message, f"`rm {path}` and give the same command again; files that are right stay"
        ) from error
    except reading.NewerFileError as error:
        message = f"{path} has {error}, this program knows {SCHEMA}"
        raise DatasetError(message, "update this program, or make the dataset in another folder") from error


def _parsed(document: Mapping[str, Any]) -> Manifest:
    """Build a manifest from its JSON; ValueError where the list of files does not have its checksum."""
    manifest = Manifest(
        kind=document["kind"],
        parameters=document["parameters"],
        generator=document["generator"],
        files=tuple(_image(*file) for file in document["files"]),
        classes=tuple(document["classes"]),
        objects=_objects(document),
    )
    if manifest.checksum != document["checksum"]:
        raise ValueError("its list of files does not have its checksum")
    return manifest


def _objects(document: Mapping[str, Any]) -> tuple[tuple[str | None, str | None], ...] | None:
    if (said := document.get("objects")) is None:
        return None
    objects = tuple((etag, digest) for etag, digest in said)
    if len(objects) != len(document["files"]) or not all(
        isinstance(word, str | None) for pair in objects for word in pair
    ):
        raise ValueError("its objects are not those of its files")
    return objects


def _image(name: str, size: int, label: int) -> ImageFile:
    if not files.is_below(name):
        raise ValueError(f"{name!r} is no file below it")
    return ImageFile(name, int(size), int(label))


def top_of(path: Path) -> Path:
    """Return the folder below which the names of a data set are: of a single file the one that holds it."""
    return path.parent if path.is_file() else path


def scan(folder: Path, hdf5: str | None = None, *, any_kind: bool = False, listed: Path | None = None) -> Manifest:
    """List a user's own JPEG and PNG files; each sub-folder with images is a class; nothing is written.

    With the name of a data set, `hdf5`, it lists HDF5 files instead, and looks into the first of them; `any_kind`:
    every file, whatever its name, but a manifest, or `folder` itself where it is a file, or those alone whose names are
    `listed`, one per line. Files at the top have the class `.`. Names that begin with a dot are
    skipped; links are followed. A file that cannot be read is listed, too: it is for the benchmark to count it.

    Raises DatasetError where the folder is missing, cannot be read in full or has no images.
    """
    parameters: dict[str, Any] = {"any_kind": True} if any_kind else {} if hdf5 is None else {"hdf5": hdf5}
    endings = suffixes(parameters)
    if any_kind and folder.is_file():
        parameters["file"], sizes = folder.name, {folder.name: folder.stat().st_size}
        folder = folder.parent
    else:
        sizes = _sizes_listed(folder, listed) if listed else _sizes(folder, endings)
    if not sizes:
        what = "files" if any_kind else "images" if hdf5 is None else "HDF5 files"
        message = f"no {what} in {folder}"
        kinds = ", ".join(endings) or "any"
        raise DatasetError(message, f"name a folder that has {kinds} files or sub-folders of them")
    names = sorted(sizes)
    if hdf5 is not None:
        h5py_parts.size(folder / names[0], [Part(hdf5)])
    classes = tuple(sorted({str(Path(name).parent) for name in names}))
    labels = {name: label for label, name in enumerate(classes)}
    files = tuple(ImageFile(name, sizes[name], labels[str(Path(name).parent)]) for name in names)
    return Manifest(kind="folder", parameters=parameters, generator=None, files=files, classes=classes)


def verify(folder: Path, manifest: Manifest) -> None:
    """Raise DatasetError where names or sizes of images are not those of the manifest; other files do not matter."""
    own = manifest.kind == "folder"
    found = _sizes(folder, suffixes(manifest.parameters)) if own else _sizes_of_ours(folder)
    if complaint := difference(manifest, found):
        added = found.keys() - {file.name for file in manifest.files}
        raise DatasetError(f"{folder} {complaint}", _cure(folder, manifest, repairable=not added))


def difference(manifest: Manifest, found: Mapping[str, int], changed: Sequence[str] = ()) -> str:
    """Say in which way files are not those of the manifest, by their sizes in bytes; empty where they are.

    `changed`: names of which is known by other means that they hold other bytes.
    """
    expected = {file.name: file.size for file in manifest.files}
    complaints = {
        "missing": [name for name in expected if name not in found],
        "of the wrong size": [name for name, size in expected.items() if found.get(name, size) != size],
        "with other bytes": changed,
        "not in the manifest": [name for name in found if name not in expected],
    }
    said = "; ".join(f"{len(names)} {what} ({_some(names)})" for what, names in complaints.items() if names)
    return f"does not match its manifest of {len(expected)} files: {said}" if said else ""


def _some(names: Sequence[str]) -> str:
    return ", ".join(sorted(names)[:_NAMED]) + (", …" if len(names) > _NAMED else "")


def _cure(folder: Path, manifest: Manifest, *, repairable: bool) -> str:
    """Return how a dataset is made to match its manifest again."""
    if manifest.kind == "folder":
        return "leave the folder alone while a campaign uses it; start the campaign again to list its files anew"
    remake = f"`rm {folder / MANIFEST_NAME}` and give the same command again: only files that differ are written"
    return remake if repairable else f"move files that are not part of the dataset out of {folder}, or {remake}"


def _sizes_of_ours(folder: Path) -> dict[str, int]:
    """Return the same of a dataset that this program has made: there are no links in it, and none is followed."""
    _require_folder(folder)
    try:
        listed = files.tree(folder)
    except OSError as error:
        message = f"cannot read {error.filename}: {error.strerror}"
        raise DatasetError(message, f"`chmod -R u+rX {folder}`, or name another place: storage.root=…") from error
    return {
        name: status.st_size
        for name, status in listed.items()
        if name.lower().endswith(SUFFIXES_OF_OURS) and "/." not in f"/{name}" and stat.S_ISREG(status.st_mode)
    }


def _require_folder(folder: Path) -> None:
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "does not exist"
        message = f"{folder} {what}"
        raise DatasetError(message, "name a folder or a file that is there; paths are relative to the current folder")


def suffixes(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return how the files of a user's own folder end."""
    return ANY_SUFFIX if "any_kind" in parameters else HDF5_SUFFIXES if "hdf5" in parameters else IMAGE_SUFFIXES


def _sizes(folder: Path, suffixes: tuple[str, ...]) -> dict[str, int]:
    """Return the size in bytes of every file below a folder that ends so, by relative name."""
    _require_folder(folder)
    try:
        files_below = [
            (path, status) for path, status in untrusted.below(folder) if path.name.lower().endswith(suffixes)
        ]
    except untrusted.UntrustedError as error:
        raise DatasetError(f"{folder} cannot be a dataset: {error}", "name a folder of files alone") from error
    except OSError as error:
        message = f"cannot read the folder {error.filename}: {error.strerror}"
        raise DatasetError(message, f"`chmod u+rx {error.filename}`, or move it out of the dataset") from error
    sizes = {str(path.relative_to(folder)): _size(path, status) for path, status in files_below}
    return {name: size for name, size in sizes.items() if name != MANIFEST_NAME}


def _sizes_listed(folder: Path, listed: Path) -> dict[str, int]:
    """Return the size in bytes of each file that a list names, by name."""
    _require_folder(folder)
    try:
        names = untrusted.content(listed, _LIST_BYTES).decode(errors="surrogateescape").splitlines()
        if odd := next((name for name in names if not files.is_below(name)), None):
            raise DatasetError(
                f"{listed} names {odd!r}, which is no file below {folder}", "names relative to dataset.path"
            )
        return {name: _size(folder / name, (folder / name).stat()) for name in names}
    except (OSError, untrusted.UntrustedError) as error:
        raise DatasetError(
            f"{listed} does not list files: {error}", "one name per line, relative to dataset.path"
        ) from error


def _size(path: Path, status: os.stat_result) -> int:
    """Return the size of a file in bytes; 0 for a link that leads nowhere. What would block a reader is refused."""
    if stat.S_ISLNK(status.st_mode):
        return 0
    if not stat.S_ISREG(status.st_mode):
        message = f"{path} is named like a file of the dataset and is none (a pipe, a socket, a device)"
        raise DatasetError(message, "move it out of the dataset")
    return status.st_size
