"""An address of a bucket says where, exactly, or is refused: what is cleared lies below it."""

from __future__ import annotations

import pytest

from jobs.errors import FolderError
from jobs.objects.address import address_below, address_of, address_without_secrets, host_and_port, storage_of


@pytest.mark.parametrize("prefix", ["runs#1", "a?region=x", "50%23", "ü b+c", "~a/[1]", ""])
def test_every_prefix_comes_back_and_what_lies_below_it_is_below_it(prefix):
    address = address_of({"endpoint": "https://h:1/", "bucket": "mine", "prefix": prefix, "region": "eu-1"})

    assert storage_of(address)["prefix"] == prefix
    found = storage_of(address_below(address, "checkpoints", "cell"))
    assert (found["bucket"], found["prefix"]) == ("mine", f"{prefix}/checkpoints/cell".lstrip("/"))
    assert found["region"] == "eu-1"


@pytest.mark.parametrize(
    "rest",
    [
        *("b/runs#1", "b/runs#", "b/a//b", "b//a", "b/./x", "b/x/../y", "b/x%2f%2e%2e%2fy", "b/a%2f", "b/%ff", "b/%1b"),
        *("b/a\nb", "b%2fa", "", *(f"b?timeout_s={odd}" for odd in ("nan", "inf", "-1", "0", "3601", "x")), "b?key=s"),
        *("b?region=eu%0a1", "b?region=eu_1", "b?region=a/b", "b?device=/dev/%0a"),
    ],
)
def test_an_address_that_says_something_else_than_it_seems_to_is_refused(rest):
    with pytest.raises(FolderError, match="not the address of a bucket"):
        storage_of(f"https://h/{rest}")


@pytest.mark.parametrize(
    "host", ["https://key:secret@h", "https://key:secret", "ftp://h", "https://key:secret@h\u2100"]
)
def test_what_is_no_host_alone_is_refused_and_no_password_is_repeated(host):
    with pytest.raises(FolderError, match="not the address of a bucket") as refused:
        storage_of(f"{host}/b")

    assert "secret" not in refused.value.message + refused.value.hint


@pytest.mark.parametrize(
    "host",
    ["key:secret", "key:sec/ret@h", "key:sec@ret@h", "key:secret@h", "h?token=secret", "h#secret", "key:secret@h:1?x"],
)
@pytest.mark.parametrize("scheme", ["https://", ""])
def test_what_of_an_address_is_repeated_is_no_password(scheme, host):
    assert "secret" not in address_without_secrets(f"{scheme}{host}/b")
    assert "sec" not in address_without_secrets(f"{scheme}{host}/b")


@pytest.mark.parametrize("plain", ["https://h/gateway", "ftp://h:21", "127.0.0.1:7480", "host"])
def test_an_address_without_a_password_is_repeated_as_it_was_written(plain):
    assert address_without_secrets(plain) == plain


@pytest.mark.parametrize(
    ("spellings", "same"),
    [
        (["https://h", "https://H/", "https://h.", "https://h:443", "http://h:443/"], True),
        (["http://h", "http://h:80"], True),
        (
            [
                "http://localhost:1",
                "http://127.0.0.1:1",
                "http://[::1]:1/",
                "http://[0:0::1]:1",
                "http://[::ffff:127.0.0.1]:1",
            ],
            True,
        ),
        (["http://h", "https://h"], False),
        (["http://h:1", "http://h:2"], False),
        (["http://10.0.0.1", "http://10.0.0.2"], False),
        (["http://localhost", "http://h"], False),
    ],
)
def test_an_endpoint_is_the_same_however_it_is_spelt(spellings, same):
    assert (len({host_and_port(each) for each in spellings}) == 1) is same
