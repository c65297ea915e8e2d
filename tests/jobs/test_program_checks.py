"""The rules for a run of a user's program, at their limits."""

import pytest

from jobs.model.conduct import Limits
from jobs.program_checks import from_device, from_memory, reads_data, unchanged_files

RUN = {
    "device_bytes": 1000, "data_in_memory_bytes": 1000, "data_bytes": 1000, "data_pages_bytes": 1000,
    "device_read_bytes": 1000, "changed_files": 0, "changed": [],
}  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "run", "passed"),
    [
        (from_device, {}, True),
        (from_device, {"device_bytes": 990}, True),
        (from_device, {"device_bytes": 989}, False),  # the rest was fetched by somebody else
        (from_device, {"data_in_memory_bytes": 500, "device_bytes": 500}, True),
        (from_device, {"data_in_memory_bytes": 0, "device_bytes": 0}, True),
        (from_device, {"device_bytes": None}, None),
        (from_device, {"data_in_memory_bytes": None}, None),
        (from_device, {"to_fetch_bytes": None}, None),  # compressed
        (from_device, {"to_fetch_bytes": 500, "device_bytes": 495}, True),  # half of the pages are holes
        (from_device, {"to_fetch_bytes": 500, "device_bytes": 494}, False),
        (from_memory, {"device_bytes": 10, "device_read_bytes": 9999}, True),
        (from_memory, {"device_bytes": 11, "device_read_bytes": 9999}, False),
        (from_memory, {"device_bytes": 9999, "device_read_bytes": 10}, True),  # its libraries, of another device
        (from_memory, {"device_bytes": 11, "device_read_bytes": None}, False),
        (from_memory, {"device_bytes": None}, None),
        (reads_data, {"data_in_memory_bytes": 10}, True),
        (reads_data, {"data_in_memory_bytes": 9, "device_bytes": 9}, False),
        (reads_data, {"data_in_memory_bytes": 9, "device_read_bytes": 9}, False),  # its libraries, of another device
        (reads_data, {"data_in_memory_bytes": 0}, None),  # past the page cache
        (reads_data, {"data_in_memory_bytes": None}, None),
        (unchanged_files, {}, True),
        (unchanged_files, {"changed_files": 5, "changed": ["a", "b"]}, False),
    ],
)
def test_at_its_limit_a_rule_holds_and_beyond_it_does_not(rule, run, passed):
    assert rule({**RUN, **run}, Limits())["passed"] is passed


def test_files_that_changed_are_named_and_the_rest_counted():
    message = unchanged_files({"changed_files": 5, "changed": ["a", "b"]}, Limits())["message"]

    assert message == "files of the data that changed or are new (5): a, b and 3 more"


@pytest.mark.parametrize("rule", [from_memory, reads_data])
def test_of_data_without_bytes_nothing_is_proved_and_this_is_the_reason(rule):
    check = rule({"device_bytes": 0, "data_bytes": 0, "data_in_memory_bytes": 0}, Limits())

    assert (check["passed"], check["message"]) == (None, "the files of the data are empty")
