"""Runs of one cell read different images."""

from tests.lies import instruments
from tests.lies.lie import INVALID, Expected, confirmed, lie


@lie(
    "Half of the images are replaced by smaller ones after the warm-up.",
    Expected((INVALID,), r"manifest|changed|replaced"),
)
def replaced(workspace):
    paths = workspace.images(workspace.folder / "set" / "images")
    before = instruments.total(paths)

    def replace(line):
        if "run 0" in line:
            workspace.images(paths[0].parent, number=len(paths) // 2, pixels=64, seed=1)

    answer = workspace.campaign(paths[0].parent, "runs=5", on_line=replace)
    after = instruments.total(paths)
    return confirmed(after < 0.7 * before, f"the folder held {before / 1e6:.2f} MB, then {after / 1e6:.2f} MB"), answer
