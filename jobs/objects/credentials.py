"""The credentials of an object store: from the environment or the usual profile, and kept nowhere else."""

from __future__ import annotations

import configparser
import os
from pathlib import Path
from typing import Any

from jobs.errors import ObjectStoreError
from jobs.system import files

_MOST_BYTES = 1 << 20
_KEYS = {
    "AWS_ACCESS_KEY_ID": "access_key_id",
    "AWS_SECRET_ACCESS_KEY": "secret_access_key",
    "AWS_SESSION_TOKEN": "session_token",
}
_CURE = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile of ~/.aws/credentials with AWS_PROFILE;"
    " for a public bucket AWS_SKIP_SIGNATURE=true"
)


def signing() -> dict[str, Any]:
    """Return how requests are signed, in the words of ``obstore.store.S3Store``; errors are those of `found`.

    Keys are given by a function: to those given as words, obstore would add a session token of the environment, which
    may be that of other keys.
    """
    given = found()
    if "skip_signature" in given:
        return given
    token = given.pop("session_token", None)
    return {"credential_provider": lambda: {**given, "token": token, "expires_at": None}}


def found() -> dict[str, str | bool]:
    """Return the credentials, or that there are to be none; raises ObjectStoreError where nothing is said of them.

    Never asked is the metadata service of a cloud, which does not answer elsewhere.
    """
    if os.environ.get("AWS_SKIP_SIGNATURE", "").lower() in ("1", "true"):
        return {"skip_signature": True}
    given = {word: value for key, word in _KEYS.items() if (value := os.environ.get(key))}
    if not given.keys() >= {"access_key_id", "secret_access_key"}:
        given = _of_profile()
    return {**given}


def _of_profile() -> dict[str, str]:
    path = Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials").expanduser().resolve()
    name = os.environ.get("AWS_PROFILE") or "default"
    profiles = configparser.RawConfigParser()
    try:
        profiles.read_string(files.read(path, _MOST_BYTES).decode())
    except FileNotFoundError:
        raise ObjectStoreError("there are no credentials for the object store", _CURE) from None
    except (OSError, ValueError, configparser.Error):  # whose message would quote the line
        raise ObjectStoreError(f"{path} cannot be read as a file of credentials", _CURE) from None
    section = profiles[name] if profiles.has_section(name) else {}
    given = {word: value for key, word in _KEYS.items() if (value := section.get(key.lower()))}
    if not given.keys() >= {"access_key_id", "secret_access_key"}:
        raise ObjectStoreError(f"{path} has no whole profile [{name}]", _CURE)
    return given
