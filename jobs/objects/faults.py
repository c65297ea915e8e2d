"""Classify errors of ``obstore``: name the cause of an error in one word, and decide whether a retry can help."""

from __future__ import annotations

import re

from jobs.terminal import visible

_CODE, _STATUS = re.compile(r"<Code>(\w{1,60})</Code>"), re.compile(r"status code: (\d{3})")
_PATH = re.compile(r"Encountered object with invalid path: ([^\n]{1,300})")
_TRANSIENT = {"RequestTimeout", "SlowDown"}  # error codes for which a retry can help, with any HTTP status
_DENIED = ("access denied", "ask the owner of the bucket for permission, or use other credentials")
_REGION = ("the bucket is in another region", "set storage.region=… to the region of the bucket")
_REFUSALS = {
    "PermanentRedirect": _REGION,
    "AuthorizationHeaderMalformed": _REGION,
    "RequestTimeTooSkewed": (
        "the clocks of this machine and of the endpoint differ too much",
        "set the clock of this machine, for example with NTP",
    ),
    "NoSuchBucket": ("there is no such bucket", "name an existing bucket (storage.bucket, or in the address)"),
    "QuotaExceeded": ("a quota is used up", "free some space, or ask for a larger quota"),
    "AccessDenied": _DENIED,
    "InvalidAccessKeyId": ("the endpoint does not know the access key", "check AWS_ACCESS_KEY_ID, or the profile"),
    "SignatureDoesNotMatch": ("the secret key is wrong", "check AWS_SECRET_ACCESS_KEY, or the profile"),
}
_SIGNS = {
    "Received redirect without LOCATION": _REGION,
    "InvalidCertificate": (
        "the certificate of the endpoint is not trusted on this machine",
        "set SSL_CERT_FILE=… to a file with the certificates that you trust",
    ),
    "InvalidMessage": (
        "the endpoint speaks no TLS",
        "use storage.endpoint=http://… if no stranger can read the network traffic",
    ),
}
STORE_IS_FULL = (  # fault and cure for a store that answers reads while writes time out
    "the store answers reads but no writes: its disk is probably full",
    "ask the owner of the store for space (a full Ceph store cannot even remove objects), or raise storage.timeout_s",
)
_WORDS = (  # causes of failures for which a retry may help, with the error texts that show each cause
    ("refused", ("ConnectionRefused", "Connection refused")),
    ("no such host", ("dns error", "failed to lookup address")),
    ("timeout", ("TimedOut", "kind: Timeout")),
    ("closed", ("UnexpectedEof", "Incomplete", "ConnectionReset", "ConnectionAborted", "BrokenPipe", "Closed")),
)

UNREACHABLE_CAUSES = {"refused": "no server listens there", "no such host": "the name of the host has no IP address"}
"""The causes of requests that did not reach a server, with a text that explains each cause."""


def cause_word(text: str) -> str:
    """Return the cause of a failed request: the HTTP status code, or one or more words; `text` is the error message."""
    if status := _STATUS.search(text):
        return status[1]
    return next((cause for cause, signs in _WORDS if any(sign in text for sign in signs)), "other")


def refusal(error: BaseException, text: str) -> tuple[str, str] | None:
    """Return the fault and the cure if a retry cannot help, or None if a retry may help."""
    code = match[1] if (match := _CODE.search(text)) else ""
    if code in _REFUSALS:
        return _REFUSALS[code]
    if key := _PATH.search(text):
        fault = f"the bucket has an object whose key the client cannot read: {visible(key[1])}"
        return fault, "rename this object, or use a storage.prefix=… or dataset.path=… that excludes this object"
    if known_refusal := next((entry for sign, entry in _SIGNS.items() if sign in text), None):
        return known_refusal
    if type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError"):
        return _DENIED
    status = int(match[1]) if (match := _STATUS.search(text)) else 0
    is_transient = status in (408, 429) or code in _TRANSIENT
    if 400 <= status < 500 and not is_transient:  # noqa: PLR2004 - RFC 9110: an error of the client
        return f"the endpoint answers {status} {code}".strip(), "check the settings storage.*"
    return None
