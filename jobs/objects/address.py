"""The address of a place in a bucket, in one word: ``https://HOST[:PORT]/BUCKET/PREFIX``.

Odd characters of the prefix are quoted (``%23``). Behind a question mark ``region=…``, ``timeout_s=…`` of a request,
and ``device=…``, what its servers store on, may follow. Credentials never do: they come from the environment or the
profile (`jobs.objects.credentials`).
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from jobs.errors import FolderError
from jobs.model.settings import Node

TIMEOUT_S = (0.1, 3600.0)
"""The least and the most of a request's timeout."""
_MORE = {"region": str, "device": str, "timeout_s": float}
_NO_PART = {"", ".", ".."}
_REGION = re.compile("[A-Za-z0-9-]{1,60}")
_EXAMPLE = "https://HOST/BUCKET/PREFIX without credentials, ?region=…&timeout_s=… (0.1 to 3600) perhaps; # is %23"


def address_of(store: Node) -> str:
    """Return the address of a storage of the settings or of a site."""
    keys = (quote(store["bucket"], safe=""), quote(str(store.get("prefix") or "").strip("/")))
    parts = (str(store["endpoint"]).rstrip("/"), *keys)
    query = urlencode({key: store[key] for key in _MORE if store.get(key)}, safe="/")
    return "/".join(filter(None, parts)) + (query and f"?{query}")


def split(address: str) -> tuple[str, str | None]:
    """Return an address without its device, and the device."""
    base, _, query = address.partition("?")
    more = dict(parse_qsl(query))
    device = more.pop("device", None)
    return "?".join(filter(None, (base, urlencode(more, safe="/")))), device


def below(address: str, *names: str) -> str:
    """Return the address of what is below another one."""
    base, mark, query = address.partition("?")
    return "/".join((base.rstrip("/"), *names)) + mark + query


def storage_of(address: str) -> Node:
    """Return what `jobs.objects.client.Client` takes, and ``device``; raises FolderError for what is no address."""
    try:
        found = urlsplit(address)
        more = {key: _MORE[key](value) for key, value in parse_qsl(found.query, strict_parsing=bool(found.query))}
        bucket, _, keys = found.path.strip("/").partition("/")
        prefix = unquote(keys, errors="strict")
    except (KeyError, ValueError):  # whose message may quote a password
        raise FolderError("no address of a bucket", _EXAMPLE) from None
    endpoint, (least, most) = f"{found.scheme}://{found.netloc}", TIMEOUT_S
    odd = "#" in address or not address.isprintable() or not least <= more.get("timeout_s", least) <= most
    odd = odd or not is_region(more.get("region", "none")) or not more.get("device", "").isprintable()
    if odd or not is_endpoint(endpoint) or not bucket or "%" in bucket or not is_prefix(prefix):
        raise FolderError("no address of a bucket", _EXAMPLE)
    where = {"endpoint": endpoint, "bucket": bucket, "prefix": prefix}
    return {**where, "region": os.environ.get("AWS_REGION") or "us-east-1", "device": None, **more}


def is_endpoint(text: str) -> bool:
    """Tell whether this is the address of a host alone: without a path, and without a password."""
    with suppress(ValueError):
        found = urlsplit(text)
        bare = not (found.path.strip("/") or found.query or found.fragment or "@" in found.netloc)
        return found.scheme in ("http", "https") and bool(found.hostname) and bare and found.port != 0
    return False


def host_and_port(endpoint: str) -> str:
    """Return what all spellings of an endpoint have in common: its host in small letters, loopback by one name."""
    found = urlsplit(endpoint)
    host = (found.hostname or "").rstrip(".")
    with suppress(ValueError):
        number = ip_address(host.partition("%")[0])
        number = getattr(number, "ipv4_mapped", None) or number
        host = "localhost" if number.is_loopback else str(number)
    return f"{host} {found.port or {'https': 443}.get(found.scheme, 80)}"


def is_region(text: str) -> bool:
    """Tell whether this may be the name of a region."""
    return _REGION.fullmatch(text) is not None


def shown(text: str) -> str:
    """Return what of an address may be repeated to people where it is refused: nothing that could be a password."""
    bare = re.split("[?#]", text.rpartition("@")[2])[0]
    with suppress(ValueError):  # a colon, and no port behind it
        _ = urlsplit(bare if "//" in bare else f"//{bare}").port
        return bare
    return "…"


def is_prefix(text: str) -> bool:
    """Tell whether keys may begin so; an empty one says nothing."""
    return not text or (text.isprintable() and _NO_PART.isdisjoint(text.split("/")))
