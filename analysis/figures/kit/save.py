"""Charts as bytes, for their files and as SVG of the page, and all writing of files by the analysis.

Files are written whole or not at all, and the same content gives the same bytes.
"""

from __future__ import annotations

import gc
import io
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from xml.etree import ElementTree as ET

import matplotlib as mpl
import pandas as pd
from fontTools.subset import Options  # type: ignore[import-untyped]
from markupsafe import Markup
from matplotlib import rcParams
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from analysis.errors import AnalysisError
from analysis.figures.kit import storage_colours
from analysis.figures.kit.figure_spec import FigureSpec
from analysis.processes import Helpers, spread_jobs
from analysis.spreadsheet import frame_as_csv
from analysis.text import without_illegal_html

# 10 % more bytes than by zlib's default level, in two thirds of the time.
PNG_LEVEL = 3
# These font tables place glyphs, which matplotlib has done already; to subset them takes most of a PDF's time.
# matplotlib passes no option on, and fontTools may rename this list: then a PDF only takes longer.
with suppress(AttributeError):
    Options._drop_tables_default += ["GDEF", "GPOS", "GSUB", "kern"]  # noqa: SLF001


def save_figure(figure: Figure, drawn: pd.DataFrame, folder: Path, stem: str) -> list[Path]:
    """Write a figure as `<stem>.pdf` and `.png`, and the table that it shows as `<stem>.csv`; return the paths."""
    return write_files(file_contents(figure, drawn, stem), folder, stem)


def file_contents(figure: Figure, drawn: pd.DataFrame, stem: str) -> dict[str, bytes]:
    """Return the content of a figure's files by their endings: PDF, PNG, and the table that it shows as CSV."""
    # Outside the context the fonts would be Type 3 again; without a date the bytes repeat.
    with storage_colours.style_sheet():
        pdf = render_figure(figure, "pdf", {"CreationDate": None, "Title": stem})
        figure.set_layout_engine("none")  # the layout is done: to repeat it takes as long as drawing
        png = render_figure(figure, "png", {"Software": None, "Title": stem})
    return {".pdf": pdf, ".png": png, ".csv": frame_as_csv(drawn)}


def require_own_folders(home: Path, *names: str) -> None:
    """Raise AnalysisError if `home` or one of `names` in it exists and is no folder.

    A link in `home` is refused too: the folder behind it is not ours to replace.
    """
    for place in (home, *(home / name for name in names)):
        linked = place != home and place.is_symlink()
        if linked or (place.exists() and not place.is_dir()):
            hint = "remove or rename it, or name another place: --out DIR"
            raise AnalysisError(f"{place} is {'a link' if linked else 'no folder'}", hint)


def write_files(files: Mapping[str, bytes], folder: Path, stem: str) -> list[Path]:
    """Write `<stem><ending>` for each ending and content in `files`; return the paths."""
    return [write_file(folder / f"{stem}{ending}", content) for ending, content in files.items()]


def render_figure(figure: Figure, ending: str, metadata: dict[str, str | None]) -> bytes:
    """Return the bytes of a figure in one format."""
    buffer = io.BytesIO()
    # Not by `savefig`: with a layout engine it draws everything twice.
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


def export_file(path: Path, content: bytes | Iterable[bytes], read: Iterable[Path]) -> Path:
    """Write a file that the user named, as `write_file` does; never replace one of the files in `read`.

    Raises AnalysisError: the file is in `read`, its folder does not exist, or it cannot be written.
    """
    if path.exists() and any(each.exists() and path.samefile(each) for each in read):
        raise AnalysisError(f"{path} is a file of this very command", "name another file to write")
    if not path.parent.is_dir():
        raise AnalysisError(f"there is no folder {path.parent}", "make it, or name a folder that is there")
    return write_file(path, content, "name a file in another place, or make room in this one")


def write_file(
    path: Path,
    content: bytes | Iterable[bytes],
    hint: str = "name another place (--out DIR, --junit FILE), or make room in this one",
) -> Path:
    """Write a whole file or leave the old one unchanged: temporary file, fsync, rename, fsync of the folder.

    Raises AnalysisError: the folder cannot be written, or `path` is a device, a pipe or a folder.
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
    """Return the process's umask; mkstemp ignores it and makes files private."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
