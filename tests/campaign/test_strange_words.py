"""What a record of somebody's says is shown and never run: each test has a program that would leave a trace."""

import json
import os
import secrets

import pytest

from campaign.__main__ import run_guarded
from campaign.cells import record
from campaign.cells.cell import make_cell
from campaign.cells.folder import is_own_request, last_own_request, open_or_create, sign_request
from campaign.config.collect import collect_points
from tests.campaign.command_line import TINY
from tests.campaign.on_disk import leave_record
from tests.campaign.work_lists import compose
from tests.jobs.ranks.strangers import needs_root

HYDRA = "{a: {_target_: jobs.system.programs.run_program, command: [touch, TRACE]}}"
LOGGING = "{version: 1, handlers: {a: {(): jobs.system.programs.run_program, command: [touch, TRACE]}}}"


@pytest.fixture
def trace(tmp_path):
    """A file that no test may leave."""
    yield tmp_path / "trace"
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    "words",
    [
        *(["--dry-run", word] for word in (
            f"+hydra={{callbacks: {HYDRA}}}", f"++hydra={{callbacks: {HYDRA}}}", f"hydra.callbacks={HYDRA}",
            f"+hydra.callbacks.a={HYDRA}", f" hydra.callbacks={HYDRA}", f"hydra.hydra_logging={LOGGING}",
            f"++hydra.job_logging={LOGGING}", "~hydra.sweeper", "~hydra", "hydra/launcher=basic",
            "hydra/sweeper=basic", "hydra.sweeper={_target_: os.system}", "hydra.searchpath=[file:///theirs]",
            "+storage@hydra.callbacks.a=local", "+storage@_global_.hydra.callbacks.a=local",
            "site@:hydra.callbacks=none",
        )),
        *([*start.split(), f"+hydra.callbacks.a={HYDRA}"] for start in (
            "reproduce --dry-run", "doctor", "testbed up --dry-run", "--cfg job",
        )),
    ],
)  # fmt: skip
def test_a_word_for_hydra_is_refused_wherever_it_is_typed(words, trace, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    code = run_guarded([word.replace("TRACE", str(trace)) for word in words])

    assert code == 2
    assert "is for Hydra itself" in capsys.readouterr().err


def test_no_file_of_a_configuration_has_callbacks(trace, tmp_path):
    (tmp_path / "site").mkdir()
    callbacks = HYDRA.replace("TRACE", str(trace))
    text = (
        f"# @package _global_\ndefaults: [none@site, _self_]\nsite: {{name: mine}}\nhydra: {{callbacks: {callbacks}}}\n"
    )
    (tmp_path / "site" / "mine.yaml").write_text(text)

    (point,) = collect_points(["-m", "--config-dir", str(tmp_path), "site=mine"])

    assert point["site"]["name"] == "mine"


@pytest.fixture
def copied(tmp_path, trace):
    """A campaign of somebody's, copied by this user; its words would leave a trace; returns folder and cell."""
    folder = open_or_create(tmp_path / "copied")[0]
    cell = make_cell(compose("threads=1", "benchmark.preprocess=false"))
    words = [f"+hydra={{callbacks: {HYDRA.replace('TRACE', str(trace))}}}", "--config-dir", str(tmp_path), "threads=1"]
    run = {
        "status": "valid", "elapsed_s": 10.0, "wall_s": 10.0, "load_s": 9.9, "cpu_s": 0.5, "other_cpu": 0.0,
        "images": 320, "images_asked": 320, "bytes_read": 40_000_000, "images_per_s": 32.0, "read_mb_per_s": 4.0,
    }  # fmt: skip
    more = {
        "status": "done",
        "provenance": {"host": "n1", "affinity": [0, 1]},
        "campaign": {"token": "t", "words": words},
    }
    data = {"path": "/d", "checksum": "c", "files": 320, "bytes": 40_000_000}
    leave_record(folder, cell, *[run] * 3, data=data, **more)
    for threads, rate in ((1, 4.0), (8, 11.0)):
        baseline = make_cell(compose("benchmark=baseline", "benchmark.access=random_read", f"threads={threads}"))
        leave_record(folder, baseline, *[{**run, "read_mb_per_s": rate}] * 3, data=data, **more)
    marker = json.loads(folder.marker.read_text())
    asked = {"token": "t", "utc": "2026-11-21T08:00:00.000Z", "words": words, "order_seed": 0, "cells": [cell.id]}
    marker["requests"] = [asked]
    folder.marker.write_text(json.dumps(marker))
    return folder, cell.id


def test_show_names_a_command_of_the_settings(copied, capsys, tmp_path):
    folder, cell = copied

    run_guarded(["show", cell, str(folder.root)])

    out = capsys.readouterr().out
    assert "made from the cell's settings, because you did not start it in this folder" in out
    assert "threads=1" in out
    assert not [word for word in ("hydra", "--config-dir") if word in out.rpartition("again")[2]]


def test_show_tests_nothing_that_its_user_did_not_ask_for(copied, capsys, monkeypatch):
    monkeypatch.setenv("CAMPAIGN_YES", "1")  # of costs, not of this
    monkeypatch.setattr("campaign.console._TERMINAL", "/nowhere")
    folder, cell = copied

    code = run_guarded(["show", cell, str(folder.root), "--test"])

    said = capsys.readouterr().err
    assert code == 1
    assert "in this folder; show would run these commands:\n  python -m campaign" in said
    assert "nothing was started" in said
    assert "hydra" not in said
    assert not folder.advice.exists()


def test_a_copy_of_ones_own_folder_is_asked_about_and_the_folder_itself_is_not(copied, tmp_path):
    folder, cell = copied
    marker = json.loads(folder.marker.read_text())
    marker["requests"] = [sign_request(folder.root, each) for each in marker["requests"]]
    recorded = record.read_record(folder.record(cell))
    moved = {**recorded, "cell": {**recorded["cell"], "settings": {**recorded["cell"]["settings"], "threads": 5}}}
    changed = {**marker, "requests": [{**each, "words": ["threads=2"]} for each in marker["requests"]]}

    assert last_own_request(folder.root, marker, recorded) == marker["requests"][0]
    assert last_own_request(tmp_path / "another", marker, recorded) is None
    assert last_own_request(folder.root, changed, recorded) is None
    assert last_own_request(folder.root, marker, moved) is None  # its settings are not those of its id


def test_no_home_is_no_request_of_ones_own(copied, monkeypatch, tmp_path):
    folder, cell = copied
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    asked = {"words": [], "cells": [cell]}

    assert sign_request(folder.root, asked) == asked
    assert not is_own_request(folder.root, {**asked, "mark": ""})


@pytest.mark.parametrize(
    ("spoil", "is_own", "marks"),
    [
        (lambda key: None, True, True),
        (lambda key: key.write_bytes(bytes(32)), False, True),
        *((lambda key, size=size: key.write_bytes(bytes(size)), False, False) for size in (0, 31, 33)),
        pytest.param(lambda key: os.chown(key, 65534, 65534), False, False, marks=needs_root),
    ],
)
def test_the_key_is_private_and_one_of_another_user_or_size_is_none(spoil, is_own, marks, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "a" / "b"))
    asked = sign_request(tmp_path, {"words": []})
    key = tmp_path / "a" / "b" / "tfio-campaign" / "key"
    assert (key.stat().st_mode & 0o777, key.parent.stat().st_mode & 0o777) == (0o600, 0o700)

    spoil(key)

    assert is_own_request(tmp_path, asked) is is_own
    assert ("mark" in sign_request(tmp_path, {"words": []})) is marks


@pytest.mark.long
def test_a_campaign_is_its_users_own(command):
    command("threads=1", *TINY, "cluster=local")
    folder, marker = open_or_create(command.cwd / "results")

    assert is_own_request(folder.root, marker["requests"][0])


def test_two_that_make_the_key_at_once_have_the_same(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    asked, marked, random = {"words": []}, [], secrets.token_bytes

    def another_is_faster(count):
        monkeypatch.setattr(secrets, "token_bytes", random)
        marked.append(sign_request(tmp_path, asked))
        return random(count)

    monkeypatch.setattr(secrets, "token_bytes", another_is_faster)
    marked.append(sign_request(tmp_path, asked))

    assert [is_own_request(tmp_path, each) for each in marked] == [True, True]
    assert [path.name for path in (tmp_path / "tfio-campaign").iterdir()] == ["key"]
