"""Render figures as PDF, PNG and SVG, and write all files of the analysis.

A file is either written completely or not changed at all. Equal content gives equal bytes.
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

# The compression level of PNG files. A file has 10 % more bytes than with zlib's default level, but is written in two
# thirds of the time.
PNG_LEVEL = 3
# These font tables determine the positions of glyphs, which matplotlib has already computed. Without these tables a PDF
# is written much faster. matplotlib has no option for fontTools, so fontTools' private list is changed. If fontTools
# renames this list, a PDF only takes longer.
with suppress(AttributeError):
    Options._drop_tables_default += ["GDEF", "GPOS", "GSUB", "kern"]  # noqa: SLF001


def save_figure(figure: Figure, drawn: pd.DataFrame, folder: Path, stem: str) -> list[Path]:
    """Write a figure as `<stem>.pdf` and `<stem>.png`, and its table as `<stem>.csv`; return the paths."""
    return write_files(file_contents(figure, drawn, stem), folder, stem)


def file_contents(figure: Figure, drawn: pd.DataFrame, stem: str) -> dict[str, bytes]:
    """Return the contents of a figure's files by file extension: the figure as PDF and PNG, and its table as CSV."""
    # The style sheet is also needed for rendering, because matplotlib otherwise embeds Type 3 fonts. The PDF gets no
    # creation date, so that equal figures give equal bytes.
    with storage_colours.style_sheet():
        pdf = render_figure(figure, "pdf", {"CreationDate": None, "Title": stem})
        figure.set_layout_engine("none")  # the layout is not computed again, which would take as long as drawing
        png = render_figure(figure, "png", {"Software": None, "Title": stem})
    return {".pdf": pdf, ".png": png, ".csv": frame_as_csv(drawn)}


def require_own_folders(home: Path, *names: str) -> None:
    """Raise AnalysisError if `home`, or a path `home/<name>` for a name in `names`, exists and is no folder.

    A path `home/<name>` must not be a symbolic link either, because files in the linked folder may not be replaced.
    """
    for place in (home, *(home / name for name in names)):
        linked = place != home and place.is_symlink()
        if linked or (place.exists() and not place.is_dir()):
            hint = "remove or rename it, or choose another output folder with --out DIR"
            raise AnalysisError(f"{place} is {'a link' if linked else 'no folder'}", hint)


def write_files(files: Mapping[str, bytes], folder: Path, stem: str) -> list[Path]:
    """Write one file `<stem><extension>` for each item of `files`; return the paths.

    `files` maps a file extension to the content of the file.
    """
    return [write_file(folder / f"{stem}{ending}", content) for ending, content in files.items()]


def render_figure(figure: Figure, ending: str, metadata: dict[str, str | None]) -> bytes:
    """Return the bytes of a figure in the format `ending`: `pdf`, `png` or `svg`."""
    buffer = io.BytesIO()
    # `Figure.savefig` is not used, because it draws a figure with a layout engine twice.
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
    """Write a file that the user named, with `write_file`, but never replace a file in `read`.

    Raises AnalysisError if the file is in `read`, if its folder does not exist, or if the file cannot be written.
    """
    if path.exists() and any(each.exists() and path.samefile(each) for each in read):
        raise AnalysisError(f"the output file {path} is also an input file of this command", "name another output file")
    if not path.parent.is_dir():
        raise AnalysisError(f"there is no folder {path.parent}", "make it, or name a folder that exists")
    return write_file(path, content, "name a file in another folder, or free space on this file system")


