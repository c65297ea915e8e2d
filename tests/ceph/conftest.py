from __future__ import annotations

import hashlib

import pytest


@pytest.fixture
def storage(ceph, request, monkeypatch):
    """Settings of a storage on the gateway, with a prefix of its own."""
    for key, value in ceph.credentials.items():
        monkeypatch.setenv(key, value)
    prefix = hashlib.sha256(request.node.name.encode()).hexdigest()[:8]
    told = {"endpoint": ceph.endpoint, "bucket": ceph.bucket, "region": ceph.region, "prefix": prefix}
    return {**told, "timeout_s": 5.0, "retries": 3, "backoff_s": 0.1}
