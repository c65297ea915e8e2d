"""What all test rooms share."""

from __future__ import annotations

import os

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Where ``TFIO_REQUIRE_ALL`` is set (CI), a test whose component is missing fails instead of being skipped."""
    report = yield
    if report.skipped and os.environ.get("TFIO_REQUIRE_ALL") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped where everything is required: {report.longrepr}"
    return report
