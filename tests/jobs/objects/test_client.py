"""The client: it delivers what is stored, and counts whatever goes wrong on the way."""

from __future__ import annotations

import contextlib
import hashlib
import threading

import pytest

from jobs.errors import ObjectStoreError
from jobs.objects import address
from jobs.objects import client as client_module
from jobs.objects.client import Client, DataError
from jobs.objects.run_objects import ReadAhead
from tests.jobs.objects.conftest import CREDENTIALS, SECRET
from tests.jobs.objects.fake_store import BUSY, DENIED, SKEWED, FakeStore

KEY = "photos/07.jpg"


@pytest.fixture
def client(store):
    return Client(store.storage)


@pytest.fixture
def pauses(monkeypatch):
    """What was waited for between requests; nobody waits."""
    found = []
    monkeypatch.setattr("jobs.system.clock.wait", found.append)
    return found


def test_objects_are_listed_below_the_prefix_and_read_whole_or_in_part(store):
    client = Client({**store.storage, "prefix": "/photos/"})
    listed = {each.key: each for each in client.list_objects()}

    assert {key: each.size for key, each in listed.items()} == {f"{n:02}.jpg": 1000 + n for n in range(20)}
    assert bytes(client.get("07.jpg", listed["07.jpg"])) == store.objects[KEY]
    assert bytes(client.get("07.jpg", span=(10, 30))) == store.objects[KEY][10:30]
    assert client.key_of(client.url_of("a/b")) == "a/b"
    with pytest.raises(ObjectStoreError, match="no such bucket"):
        list(Client({**store.storage, "bucket": "other"}).list_objects())


@pytest.mark.parametrize(
    ("fault", "word"),
    [
        (BUSY, "503"),
        ((400, "RequestTimeout"), "400"),
        ("close", "closed"),
        ("cut", "closed"),
        ("spoiled", "wrong data"),
    ],
)
def test_a_request_that_fails_is_sent_again_and_counted_by_what_went_wrong(store, pauses, fault, word):
    client = Client({**store.storage, "checksum": True})
    (known,) = (each for each in client.list_objects() if each.key == KEY)
    store.script = [fault]

    data = client.get(KEY, known._replace(sha256=hashlib.sha256(store.objects[KEY]).hexdigest()))

    assert bytes(data) == store.objects[KEY]
    assert (dict(client.counts.errors), client.counts.retries, len(pauses)) == ({word: 1}, 1, 1)
    assert (len(store.gets), client.counts.bytes, client.answered) == (2, len(store.objects[KEY]), True)


def test_the_first_byte_is_as_late_as_the_store_lets_it_be(store, client):
    store.delay_s = 0.05

    client.get(KEY)

    assert store.delay_s <= client.counts.first_byte_s[0] <= client.counts.whole_s[0]


def test_a_request_without_an_answer_is_sent_again_when_its_time_is_up(store, pauses):
    store.script = ["hang"]
    client = Client({**store.storage, "timeout_s": 0.2})

    assert bytes(client.get(KEY)) == store.objects[KEY]
    assert client.counts.errors == {"timeout": 1}
    store.script = ["hang"]
    with pytest.raises(ObjectStoreError, match="timeout") as caught:
        Client({**store.storage, "timeout_s": 0.2, "retries": 0}).get(KEY)
    assert "storage.timeout_s" in caught.value.hint


def test_a_key_that_the_client_cannot_read_is_named_at_once(store, client):
    store.objects["photos/a//b.jpg"] = b"1"

    with pytest.raises(ObjectStoreError, match=r"cannot read: Path .photos/a//b\.jpg"):
        list(client.list_objects("photos"))
    assert client.counts.retries == 0


def test_a_store_that_is_gone_fails_the_client_after_its_retries_and_then_at_once(store, pauses):
    store.close()
    client = Client({**store.storage, "retries": 7, "backoff_s": 0.3})

    for _ in range(2):
        with pytest.raises(ObjectStoreError, match=r"no answer \(refused\) after 8 requests"):
            client.get(KEY)

    assert client.counts.errors == {"refused": 8}
    assert pauses == [0.1, 0.2, *[0.3] * 5]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (DENIED, "access denied"),
        (SKEWED, "clocks"),
        ((400, "Odd"), "400 Odd"),
        ((301, "PermanentRedirect"), "another region"),
        ((400, "AuthorizationHeaderMalformed"), "another region"),
    ],
)
def test_a_refusal_is_not_asked_again_and_has_a_word_and_no_credentials(store, client, fault, words):
    store.script = [fault]

    with pytest.raises(ObjectStoreError, match=words) as caught:
        client.get(KEY)

    assert len(store.gets) == 1
    assert SECRET not in repr(caught.value) + repr(caught.value.__cause__)
    assert "AKIDTEST" not in str(caught.value)


def test_an_address_that_speaks_no_tls_is_said_so_at_once(store):
    client = Client({**store.storage, "endpoint": store.storage["endpoint"].replace("http:", "https:")})

    with pytest.raises(ObjectStoreError, match="speaks no TLS"):
        client.get(KEY)

    assert client.counts.retries == 0


def test_an_object_that_is_missing_is_no_fault_of_the_store(store, client):
    with pytest.raises(DataError, match=r"99\.jpg is missing"):
        client.get("photos/99.jpg")

    assert bytes(client.get(KEY)) == store.objects[KEY]
    assert (client.counts.errors, client.fault) == ({"missing": 1}, None)


