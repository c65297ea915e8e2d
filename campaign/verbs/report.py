"""`python -m campaign report`: tables, figures and the page anew, from the records on disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from campaign.folder import existing
from campaign.verbs import asked


def main(argv: list[str]) -> int:
    """Hand the folder to the analysis; its exit code is ours."""
    parser = asked.parser("report", "Make tables, figures and report.html anew, from the records on disk.", json=False)
    parser.add_argument(
        "--out", type=Path, help="folder for report.html, figures/ and tables/ (default: the campaign's own)"
    )
    asked.add_folder(parser)
    options = parser.parse_args(argv)
    folder, _ = existing(options.campaign_dir)
    return analyse(folder.root, *(["--out", str(options.out)] if options.out else []))


def analyse(root: Path, *words: str) -> int:
    """Run `python -m analysis` in a process of its own: pandas and matplotlib stay out of the front process."""
    return subprocess.run([sys.executable, "-m", "analysis", str(root), *words], check=False).returncode
