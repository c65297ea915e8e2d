"""The commands of each tutorial, taken out of its text, do what the text says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.data.synthetic_images import ImageSpec
from tests.slurm import lab as laboratory

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[1]
_COMMANDS = re.compile(r"```bash\n(.+?)```", re.DOTALL)
_PROGRAM = re.compile(r"```python\n# train.py\n(.+?)```", re.DOTALL)
# What a user has after the installation, and no terminal to ask on.
INSTALLED = "\n".join(
    f"export {name}" for name in ("CAMPAIGN_YES=1", f"PYTHONPATH={ROOT}", f"PATH={Path(sys.executable).parent}:$PATH")
)


def text_of(page):
    return (ROOT / "docs" / "tutorials" / page).read_text(encoding="utf-8")


def follow(page, folder, places, environment=None):
    """Give all commands of a tutorial in one shell; return its output and the exit code of each block."""
    text = text_of(page)
    blocks = _COMMANDS.findall(text)
    script = INSTALLED + "".join(f"\n{block}\necho exit code $?\n" for block in blocks)
    for written, here in places.items():
        assert written in script, written
        script = script.replace(written, here)
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env={**(environment or os.environ), "HOME": str(folder)}, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    codes = [int(code) for code in re.findall(r"^exit code (\d+)$", done.stdout, re.MULTILINE)]
    assert len(codes) == len(blocks), done.stdout
    return done.stdout, codes


def lines_of(output, *starts):
    """Return of each start of a line whether the output has it."""
    return [start for start in starts if not re.search(rf"^{re.escape(start)}", output, re.MULTILINE)]


def test_the_first_measurement(tmp_path):
    smaller = "threads=1,2 dataset.files=256 iterations=4 benchmark.file_mb=50 benchmark.image_size=32"
    cell = "$(ls results/records | head -n 1)"

    output, codes = follow(
        "first-measurement.md", tmp_path, {"/scratch/me": f"{tmp_path}/me", "threads=1,8": smaller, "CELL": cell}
    )

    assert codes[0] == 0, output
    assert codes[1] == 0 or (codes[1] == 1 and "quiet" in output), output  # a neighbour may spoil runs
    assert lines_of(output, "one file, end to end", "random blocks", "files, read only", "files, decoded") == [], output
    assert lines_of(output, "report: ", f"{tmp_path}/me feeds TensorFlow", "What would help") == [], output
    assert "device_bytes" in output
    assert (tmp_path / "results" / "report.html").exists()


def test_my_own_training(tmp_path):
    (tmp_path / "images").mkdir()
    spec = ImageSpec(files=40, median_bytes=60_000, sigma=0.3, width=320, height=240, classes=1, seed=3)
    for index, size in enumerate(spec.sizes()):
        (tmp_path / "images" / f"{index}.jpg").write_bytes(spec.content(index, int(size)))
    (tmp_path / "train.py").write_text(_PROGRAM.search(text_of("my-training.md"))[1])
    cell = "$(ls stall/records | head -n 1)"

    output, codes = follow("my-training.md", tmp_path, {"/data/images": f"{tmp_path}/images", "CELL": cell})

    assert set(codes) <= {0, 1}, output
    assert codes[0] == 0 or "quiet" in output, output
    assert lines_of(output, "python train.py '{data}' 1", "cold, ", "warm, ", "in the timed part: ") == [], output
    assert (tmp_path / "stall" / "report.html").exists()
    assert (tmp_path / "after" / "report.html").exists()


def test_the_first_slurm_campaign(tmp_path):
    if reason := laboratory.missing():
        pytest.skip(reason)
    (tmp_path / "me").mkdir()
    with laboratory.lab(nodes=4, cpus=2) as cluster:
        output, codes = follow("slurm-campaign.md", tmp_path, {"/scratch/me": f"{tmp_path}/me"}, cluster.environment)

    assert codes[:3] == [0, 0, 0], output
    assert set(codes[3:]) <= {0, 1}, output
    assert codes[3] == 0 or "quiet" in output, output
    assert (
        lines_of(output, "cluster=auto: Slurm", "slurm       ok", "nodes       ok", "#SBATCH --partition=debug") == []
    )
    assert "node-hours" in output
    assert (tmp_path / "results" / "report.html").exists()


def test_every_tutorial_has_a_test_and_commands():
    assert {path.name: bool(_COMMANDS.search(text_of(path.name))) for path in (ROOT / "docs/tutorials").glob("*")} == {
        "first-measurement.md": True, "my-training.md": True, "slurm-campaign.md": True
    }  # fmt: skip
