"""What a record has of the objects of a run: each figure is that of the client, and of the run alone."""

import threading
from array import array
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from jobs.objects.client import RequestCounts
from jobs.observe.storages import ObjectStoreObserver


@pytest.mark.parametrize("number", [1, 7, 10, 101])
def test_a_record_has_the_counts_of_the_run_alone(number):
    seconds = np.random.default_rng(number).gamma(1.0, 0.03, 2 * number)
    first, whole = (array("d", part) for part in (seconds[:number], seconds[number:]))
    client = SimpleNamespace(lock=threading.Lock(), counts=RequestCounts(9, 8), path={"bucket": "b"})
    client.storage = {"endpoint": "http://192.0.2.1"}
    observer = ObjectStoreObserver(
        {}, SimpleNamespace(source=SimpleNamespace(client=client, engine={"engine": "async"}))
    )

    observer.start()
    vars(client.counts).update(requests=7, bytes=5000, retries=2, first_byte_s=first, whole_s=whole)
    client.counts.errors = Counter(closed=1, timeout=3)
    observer.stop(failed=False)
    client.counts.requests += 1

    assert observer.metrics()["objects"] == {
        "bucket": "b", "engine": "async", "requests": 7, "retries": 2, "errors": {"closed": 1, "timeout": 3},
        "bytes": 5000, "first_byte_s": _lower(first), "whole_s": _lower(whole), "servers": {},
    }  # fmt: skip


def _lower(seconds):
    found = np.quantile(seconds, [0.5, 0.99, 1.0], method="lower").round(6)
    return dict(zip(("p50", "p99", "max"), found.tolist(), strict=True))
