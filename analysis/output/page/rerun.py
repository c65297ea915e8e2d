"""The commands that made a campaign, as they can be given again."""

from __future__ import annotations

import shlex
from pathlib import Path

from analysis.output.page.results import MOST_LINES, some
from analysis.records.readable import AbsentError, UnreadableError, load
from analysis.text.html import Markup, joined, tag
from analysis.text.plain import NONE
from jobs.model.record import Manifest

FILE = "campaign.json"


def again(folder: Path) -> Markup:
    """Return each command that `campaign.json` in a folder keeps, once, with when it was first given."""
    asked, why = _requests(folder / FILE)
    if why:
        return tag("p", why)
    told = [tag("li", tag("code", command), f" {facts}") for command, facts in list(asked.items())[:MOST_LINES]]
    return joined([tag("ul", *told), tag("p", some(len(told), len(asked), "commands", FILE))])


def _requests(path: Path) -> tuple[dict[str, str], str]:
    """Return what was asked, and why that is not known."""
    asked: dict[str, str] = {}
    try:
        requests = load(path, Manifest)["requests"]
    except AbsentError:
        return {}, f"There is no {FILE} beside the records, so the commands are not known."
    except UnreadableError as error:
        return {}, f"{FILE} cannot be read: it {error}."
    for request in requests:
        command = shlex.join(["python", "-m", "campaign", *request.get("words", ())])
        cells, utc = request.get("cells", ()), request.get("utc", NONE)
        asked.setdefault(command, f"({len(cells):,} cells, first given {utc})")
    return asked, "" if asked else f"{FILE} holds no commands."
