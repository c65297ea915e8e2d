"""An address of a bucket says where, exactly, or is refused: what is cleared lies below it."""

from __future__ import annotations

import pytest

from jobs.errors import FolderError
from jobs.objects.address import address_of, below, storage_of


@pytest.mark.parametrize("prefix", ["runs#1", "a?region=x", "50%23", "ü b+c", "~a/[1]", ""])
def test_every_prefix_comes_back_and_what_lies_below_it_is_below_it(prefix):
    address = address_of({"endpoint": "https://h:1/", "bucket": "mine", "prefix": prefix, "region": "eu-1"})

    assert storage_of(address)["prefix"] == prefix
    found = storage_of(below(address, "checkpoints", "cell"))
    assert (found["bucket"], found["prefix"]) == ("mine", f"{prefix}/checkpoints/cell".lstrip("/"))
    assert found["region"] == "eu-1"


@pytest.mark.parametrize(
    "rest",
    [
        *("b/runs#1", "b/runs#", "b/a//b", "b//a", "b/./x", "b/x/../y", "b/x%2f%2e%2e%2fy", "b/a%2f", "b/%ff", "b/%1b"),
        *("b/a\nb", "b%2fa", "", *(f"b?timeout_s={odd}" for odd in ("nan", "inf", "-1", "0", "3601", "x")), "b?key=s"),
    ],
)
def test_an_address_that_says_something_else_than_it_seems_to_is_refused(rest):
    with pytest.raises(FolderError, match="no address of a bucket"):
        storage_of(f"https://h/{rest}")


@pytest.mark.parametrize(
    "host", ["https://key:secret@h", "https://key:secret", "ftp://h", "https://key:secret@h\u2100"]
)
def test_what_is_no_host_alone_is_refused_and_no_password_is_repeated(host):
    with pytest.raises(FolderError, match="no address of a bucket") as refused:
        storage_of(f"{host}/b")

    assert "secret" not in refused.value.message + refused.value.hint
