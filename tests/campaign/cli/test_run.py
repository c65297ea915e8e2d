"""What the main verb says and writes around the work, which is a stand-in here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from campaign import console
from campaign.cli import run
from campaign.cluster import local, slurm
from campaign.errors import EnvironmentFaultError, SchedulerError
from tests.campaign.on_disk import leave_batch


@pytest.fixture
def said(monkeypatch):
    lines = []
    monkeypatch.setattr(console, "say", lines.append)
    return lines


@pytest.fixture
def reports(monkeypatch):
    """The folders of which a report was made."""
    made = []
    monkeypatch.setattr(run, "analyse", lambda root: made.append(Path(root)) or 0)
    return made


@pytest.fixture
def go(folder, said, reports, monkeypatch):
    """Give the command; the front process on the cluster returns or raises what is given."""

    def go(answer, *words):
        def work(*_, **__):
            if isinstance(answer, BaseException):
                raise answer
            return answer

        monkeypatch.setattr(slurm, "work", work)
        return run.main([f"campaign_dir={folder.root}", "cluster=slurm", *words])

    return go


def _record(folder):
    folder.record("cell").parent.mkdir()
    folder.record("cell").write_text("{}")


@pytest.mark.parametrize("alone", [True, False])
def test_jobs_are_said_to_go_on_alone_where_there_are_any(alone, go, said):
    go(alone, "detach=true")

    assert any("continue without this process" in line for line in said) is alone


@pytest.mark.parametrize("begun", [True, False])
def test_a_refusal_does_not_keep_what_was_measured_from_being_reported(begun, go, folder, reports):
    if begun:
        _record(folder)

    with pytest.raises(SchedulerError, match="limit"):
        go(SchedulerError("limit"))

    assert reports == [folder.root] * begun


@pytest.mark.parametrize("redo", [True, False])
def test_who_comes_back_to_jobs_that_do_cells_anew_is_told_not_to_ask_for_it_again(redo, go, said):
    code = go(KeyboardInterrupt(), f"redo={str(redo).lower()}")

    assert code == 130
    assert ("the same command without redo=true; end them" in said[-1]) is redo


def test_requests_follow_each_other_in_time_whatever_the_clocks_of_login_nodes_say(go, folder):
    campaign = json.loads(folder.marker.read_text())
    campaign["requests"] = [{"utc": "2999-12-31T23:59:59.999Z", "cells": []}, {"utc": "2001-01-01T00:00:00.000Z"}]
    folder.marker.write_text(json.dumps(campaign))

    for _ in range(2):
        go(None)

    requests = json.loads(folder.marker.read_text())["requests"]
    assert [request["utc"] for request in requests[2:]] == ["3000-01-01T00:00:00.000Z", "3000-01-01T00:00:00.001Z"]


def test_cluster_local_does_not_begin_beside_open_jobs(folder, said, programs, monkeypatch):
    leave_batch(folder, cells=[["a"]])
    monkeypatch.setattr(local, "work", lambda *_: pytest.fail("it began"))

    with pytest.raises(EnvironmentFaultError, match="1 job of this campaign on the cluster"):
        run.main([f"campaign_dir={folder.root}", "cluster=local"])
