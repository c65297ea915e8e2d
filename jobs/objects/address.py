"""The address of a place in a bucket, in one word: ``https://HOST[:PORT]/BUCKET/PREFIX``.

Behind a question mark ``region=…``, ``timeout_s=…`` of a request, and ``device=…``, what its servers store on, may
follow. Credentials never do: they come from the environment or the profile (`jobs.objects.credentials`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode, urlsplit

from jobs.errors import FolderError

if TYPE_CHECKING:
    from jobs.settings import Node

_MORE = {"region": str, "device": str, "timeout_s": float}


def address_of(store: Node) -> str:
    """Return the address of a storage of the settings or of a site."""
    parts = (str(store["endpoint"]).rstrip("/"), store["bucket"], str(store.get("prefix") or "").strip("/"))
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
    except (KeyError, ValueError) as error:
        raise FolderError(
            f"no address of a bucket: {error}", "https://HOST/BUCKET/PREFIX, ?region=… perhaps"
        ) from error
    bucket, _, prefix = found.path.strip("/").partition("/")
    if found.scheme not in ("http", "https") or not found.hostname or "@" in found.netloc or not bucket:
        raise FolderError("no address of a bucket", "https://HOST/BUCKET/PREFIX, without credentials")
    where = {"endpoint": f"{found.scheme}://{found.netloc}", "bucket": bucket, "prefix": prefix}
    return {**where, "region": os.environ.get("AWS_REGION") or "us-east-1", "device": None, **more}
