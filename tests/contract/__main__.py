"""Bring the contract's measured campaign up to date: `python -m tests.contract`, after a change of keys or columns.

Nothing is measured. The words of each request give the ids and the settings of its cells, and the analysis of the
records gives the expected tables. `git diff` then shows what the change does to a user's ids and numbers.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from campaign.config.collect import collect_points, make_cells
from tests.contract.test_measured import ACCEPTANCE, CAMPAIGN, write_tables


def main() -> None:
    """Rewrite ids, settings and expected tables."""
    marker = CAMPAIGN / "campaign.json"
    new_ids = {}
    for request in json.loads(marker.read_text(encoding="utf-8"))["requests"]:
        for old_id, cell in zip(request["cells"], make_cells(collect_points(request["words"]) or ())[0], strict=True):
            new_ids[old_id] = cell.id
            folder = (CAMPAIGN / "records" / old_id).rename(CAMPAIGN / "records" / cell.id)
            record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
            record["cell"] |= {"id": cell.id, "settings": cell.settings}
            (folder / "record.json").write_text(json.dumps(record, ensure_ascii=False) + "\n", encoding="utf-8")
    text = marker.read_text(encoding="utf-8")
    for old_id, new_id in new_ids.items():
        text = text.replace(old_id, new_id)
    marker.write_text(text, encoding="utf-8")
    with tempfile.TemporaryDirectory() as out:
        written = write_tables(Path(out))
        expected = ACCEPTANCE / "goldens" / "measured"
        shutil.rmtree(expected)
        expected.mkdir()
        for name, table in written.items():
            shutil.copy(table, expected / name)


if __name__ == "__main__":
    main()
