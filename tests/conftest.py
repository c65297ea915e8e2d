"""What all test rooms share."""

from __future__ import annotations

import os
import signal

import pytest


def pytest_configure():
    """Let Ctrl-C reach what the tests start, also where they were started with SIGINT ignored (`&` in a script)."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Where ``TFIO_REQUIRE_ALL`` is set (CI), a test whose component is missing fails instead of being skipped."""
    report = yield
    if report.skipped and os.environ.get("TFIO_REQUIRE_ALL") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped where everything is required: {report.longrepr}"
    return report
