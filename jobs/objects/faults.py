"""The meaning of ``obstore`` errors: a word for the cause, and whether a retry can help."""

from __future__ import annotations

import re

from jobs.terminal import visible

_CODE, _STATUS = re.compile(r"<Code>(\w{1,60})</Code>"), re.compile(r"status code: (\d{3})")
_PATH = re.compile(r"Encountered object with invalid path: ([^\n]{1,300})")
_TRANSIENT = {"RequestTimeout", "SlowDown"}  # with any status
_DENIED = ("access denied", "ask the bucket's owner for permission, or use other credentials")
_REGION = ("the bucket is in another region", "storage.region=… is that of the bucket")
_REFUSALS = {
    "PermanentRedirect": _REGION,
    "AuthorizationHeaderMalformed": _REGION,
    "RequestTimeTooSkewed": ("the clocks of this machine and of the endpoint differ too much", "set this one: NTP"),
    "NoSuchBucket": ("there is no such bucket", "name an existing one (storage.bucket, or in the address)"),
    "QuotaExceeded": ("a quota is used up", "free some space, or ask for a larger quota"),
    "AccessDenied": _DENIED,
    "InvalidAccessKeyId": ("the endpoint does not know the access key", "check AWS_ACCESS_KEY_ID, or the profile"),
    "SignatureDoesNotMatch": ("the secret key is wrong", "check AWS_SECRET_ACCESS_KEY, or the profile"),
}
_SIGNS = {
    "Received redirect without LOCATION": _REGION,
    "InvalidCertificate": ("its certificate is not trusted here", "SSL_CERT_FILE=… names the certificates you trust"),
    "InvalidMessage": ("it speaks no TLS", "storage.endpoint=http://…, if nobody else can listen"),
}
FULL = (  # for a store that answers reads while writes time out
    "it answers reads but no writes: its disk is probably full",
    "let its owner make room (a full Ceph does not even remove objects), or name a larger storage.timeout_s",
)
_WORDS = (  # for failures that a retry may cure
    ("refused", ("ConnectionRefused", "Connection refused")),
    ("no such host", ("dns error", "failed to lookup address")),
    ("timeout", ("TimedOut", "kind: Timeout")),
    ("closed", ("UnexpectedEof", "Incomplete", "ConnectionReset", "ConnectionAborted", "BrokenPipe", "Closed")),
)

NOBODY = {"refused": "nobody listens there", "no such host": "the host has no address here"}
"""The causes of requests that reached no server, with their meaning."""


def cause_word(text: str) -> str:
    """Return the cause of a failed request as one word."""
    if status := _STATUS.search(text):
        return status[1]
    return next((cause for cause, signs in _WORDS if any(sign in text for sign in signs)), "other")


def refusal(error: BaseException, text: str) -> tuple[str, str] | None:
    """Return fault and cure if a retry is useless; None if it may help."""
    code = match[1] if (match := _CODE.search(text)) else ""
    if code in _REFUSALS:
        return _REFUSALS[code]
    if key := _PATH.search(text):
        fault = f"it lists a key that the client cannot read: {visible(key[1])}"
        return fault, "rename that object, or use a storage.prefix=… or dataset.path=… without it"
    if known_refusal := next((entry for sign, entry in _SIGNS.items() if sign in text), None):
        return known_refusal
    if type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError"):
        return _DENIED
    status = int(match[1]) if (match := _STATUS.search(text)) else 0
    is_transient = status in (408, 429) or code in _TRANSIENT
    if 400 <= status < 500 and not is_transient:  # noqa: PLR2004 - RFC 9110: the client's fault
        return f"it answers {status} {code}".strip(), "check its settings"
    return None
