"""A figure as SVG within a page: nothing of it may reach beyond itself."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import matplotlib as mpl
from matplotlib.figure import Figure

from analysis.figures.kit import save, storage_colours
from analysis.text.html import Markup, fit

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
# Text stays text: it can be searched and copied, and takes a quarter of the bytes of outlines. Verdana is as wide as
# DejaVu Sans (both descend from Bitstream Vera), and others are narrower.
FONTS = "'DejaVu Sans', Verdana, sans-serif"


def inline(figure: Figure, name: str, label: str) -> Markup:
    """Return a figure as an `<svg>` element, the same bytes each time.

    Its title and caption, which stand around it as text, its style sheet, which would hold for the whole page, and its
    metadata are left out. The page decides on its size; `--points` is the width at which its letters have the size that
    they have on paper.

    Parameters
    ----------
    figure
        One of `panels.framed` that has been saved (`save.contents`), so that its layout is done; it loses its words.
    name
        The beginning of all its ids.
    label
        Its description for those who cannot see it.
    """
    above, below = _without_words(figure)
    with storage_colours.sheet(), mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        drawn = save.rendered(figure, "svg", {"Date": None})
    root = ET.fromstring(fit(drawn.decode()))  # noqa: S314 - our own drawing
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
    return Markup(ET.tostring(root, encoding="unicode"))


def _without_words(figure: Figure) -> tuple[float, float]:
    """Hide the title and the caption; return which shares of the height they leave free above and below."""
    caption, *titles = figure.texts
    titles += [legend.get_title() for legend in figure.legends]
    to_shares = figure.transFigure.inverted()
    foot = caption.get_window_extent().transformed(to_shares).y1
    head = min(title.get_window_extent().transformed(to_shares).y0 for title in titles)
    for text in (caption, *titles):
        text.set_visible(False)
    return 1 - head, foot


def _rename(element: ET.Element, name: str) -> None:
    """Put a name before the element's id and every id it refers to, and add fonts that other machines have."""
    for key, value in element.attrib.items():
        if key == "id":
            element.set(key, f"{name}-{value}")
        elif key.endswith("href"):
            element.set(key, value.replace("#", f"#{name}-", 1))
        else:
            element.set(key, value.replace("url(#", f"url(#{name}-").replace("'DejaVu Sans'", FONTS))