def write_file(
    path: Path,
    content: bytes | Iterable[bytes],
    hint: str = "choose another output path (--out DIR, --junit FILE), or free space on this file system",
) -> Path:
    """Write a file completely, or leave an existing file unchanged if an error occurs; return the path.

    The content is written to a temporary file, which is then renamed. The file and its folder are flushed with fsync.
    Raises AnalysisError if the folder cannot be written, or if `path` is a device, a pipe or a folder.
    """
    if path.exists() and not path.is_file():
        raise AnalysisError(f"{path} exists and is no file", "name a file, or a path that does not exist yet")
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
    """Return the umask of this process, which is needed because `mkstemp` makes files that only the user can read."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
# The SVG contains texts and no outlines of letters, so that a reader can search and copy the texts. Texts also need
# only a quarter of the bytes of outlines. If a machine does not have DejaVu Sans, Verdana is used, which is equally
# wide. Other fonts are narrower.
FONTS = "'DejaVu Sans', Verdana, sans-serif"


def inline_svg(figure: Figure, name: str, label: str) -> Markup:
    """Return a figure as an `<svg>` element for the report page. Equal figures give equal bytes.

    The SVG has no title and no caption, because the page shows them as text. The SVG has no style sheet, because a
    style sheet would apply to the whole page. The page sets the size of the SVG. The CSS variable `--points` has the
    width at which letters are as large as on paper.

    Parameters
    ----------
    figure
        A figure made by `panels.complete_figure`. `file_contents` must have been called before, because it computes the
        layout. The title and the caption of the figure are hidden by this function.
    name
        The prefix of all ids in the SVG, so that ids of several figures on the page differ.
    label
        The description of the figure for readers who cannot see it.
    """
    above, below = _without_words(figure)
    with storage_colours.style_sheet(), mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        drawn = render_figure(figure, "svg", {"Date": None})
    root = ET.fromstring(without_illegal_html(drawn.decode()))  # noqa: S314 - matplotlib made this XML
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
    return Markup(ET.tostring(root, encoding="unicode"))  # noqa: S704 - matplotlib made this XML


def _without_words(figure: Figure) -> tuple[float, float]:
    """Hide the title and the caption of a figure.

    Return the free space above and below the panels, as fractions of the figure's height.
    """
    caption, *titles = figure.texts
    titles += [legend.get_title() for legend in figure.legends]
    to_shares = figure.transFigure.inverted()
    foot = caption.get_window_extent().transformed(to_shares).y1
    head = min(title.get_window_extent().transformed(to_shares).y0 for title in titles)
    for text in (caption, *titles):
        text.set_visible(False)
    return 1 - head, foot


def _rename(element: ET.Element, name: str) -> None:
    """Add a prefix to the id of an SVG element and to all ids to which the element refers.

    Also add fonts for machines that do not have DejaVu Sans.
    """
    for key, value in element.attrib.items():
        if key == "id":
            element.set(key, f"{name}-{value}")
        elif key.endswith("href"):
            element.set(key, value.replace("#", f"#{name}-", 1))
        else:
            element.set(key, value.replace("url(#", f"url(#{name}-").replace("'DejaVu Sans'", FONTS))


# Helper processes draw figures only if there are at least this many figures. To draw fewer figures takes less time than
# to use helper processes.
WORTH_PROCESSES = 6


@dataclass(frozen=True)
class Drawing:
    """A drawn figure: the contents of its files by file extension, and the SVG for the report page.

    `inline` is empty if the page does not show the figure.
    """

    files: Mapping[str, bytes]
    inline: Markup


def draw_all(
    specs: Sequence[FigureSpec], within_page: int, helpers: Helpers
) -> AbstractContextManager[Iterator[Drawing]]:
    """Return a context manager that yields the drawn figures, which are drawn by several processes (`spread_jobs`).

    The first `within_page` figures also get an SVG for the report page.
    """
    return spread_jobs(partial(draw_one, specs, within_page), range(len(specs)), WORTH_PROCESSES, helpers)


def draw_one(specs: Sequence[FigureSpec], within_page: int, place: int) -> Drawing:
    """Return the drawing of the figure with the index `place`, with an SVG if the index is below `within_page`."""
    spec = specs[place]
    figure = spec.drawn()
    files = file_contents(figure, spec.frame, spec.stem)
    drawing = Drawing(files, inline_svg(figure, spec.stem, spec.title) if place < within_page else Markup())
    del figure
    gc.collect()  # frees the figure before the next figure is drawn: parts of a figure refer to each other
    return drawing
