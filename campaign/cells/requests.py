"""Which requests in a campaign's folder are this user's own, given in this very folder.

A folder that was copied has the words of whoever measured there. A request has a keyed hash over itself and the path
of its folder; the key is the user's alone: ``~/.local/state/tfio-campaign/key`` (``XDG_STATE_HOME``).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from campaign.cells.cell import make_cell
from jobs.judging.judge import ODD_FIGURES
from jobs.model.record import Asked, Manifest, Record
from jobs.system import files

_KEY_BYTES = 32
_NO_KEY = (OSError, RuntimeError)  # RuntimeError: a user without a home


def marked(root: Path, request: Asked) -> Asked:
    """Return a request with the mark of this user; without one where no key can be kept."""
    with suppress(*_NO_KEY):
        return {**request, "mark": _mark(root, request)}
    return request


def is_own(root: Path, request: Asked) -> bool:
    """Return whether this user gave a request in this campaign folder."""
    with suppress(*_NO_KEY):
        return hmac.compare_digest(str(request.get("mark", "")).encode(), _mark(root, request).encode())
    return False


def own(root: Path, campaign: Manifest, recorded: Record) -> Asked | None:
    """Return this user's last request for the cell of a record; None where there is none, or it is another cell."""
    cell = recorded["cell"]["id"]
    with suppress(*ODD_FIGURES):
        point: Any = recorded["cell"]["settings"]
        if make_cell(point).id == cell:
            of_cell = (each for each in reversed(campaign["requests"]) if cell in each.get("cells", ()))
            return next((each for each in of_cell if is_own(root, each)), None)
    return None


def _mark(root: Path, request: Asked) -> str:
    signed = [str(root), {key: value for key, value in request.items() if key != "mark"}]
    return hmac.new(_key(), json.dumps(signed, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _key() -> bytes:
    """Return the user's key, made at its first use; OSError where there is no place for it."""
    state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser().resolve()
    path = state / "tfio-campaign" / "key"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        new = path.with_name(f".key.{secrets.token_hex(8)}")
        with files.whole(new, mode=0o600) as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
        try:
            with suppress(FileExistsError):  # another process was faster; no process ever sees half a key
                path.hardlink_to(new)
        finally:
            files.remove(new)
    key = files.read(path, owner=os.geteuid())
    if len(key) != _KEY_BYTES:
        raise OSError(f"{path} is no key")
    return key
