"""Parse and write the address of a prefix in a bucket: ``https://HOST[:PORT]/BUCKET/PREFIX``.

Special characters of the prefix are percent-encoded: ``%23`` is ``#``. Options may follow after a question mark:
``region=…``, ``timeout_s=…`` (longest time of a request) and ``device=…`` (disk of the servers). An address never
contains credentials: the function `credentials` reads them from the environment or from the usual profile file.
"""

from __future__ import annotations

import configparser
import os
import re
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from jobs.errors import FolderError, ObjectStoreError
from jobs.model.settings import Node
from jobs.system import files

TIMEOUT_S = (0.1, 3600.0)
"""The smallest and the largest allowed timeout of a request, in seconds."""
_OPTIONS = {"region": str, "device": str, "timeout_s": float}
_INVALID_PARTS = {"", ".", ".."}
_REGION = re.compile("[A-Za-z0-9-]{1,60}")
_EXAMPLE = (
    "write https://HOST/BUCKET/PREFIX without credentials; options: ?region=…&timeout_s=… (0.1 to 3600); write # as %23"
)


def address_of(store: Node) -> str:
    """Return the address of an S3 storage; `store` is the storage's settings."""
    keys = (quote(store["bucket"], safe=""), quote(str(store.get("prefix") or "").strip("/")))
    parts = (str(store["endpoint"]).rstrip("/"), *keys)
    query = urlencode({key: store[key] for key in _OPTIONS if store.get(key)}, safe="/")
    return "/".join(filter(None, parts)) + (query and f"?{query}")


def split_device(address: str) -> tuple[str, str | None]:
    """Return the address without the option ``device``, and the device, or None if the address has no device."""
    base, _, query = address.partition("?")
    options = dict(parse_qsl(query))
    device = options.pop("device", None)
    return "?".join(filter(None, (base, urlencode(options, safe="/")))), device


def address_below(address: str, *names: str) -> str:
    """Return `address` with `names` appended to its prefix."""
    base, mark, query = address.partition("?")
    return "/".join((base.rstrip("/"), *names)) + mark + query


def storage_of(address: str) -> Node:
    """Return the settings of the storage at an address, for `jobs.objects.client.Client`.

    Raises FolderError if the address is invalid.
    """
    try:
        url = urlsplit(address)
        options = {key: _OPTIONS[key](value) for key, value in parse_qsl(url.query, strict_parsing=bool(url.query))}
        bucket, _, keys = url.path.strip("/").partition("/")
        prefix = unquote(keys, errors="strict")
    except (KeyError, ValueError):  # `from None`, because the message of the first error may contain a password
        raise FolderError("this is not the address of a bucket", _EXAMPLE) from None
    endpoint, (smallest, largest) = f"{url.scheme}://{url.netloc}", TIMEOUT_S
    is_invalid = "#" in address or not address.isprintable()
    is_invalid = is_invalid or not smallest <= options.get("timeout_s", smallest) <= largest
    is_invalid = (
        is_invalid or not is_region(options.get("region", "none")) or not options.get("device", "").isprintable()
    )
    if is_invalid or not is_endpoint(endpoint) or not bucket or "%" in bucket or not is_prefix(prefix):
        raise FolderError("this is not the address of a bucket", _EXAMPLE)
    settings = {"endpoint": endpoint, "bucket": bucket, "prefix": prefix}
    return {**settings, "region": os.environ.get("AWS_REGION") or "us-east-1", "device": None, **options}


def is_endpoint(text: str) -> bool:
    """Return whether a text is the http or https address of a host, without a path and without a password."""
    with suppress(ValueError):
        url = urlsplit(text)
        is_bare = not (url.path.strip("/") or url.query or url.fragment or "@" in url.netloc)
        return url.scheme in ("http", "https") and bool(url.hostname) and is_bare and url.port != 0
    return False


