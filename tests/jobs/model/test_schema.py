"""The JSON Schema of a record, for those who read it without this program."""

import subprocess
import sys
from pathlib import Path

from jobs.model.__main__ import schema_lines

ROOT = Path(__file__).parents[3]
COMMAND = "python -m jobs.model > docs/reference/record.schema.json"


def test_the_schema_is_what_the_declarations_say_and_its_command_prints_it():
    page = (ROOT / "docs" / "reference" / "record.schema.json").read_text(encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "jobs.model"], cwd=ROOT, capture_output=True, text=True, check=True)

    assert page == "\n".join(schema_lines()) + "\n", f"it is stale: {COMMAND}"
    assert page == done.stdout
