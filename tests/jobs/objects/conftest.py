"""A store that fails as it is told, and credentials for it."""

import pytest

from tests.jobs.objects.fake_store import FakeStore

SECRET = "wJalrXUtnFEMIsecretEXAMPLEKEY"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIDTEST", "AWS_SECRET_ACCESS_KEY": SECRET}


@pytest.fixture
def signed(monkeypatch):
    for name in ("AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_SESSION_TOKEN", "AWS_SKIP_SIGNATURE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def store(signed):
    pytest.importorskip("obstore")
    server = FakeStore({f"photos/{number:02}.jpg": bytes([number]) * (1000 + number) for number in range(20)})
    yield server
    server.close()
