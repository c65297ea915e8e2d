"""Files that are elsewhere, or fewer, than their names say."""

from tests.lies.lie import INVALID, REFUSED, VALID, Expected, confirmed, lie


@lie(
    "Every image is a symbolic link to another device.",
    Expected((REFUSED, INVALID), r"loop\d|another device|elsewhere|lies? on"),
)
def symbolic_links(workspace):
    other = workspace.disk("other")
    links = workspace.folder / "set" / "images"
    links.mkdir(parents=True)
    for path in workspace.images(other.point / "images"):
        (links / path.name).symlink_to(path)
    before = other.read_bytes()
    answer = workspace.campaign(links)
    moved = other.read_bytes() - before
    watched = sorted({str(run["device"]) for run in workspace.measured()})
    truth = f"{other.device} gave {moved / 1e6:.1f} MB; recorded is {', '.join(watched) or 'no run'}"
    return confirmed(links.stat().st_dev != other.point.stat().st_dev, truth), answer


@lie(
    "Forty files of 940 bytes have four names each: hard links.",
    Expected((REFUSED, INVALID, VALID), r"hard.?link|several names|more than one name|distinct"),
)
def hard_links(workspace):
    paths = workspace.images(workspace.folder / "set" / "images", number=40, pixels=8, size=940)
    for path in paths:
        for copy in "bcd":
            path.with_name(f"{path.stem}{copy}.jpg").hardlink_to(path)
    answer = workspace.campaign(paths[0].parent, "batch_size=32")
    files = [path.stat().st_ino for path in paths[0].parent.iterdir()]
    truth = f"{len(files)} names of {len(set(files))} files, of one page each: three of four reads find it in memory"
    return confirmed(len(files) == 4 * len(set(files)), truth), answer
