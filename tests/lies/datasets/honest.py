"""Nothing cheats: the other rows are held against this one."""

from tests.lies import instruments
from tests.lies.lie import VALID, Expected, confirmed, lie


@lie("Nothing: an ordinary folder of images on an ordinary disk.", Expected((VALID,)))
def nothing(workspace):
    paths = workspace.images(workspace.folder / "set" / "images")
    answer = workspace.campaign(paths[0].parent)
    share = instruments.resident(paths)
    return confirmed(share > 0, f"after the last run {share:.0%} of the pages were in memory, by mincore"), answer
