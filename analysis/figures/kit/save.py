"""The one place that writes: whole files or none, and the same bytes from the same content."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import pandas as pd
from fontTools.subset import Options  # type: ignore[import-untyped]
from matplotlib import rcParams
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from analysis.errors import AnalysisError
from analysis.figures.kit import storage_colours
from analysis.text.spreadsheet import csv

# A tenth more bytes than by zlib's own level, in two thirds of the time.
PNG_LEVEL = 3
# matplotlib has placed each glyph, so that no reader of a PDF needs these; to subset them takes most of the time. It
# hands on no option, and fontTools may rename this list: then a PDF takes its old time.
with suppress(AttributeError):
    Options._drop_tables_default += ["GDEF", "GPOS", "GSUB", "kern"]  # noqa: SLF001


def save(figure: Figure, drawn: pd.DataFrame, folder: Path, stem: str) -> list[Path]:
    """Write a figure as `<stem>.pdf` and `.png`, and exactly what it shows as `<stem>.csv`; return their paths."""
    return put(contents(figure, drawn, stem), folder, stem)


def contents(figure: Figure, drawn: pd.DataFrame, stem: str) -> dict[str, bytes]:
    """Return what the files of a figure hold, by their endings: PDF, PNG, and exactly what it shows as CSV."""
    # Outside the context the fonts would be Type 3 again; without a date the bytes repeat.
    with storage_colours.sheet():
        pdf = rendered(figure, "pdf", {"CreationDate": None, "Title": stem})
        figure.set_layout_engine("none")  # its places are found: finding them takes as long as drawing
        png = rendered(figure, "png", {"Software": None, "Title": stem})
    return {".pdf": pdf, ".png": png, ".csv": csv(drawn)}


def must_be_own(home: Path, *names: str) -> None:
    """Refuse places that are no folders; below `home`, links too, for what lies behind one is not ours to replace.

    Raises AnalysisError: one of them is such a place.
    """
    for place in (home, *(home / name for name in names)):
        linked = place != home and place.is_symlink()
        if linked or (place.exists() and not place.is_dir()):
            hint = "remove or rename it, or name another place: --out DIR"
            raise AnalysisError(f"{place} is {'a link' if linked else 'no folder'}", hint)


def put(files: Mapping[str, bytes], folder: Path, stem: str) -> list[Path]:
    """Write files that hold these bytes, by their endings; return their paths."""
    return [write(folder / f"{stem}{ending}", content) for ending, content in files.items()]


def rendered(figure: Figure, ending: str, metadata: dict[str, str | None]) -> bytes:
    """Return the bytes of a figure in one format."""
    buffer = io.BytesIO()
    # Not by `savefig`, which draws everything twice where there is a layout.
    if ending == "pdf":
        FigureCanvasPdf(figure).print_pdf(buffer, metadata=metadata)  # type: ignore[no-untyped-call]
        return buffer.getvalue()
    figure.set_dpi(rcParams["savefig.dpi"])
    if ending == "svg":
        FigureCanvasSVG(figure).print_svg(buffer, metadata=metadata)  # type: ignore[no-untyped-call]
    else:
        keys = {"compress_level": PNG_LEVEL}
        FigureCanvasAgg(figure).print_png(buffer, metadata=metadata, pil_kwargs=keys)  # type: ignore[no-untyped-call]
    return buffer.getvalue()


def export(path: Path, content: bytes | Iterable[bytes], read: Iterable[Path]) -> Path:
    """Write a file that the user named, as `write` does; never in place of one of those that are `read`.

    Raises AnalysisError: it is one of them, its folder is not there, or it cannot be written.
    """
    if path.exists() and any(each.exists() and path.samefile(each) for each in read):
        raise AnalysisError(f"{path} is a file of this very command", "name another file to write")
    if not path.parent.is_dir():
        raise AnalysisError(f"there is no folder {path.parent}", "make it, or name a folder that is there")
    return write(path, content, "name a file in another place, or make room in this one")


def write(
    path: Path,
    content: bytes | Iterable[bytes],
    hint: str = "name another place (--out DIR, --junit FILE), or make room in this one",
) -> Path:
    """Put a whole file in place, or leave what was there: temporary file, fsync, rename, fsync of the folder.

    Raises AnalysisError: the folder cannot be written, or a device, a pipe or a folder, which a rename would replace,
    has that name.
    """
    if path.exists() and not path.is_file():
        raise AnalysisError(f"{path} is there and is no file", "name a file, or one that is not there yet")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, content)
    except OSError as error:
        message = f"cannot write {path}: {error.strerror or error}"
        raise AnalysisError(message, hint) from error
    return path


def _replace(path: Path, content: bytes | Iterable[bytes]) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines([content] if isinstance(content, bytes) else content)
            file.flush()
            os.fchmod(file.fileno(), 0o666 & ~_umask())
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _umask() -> int:
    """Return the mask of new files; mkstemp ignores it and makes files private."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
