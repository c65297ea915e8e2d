"""The address of a prefix in a bucket as one text: ``https://HOST[:PORT]/BUCKET/PREFIX``.

Special characters of the prefix are quoted (``%23``). A question mark may follow, with ``region=…``, ``timeout_s=…``
(of a request) and ``device=…`` (the servers' disk), but never credentials: these are read from the environment or the
usual profile (`credentials`) and stored nowhere else.
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
"""The smallest and the largest timeout of a request."""
_OPTIONS = {"region": str, "device": str, "timeout_s": float}
_INVALID_PARTS = {"", ".", ".."}
_REGION = re.compile("[A-Za-z0-9-]{1,60}")
_EXAMPLE = "https://HOST/BUCKET/PREFIX without credentials, ?region=…&timeout_s=… (0.1 to 3600) perhaps; # is %23"


def address_of(store: Node) -> str:
    """Return the address of a storage, given by its settings."""
    keys = (quote(store["bucket"], safe=""), quote(str(store.get("prefix") or "").strip("/")))
    parts = (str(store["endpoint"]).rstrip("/"), *keys)
    query = urlencode({key: store[key] for key in _OPTIONS if store.get(key)}, safe="/")
    return "/".join(filter(None, parts)) + (query and f"?{query}")


def split_device(address: str) -> tuple[str, str | None]:
    """Return the address without its device, and the device or None."""
    base, _, query = address.partition("?")
    options = dict(parse_qsl(query))
    device = options.pop("device", None)
    return "?".join(filter(None, (base, urlencode(options, safe="/")))), device


def address_below(address: str, *names: str) -> str:
    """Return the address of `names` below another address."""
    base, mark, query = address.partition("?")
    return "/".join((base.rstrip("/"), *names)) + mark + query


def storage_of(address: str) -> Node:
    """Return the settings of a storage, for `jobs.objects.client.Client`; raise FolderError for an invalid address."""
    try:
        url = urlsplit(address)
        options = {key: _OPTIONS[key](value) for key, value in parse_qsl(url.query, strict_parsing=bool(url.query))}
        bucket, _, keys = url.path.strip("/").partition("/")
        prefix = unquote(keys, errors="strict")
    except (KeyError, ValueError):  # the message may quote a password
        raise FolderError("no address of a bucket", _EXAMPLE) from None
    endpoint, (smallest, largest) = f"{url.scheme}://{url.netloc}", TIMEOUT_S
    is_invalid = "#" in address or not address.isprintable()
    is_invalid = is_invalid or not smallest <= options.get("timeout_s", smallest) <= largest
    is_invalid = (
        is_invalid or not is_region(options.get("region", "none")) or not options.get("device", "").isprintable()
    )
    if is_invalid or not is_endpoint(endpoint) or not bucket or "%" in bucket or not is_prefix(prefix):
        raise FolderError("no address of a bucket", _EXAMPLE)
    settings = {"endpoint": endpoint, "bucket": bucket, "prefix": prefix}
    return {**settings, "region": os.environ.get("AWS_REGION") or "us-east-1", "device": None, **options}


def is_endpoint(text: str) -> bool:
    """Return whether this is the address of a host without a path and without a password."""
    with suppress(ValueError):
        url = urlsplit(text)
        is_bare = not (url.path.strip("/") or url.query or url.fragment or "@" in url.netloc)
        return url.scheme in ("http", "https") and bool(url.hostname) and is_bare and url.port != 0
    return False


def host_and_port(endpoint: str) -> str:
    """Return host and port in a form that is equal for all spellings: lower case, one name for the loopback."""
    url = urlsplit(endpoint)
    host = (url.hostname or "").rstrip(".")
    with suppress(ValueError):
        number = ip_address(host.partition("%")[0])
        number = getattr(number, "ipv4_mapped", None) or number
        host = "localhost" if number.is_loopback else str(number)
    return f"{host} {url.port or {'https': 443}.get(url.scheme, 80)}"


def canonical_address(address: str) -> str:
    """Return the standard spelling of an address, so that addresses of the same endpoint or prefix compare equal."""
    with suppress(ValueError):  # an invalid address is refused elsewhere
        url = urlsplit(address)
        host = f"{url.scheme}://{host_and_port(address).replace(' ', ':')}"
        return "/".join(filter(None, (host, url.path.strip("/")))) + (url.query and f"?{url.query}")
    return address


def is_region(text: str) -> bool:
    """Return whether this is a valid name of a region."""
    return _REGION.fullmatch(text) is not None


def address_without_secrets(text: str) -> str:
    """Return the part of a refused address that may be shown, without anything that could be a password."""
    host_part = re.split("[?#]", text.rpartition("@")[2])[0]
    with suppress(ValueError):  # a colon without a port
        _ = urlsplit(host_part if "//" in host_part else f"//{host_part}").port
        return host_part
    return "…"


def is_prefix(text: str) -> bool:
    """Return whether this is a valid prefix of keys; an empty one is valid."""
    return not text or (text.isprintable() and _INVALID_PARTS.isdisjoint(text.split("/")))


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


def signing_arguments() -> dict[str, Any]:
    """Return the signing arguments for ``obstore.store.S3Store``; errors are those of `credentials`.

    A function passes the keys, because obstore would add a session token from the environment to keys that are passed
    as strings, and that token may belong to other keys.
    """
    keys = credentials()
    if "skip_signature" in keys:
        return keys
    token = keys.pop("session_token", None)
    return {"credential_provider": lambda: {**keys, "token": token, "expires_at": None}}


def credentials() -> dict[str, str | bool]:
    """Return the credentials, or the choice of no signature; raise ObjectStoreError without either.

    The metadata service of a cloud is never asked, because outside a cloud it does not answer.
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
    except (OSError, ValueError, configparser.Error):  # the message would quote the line
        raise ObjectStoreError(f"{path} cannot be read as a file of credentials", _CURE) from None
    section = profiles[name] if profiles.has_section(name) else {}
    keys = {word: value for key, word in _KEYS.items() if (value := section.get(key.lower()))}
    if not keys.keys() >= {"access_key_id", "secret_access_key"}:
        raise ObjectStoreError(f"{path} has no complete profile [{name}]", _CURE)
    return keys