# Text stays text: it can be searched and copied, and takes a quarter of the bytes of outlines. Verdana is as wide as
# DejaVu Sans (both descend from Bitstream Vera), and others are narrower.
FONTS = "'DejaVu Sans', Verdana, sans-serif"


def inline_svg(figure: Figure, name: str, label: str) -> Markup:
    """Return a figure as an `<svg>` element, the same bytes each time.

    The SVG has no title and caption (the page shows them as text), no style sheet (it would act on the whole page) and
    no metadata. The page sets the size; `--points` is the width at which the letters are as large as on paper.

    Parameters
    ----------
    figure
        A figure by `panels.with_frame` after `file_contents`, so that its layout is done; title and caption are hidden.
    name
        The prefix of all ids in the SVG.
    label
        The description of the figure for readers who cannot see it.
    """
    above, below = _without_words(figure)
    with storage_colours.style_sheet(), mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        drawn = render_figure(figure, "svg", {"Date": None})
    root = ET.fromstring(without_illegal_html(drawn.decode()))  # noqa: S314 - our own drawing
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{SVG}}}metadata", f"{{{SVG}}}style"):
                parent.remove(child)
        _rename(parent, name)
    wide, high = map(float, root.attrib["viewBox"].split()[2:])
    for size in ("width", "height"):
        del root.attrib[size]
    box = f"0 {above * high:.2f} {wide:g} {(1 - above - below) * high:.2f}"
    root.attrib |= {"viewBox": box, "role": "img", "aria-label": label, "style": f"--points: {wide:g}"}
    ET.register_namespace("", SVG)
    ET.register_namespace("xlink", XLINK)
    return Markup(ET.tostring(root, encoding="unicode"))  # noqa: S704 - our own drawing


def _without_words(figure: Figure) -> tuple[float, float]:
    """Hide the title and the caption; return the free shares of the figure's height above and below."""
    caption, *titles = figure.texts
    titles += [legend.get_title() for legend in figure.legends]
    to_shares = figure.transFigure.inverted()
    foot = caption.get_window_extent().transformed(to_shares).y1
    head = min(title.get_window_extent().transformed(to_shares).y0 for title in titles)
    for text in (caption, *titles):
        text.set_visible(False)
    return 1 - head, foot


def _rename(element: ET.Element, name: str) -> None:
    """Prefix the element's id, and every id in its references, with a name; add fonts that other machines have."""
    for key, value in element.attrib.items():
        if key == "id":
            element.set(key, f"{name}-{value}")
        elif key.endswith("href"):
            element.set(key, value.replace("#", f"#{name}-", 1))
        else:
            element.set(key, value.replace("url(#", f"url(#{name}-").replace("'DejaVu Sans'", FONTS))


# Fewer figures than this are drawn in this process: to start others takes as long.
WORTH_PROCESSES = 6


@dataclass(frozen=True)
class Drawing:
    """A drawn figure: the bytes of its files by their endings, and its SVG for the page (empty if not shown there)."""

    files: Mapping[str, bytes]
    inline: Markup


def draw_all(
    specs: Sequence[FigureSpec], within_page: int, helpers: Helpers
) -> AbstractContextManager[Iterator[Drawing]]:
    """Return a context with the drawn figures (by `processes.spread_jobs`), the first `within_page` also as SVG."""
    return spread_jobs(partial(draw_one, specs, within_page), range(len(specs)), WORTH_PROCESSES, helpers)


def draw_one(specs: Sequence[FigureSpec], within_page: int, place: int) -> Drawing:
    """Return the drawing of figure number `place`; its SVG has no title and caption: the page shows them as text."""
    spec = specs[place]
    figure = spec.drawn()
    files = file_contents(figure, spec.frame, spec.stem)
    drawing = Drawing(files, inline_svg(figure, spec.stem, spec.title) if place < within_page else Markup())
    del figure
    gc.collect()  # its parts refer to each other: only this frees them before the next figure is drawn
    return drawing