@pytest.mark.parametrize(
    ("fault", "checksum", "said"),
    [("changed", False, "changed"), ("spoiled", True, "checksum"), ("spoiled", False, None)],
)
def test_other_bytes_than_listed_are_asked_for_once_more_and_then_refused(store, pauses, fault, checksum, said):
    client = Client({**store.storage, "checksum": checksum})
    (known,) = (each for each in client.list_objects() if each.key == KEY)
    known = known._replace(sha256=hashlib.sha256(store.objects[KEY]).hexdigest())
    store.script = [fault] * 2

    if said is None:  # the ETag of the answer is right, and nobody has looked at the bytes
        assert bytes(client.get(KEY, known)) == bytes(len(store.objects[KEY]))
        return
    with pytest.raises(DataError, match=said):
        client.get(KEY, known)
    assert (client.counts.errors, client.counts.bytes) == ({"wrong data": 2}, 0)


def test_keys_of_the_profile_are_not_sent_with_a_session_token_of_the_environment(store, monkeypatch, tmp_path):
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_SESSION_TOKEN", "stale")
    for token, sent in (("", None), ("aws_session_token=its own\n", "its own")):
        text = f"[default]\naws_access_key_id=A\naws_secret_access_key=B\n{token}"
        (tmp_path / "credentials").write_text(text)

        Client(store.storage).get(KEY)

        assert "Credential=A/" in store.headers["Authorization"]
        assert store.headers["X-Amz-Security-Token"] == sent


def test_credentials_come_from_the_environment_else_from_the_profile(signed, monkeypatch, tmp_path):
    assert address.credentials() == {"access_key_id": "AKIDTEST", "secret_access_key": SECRET}

    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_PROFILE", "lab")
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    file.write_text("[default]\naws_access_key_id = no\n[lab]\naws_access_key_id=A\naws_secret_access_key=B%C\n")
    assert address.credentials() == {"access_key_id": "A", "secret_access_key": "B%C"}
    file.write_text(f"[lab]\n{SECRET}\n")
    with pytest.raises(ObjectStoreError) as caught:
        address.credentials()
    assert SECRET not in f"{caught.value!r} {caught.value.__cause__!r}"
    file.unlink()
    with pytest.raises(ObjectStoreError, match="no credentials"):
        address.credentials()
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    assert address.credentials() == {"skip_signature": True}


@pytest.mark.parametrize("concurrency", [1, 3])
def test_ahead_keeps_so_many_requests_in_flight_and_gives_each_object_to_whom_asks_for_it(store, concurrency):
    store.delay_s = 0.01
    client = Client(store.storage)
    wanted = [(each.key, each) for each in client.list_objects("photos")]
    ahead = ReadAhead(client, wanted, concurrency)
    assert store.gets == []  # before the clock

    taken = {name: bytes(ahead.take(name)) for name, _ in wanted[:10]}
    others = threading.active_count()
    ahead.close()

    assert taken == {name: store.objects[name] for name, _ in wanted[:10]}
    assert store.most == concurrency
    assert len(store.gets) <= 10 + 2 * concurrency  # no more is made ahead than that
    assert threading.active_count() < others + 1
    assert ahead.take("not among them") is None


def test_an_error_of_ahead_comes_to_whom_asks_for_the_object(store):
    client = Client(store.storage)
    wanted = [(each.key, each) for each in client.list_objects("photos")]
    del store.objects[wanted[3][0]]
    ahead = ReadAhead(client, wanted, 2)

    outcomes = []
    for name, _ in wanted:
        try:
            outcomes.append(len(ahead.take(name)))
        except DataError:
            outcomes.append(None)
    ahead.close()

    assert outcomes == [None if number == 3 else 1000 + number for number in range(20)]


def test_a_proxy_of_the_environment_is_named_and_loopback_does_without(store, monkeypatch):
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "other.example")
    monkeypatch.setenv("http_proxy", "http://me:secret@127.0.0.1:9")

    near, far = (
        Client({**store.storage, **changed}) for changed in ({}, {"endpoint": "http://far.invalid", "retries": 0})
    )

    assert len(list(near.list_objects("photos"))) == 20
    assert "proxy" not in near.path
    assert far.path["proxy"] == "127.0.0.1:9"
    with pytest.raises(ObjectStoreError, match=r"http://far.invalid through the proxy 127.0.0.1:9, bucket") as caught:
        list(far.list_objects())
    assert "secret" not in caught.value.message


@pytest.mark.parametrize("rows", [0, 1, 20])
def test_a_list_that_has_no_end_is_an_error_and_not_asked_for_again(store, monkeypatch, rows):
    monkeypatch.setattr(client_module.untrusted, "MOST_NAMES", 1500)
    store.rows_of_endless = rows

    with pytest.raises(ObjectStoreError, match=r"store lists \d+ objects, and claims to have more") as error:
        list(Client({**store.storage, "timeout_s": 0.2 if rows < 20 else 30.0}).list_objects())

    assert "a store of objects" in error.value.hint
    assert store.lists == 1


def test_who_is_named_by_a_redirection_gets_no_signature(store, client):
    other = FakeStore({KEY: b"theirs"})
    store.script = [f"{other.storage['endpoint']}/bucket/{KEY}"]

    with contextlib.suppress(DataError):
        client.get(KEY)
    other.close()

    assert "Authorization" in store.headers
    assert other.gets == [KEY]
    assert "Authorization" not in other.headers


def test_a_large_object_is_one_request(store, tmp_path):
    content = bytes(6 << 20)  # obstore alone would begin a multipart upload at 5 MiB, which this store cannot
    (tmp_path / "large").write_bytes(content)
    client = Client({**store.storage, "retries": 0})

    assert client.put("bytes", content) == store.etag("bytes")
    assert client.put("file", tmp_path / "large") == store.etag("file")
    assert store.objects["file"] == store.objects["bytes"] == content
