"""A data set of an HDF5 file, found without leaving the file: what others have made may name any file of the reader's.

Only hard links and soft links are followed, by ourselves, one component of a path after the other. A data set whose
bytes lie in other files is refused before anything asks for its shape or contents, for which HDF5 may open them.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from jobs.errors import DatasetError
from jobs.lazy_imports import h5py

MOST_SOFT_LINKS = 16  # as in HDF5 (H5L_NUM_LINKS)
_NAMED, _NAMED_CHARACTERS = 8, 80
_CURE = "copy what is meant into this file, or leave the file out"


class File(NamedTuple):
    """An HDF5 file that is open; HDF5 itself knows it by another name."""

    name: str
    root: h5py.Group


def data_set(file: File, path: str) -> h5py.Dataset:
    """Return the data set at a path of a file; DatasetError: there is none, or its links or bytes leave the file."""
    node, trail, ahead, links = file.root.id, list[str](), _components(path), 0
    while ahead:
        name = ahead.pop(0)
        code = name.encode(errors="surrogateescape")
        if not isinstance(node, h5py.h5g.GroupID) or not node.links.exists(code):
            raise _missing(file, path, node, trail)
        kind = node.links.get_info(code).type
        if kind == h5py.h5l.TYPE_HARD:
            node = h5py.h5o.open(node, code)
            trail.append(name)
        elif kind == h5py.h5l.TYPE_SOFT and links < MOST_SOFT_LINKS:
            leads = node.links.get_val(code).decode(errors="surrogateescape")
            links, ahead = links + 1, _components(leads) + ahead
            if leads.startswith("/"):
                node, trail = file.root.id, []
        else:
            loops = kind == h5py.h5l.TYPE_SOFT
            what = f"leads through more than {links} links" if loops else "is a link to another file"
            raise DatasetError(f"{file.name}: {_shown([*trail, name])} {what}, and is not followed", _CURE)
    if not isinstance(node, h5py.h5d.DatasetID):
        raise _missing(file, path, node, trail)
    found = h5py.Dataset(node, readonly=True)
    if found.is_virtual or found.external:
        what = "is virtual: it is made of others" if found.is_virtual else "lies in other files"
        raise DatasetError(f"{file.name}: {_shown(trail)} {what}, and is not read", _CURE)
    return found


def _components(path: str) -> list[str]:
    return [each for each in path.split("/") if each not in ("", ".")]


def _shown(trail: list[str]) -> str:
    return "/".join(trail)[-_NAMED_CHARACTERS:]


def _missing(file: File, path: str, node: object, trail: list[str]) -> DatasetError:
    names = islice(node, _NAMED) if isinstance(node, h5py.h5g.GroupID) else ()
    there = ", ".join(_shown([*trail, name.decode(errors="replace")]) for name in names)
    return DatasetError(f"{file.name} has no data set {path!r}", f"it has: {there or 'nothing there'}")