def host_and_port(endpoint: str) -> str:
    """Return the host and port of an endpoint in a standard spelling, so that equal endpoints compare equal.

    The host is in lower case, and ``localhost`` stands for all addresses of the loopback interface.
    """
    url = urlsplit(endpoint)
    host = (url.hostname or "").rstrip(".")
    with suppress(ValueError):
        number = ip_address(host.partition("%")[0])
        number = getattr(number, "ipv4_mapped", None) or number
        host = "localhost" if number.is_loopback else str(number)
    return f"{host} {url.port or {'https': 443}.get(url.scheme, 80)}"


def canonical_address(address: str) -> str:
    """Return the standard spelling of an address, so that two addresses of one endpoint or prefix compare equal."""
    with suppress(ValueError):  # `storage_of` refuses an invalid address
        url = urlsplit(address)
        host = f"{url.scheme}://{host_and_port(address).replace(' ', ':')}"
        return "/".join(filter(None, (host, url.path.strip("/")))) + (url.query and f"?{url.query}")
    return address


def is_region(text: str) -> bool:
    """Return whether a text is a valid name of an S3 region."""
    return _REGION.fullmatch(text) is not None


def address_without_secrets(text: str) -> str:
    """Return the part of an invalid address that an error message may show: nothing that could be a password."""
    host_part = re.split("[?#]", text.rpartition("@")[2])[0]
    with suppress(ValueError):  # if no port follows the colon, a part of a password may follow
        _ = urlsplit(host_part if "//" in host_part else f"//{host_part}").port
        return host_part
    return "…"


def is_prefix(text: str) -> bool:
    """Return whether a text is a valid prefix of object keys; the empty prefix is valid."""
    return not text or (text.isprintable() and _INVALID_PARTS.isdisjoint(text.split("/")))


_MOST_BYTES = 1 << 20
_KEYS = {
    "AWS_ACCESS_KEY_ID": "access_key_id",
    "AWS_SECRET_ACCESS_KEY": "secret_access_key",
    "AWS_SESSION_TOKEN": "session_token",
}
_CURE = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile of ~/.aws/credentials with AWS_PROFILE;"
    " for a public bucket, set AWS_SKIP_SIGNATURE=true"
)


def signing_arguments() -> dict[str, Any]:
    """Return the arguments with which ``obstore.store.S3Store`` signs requests.

    The keys are passed by a function (``credential_provider``). To keys that are passed as strings, obstore would add a
    session token from the environment, which may belong to other keys. Raises ObjectStoreError like `credentials`.
    """
    keys = credentials()
    if "skip_signature" in keys:
        return keys
    token = keys.pop("session_token", None)
    return {"credential_provider": lambda: {**keys, "token": token, "expires_at": None}}


def credentials() -> dict[str, str | bool]:
    """Return the credentials from the environment or from a profile, or ``{"skip_signature": True}``.

    This function never sends a request to the metadata service of a cloud, because such a request gets no answer
    outside a cloud. Raises ObjectStoreError if there are no credentials.
    """
    if os.environ.get("AWS_SKIP_SIGNATURE", "").lower() in ("1", "true"):
        return {"skip_signature": True}
    keys = {word: value for key, word in _KEYS.items() if (value := os.environ.get(key))}
    if not keys.keys() >= {"access_key_id", "secret_access_key"}:
        keys = _read_profile()
    return {**keys}


def _read_profile() -> dict[str, str]:
    path = Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials").expanduser().resolve()
    name = os.environ.get("AWS_PROFILE") or "default"
    profiles = configparser.RawConfigParser()
    try:
        profiles.read_string(files.read_file(path, _MOST_BYTES).decode())
    except FileNotFoundError:
        raise ObjectStoreError("there are no credentials for the object store", _CURE) from None
    except (OSError, ValueError, configparser.Error):  # `from None`, because the first message would quote the secret
        raise ObjectStoreError(f"{path} cannot be read as a file of credentials", _CURE) from None
    section = profiles[name] if profiles.has_section(name) else {}
    keys = {word: value for key, word in _KEYS.items() if (value := section.get(key.lower()))}
    if not keys.keys() >= {"access_key_id", "secret_access_key"}:
        raise ObjectStoreError(f"{path} has no complete profile [{name}]", _CURE)
    return keys
