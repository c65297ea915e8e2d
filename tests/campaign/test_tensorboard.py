"""`tensorboard`: what it writes, read by TensorBoard's own reader of records and its own messages."""

import json
import shutil

import numpy as np
import pytest

from campaign.__main__ import run_guarded
from campaign.cli import tensorboard
from campaign.errors import UsageError
from jobs.profiler import Profile, tensorboard_files
from tests.campaign.on_disk import leave_record
from tests.jobs.events.spaces import messages

pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")


def _run(status, rate, number=0, **more):
    times = {"wall_s": 512 / rate, "load_s": 512 / rate, "other_s": 0.0, "elapsed_s": 512 / rate}
    return {"status": status, "images_per_s": rate, "read_mb_per_s": rate / 8 + number, **times, **more}


@pytest.fixture
def measured(cells, folder, tmp_path):
    """Three cells: of 1, 2 and 4 threads; the second one was profiled twice, the third has no valid run."""
    data = tmp_path / "data"
    data.write_bytes(bytes(1000))
    profiled, home = {"profile": {"file": "x"}}, folder.cell(cells[0][1].id)
    runs = (
        [_run("valid", rate, place) for place, rate in enumerate((100.0, 104.0, 99.0, 101.5))],
        # These read the bytes that their profiles have.
        [
            _run("valid", rate, read_mb_per_s=rate * 0.112, **more)
            for rate, more in zip((200.0, 203.0, 201.0), (profiled, profiled, {}), strict=True)
        ],
        [],
    )
    more = ({}, {"provenance": {"emulated": {"storage": {"name": "hdd"}}}}, {})
    for cell, made, keys in zip(cells[0], runs, more, strict=True):
        status = "done" if made else "invalid"
        leave_record(folder, cell, _run("invalid", 9e9), *made, status=status, **keys)
    for number in (1, 2):
        with Profile(only=[data]) as profile:
            data.read_bytes()
        profile.save(home / f"profile-{number}.npz")
    return [cell.id for cell in cells[0]]


def _events(folder):
    from tensorboard.compat.proto import event_pb2  # noqa: PLC0415
    from tensorboard.compat.tensorflow_stub import errors, pywrap_tensorflow  # noqa: PLC0415

    (file,) = folder.glob("events.out.tfevents.*")
    reader = pywrap_tensorflow.PyRecordReader_New(filename=str(file))
    while True:
        try:
            reader.GetNext()
        except errors.OutOfRangeError:  # the end; a wrong checksum is another error
            return
        event = event_pb2.Event.FromString(reader.record())
        yield from ((event.step, value) for value in event.summary.value)


def _trial(folder):
    """The settings of a trial, its scalars with their steps, and how it ended."""
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2  # noqa: PLC0415

    scalars, settings, status = {}, {}, None
    for step, value in _events(folder):
        told = plugin_data_pb2.HParamsPluginData.FromString(value.metadata.plugin_data.content)
        if value.tag == metadata.SESSION_START_INFO_TAG:
            hparams = told.session_start_info.hparams.items()
            settings = {key: getattr(each, each.WhichOneof("kind")) for key, each in hparams}
        elif value.tag == metadata.SESSION_END_INFO_TAG:
            status = told.session_end_info.status
        else:
            scalars.setdefault(value.tag, []).append((step, value.simple_value))
    return settings, scalars, status


def test_cells_are_trials_with_what_tells_them_apart_and_their_figures(measured, folder, capsys):
    assert tensorboard.main([str(folder.root)]) == 0

    logdir = folder.root / "tensorboard"
    first, second, third = (_trial(logdir / cell) for cell in measured)
    told = {"benchmark": "micro", "threads": 1, "status": "done", "spread": "† unstable", "emulated": "no"}
    assert first[0] == told
    assert second[0] == told | {"threads": 2, "spread": "passed", "emulated": "local"}
    assert third[0] == told | {"threads": 4, "status": "invalid", "spread": "unverifiable"}
    rates = {"images_per_s": 100.75, "images_per_s min": 99, "images_per_s max": 104, "valid runs": 4}
    reads = np.median([100 / 8, 104 / 8 + 1, 99 / 8 + 2, 101.5 / 8 + 3])
    figures = rates | {"read_mb_per_s": reads}
    by_run = {"runs/images_per_s": [(1, 100), (2, 104), (3, 99), (4, 101.5)]}
    assert first[1] == {tag: [(0, pytest.approx(value))] for tag, value in figures.items()} | by_run
    assert third[1] == {"valid runs": [(0, 0)]}
    assert [each[2] for each in (first, second, third)] == [1, 1, 2]  # SUCCESS, SUCCESS, FAILURE
    assert f"tensorboard --logdir {logdir}" in capsys.readouterr().err


def test_tensorboard_is_told_which_settings_and_figures_there_are(measured, folder):
    from tensorboard.plugins.hparams import plugin_data_pb2  # noqa: PLC0415

    tensorboard.main([str(folder.root)])

    ((_, value),) = _events(folder.root / "tensorboard")
    told = plugin_data_pb2.HParamsPluginData.FromString(value.metadata.plugin_data.content).experiment
    domains = {each.name: [*each.domain_discrete] for each in told.hparam_infos}
    assert domains == {
        "benchmark": ["micro"], "threads": [1, 2, 4], "status": ["done", "invalid"],
        "spread": ["passed", "unverifiable", "† unstable"], "emulated": ["local", "no"],
    }  # fmt: skip
    figures = ["images_per_s", "images_per_s min", "images_per_s max", "read_mb_per_s", "valid runs"]
    assert [each.name.tag for each in told.metric_infos] == figures


def test_whole_numbers_beside_others_are_numbers(measured, folder):
    odd = json.loads(folder.record(measured[2]).read_text())
    odd["cell"]["settings"]["dataset"]["sigma"] = 1
    folder.record(measured[2]).write_text(json.dumps(odd))

    tensorboard.main([str(folder.root)])

    found = [_trial(folder.root / "tensorboard" / cell)[0]["dataset.sigma"] for cell in measured]
    assert (found[2], found[0] < 1, type(found[0])) == (1.0, True, float)


def test_a_profiled_cell_has_its_calls_as_a_trace(measured, folder):
    tensorboard.main([str(folder.root)])
    tensorboard.main([str(folder.root)])  # a second time nothing is made anew

    (trace,) = folder.root.glob("tensorboard/*/plugins/profile/*/*.xplane.pb")
    assert (trace.parents[3].name, trace.parent.name.startswith("run-2-")) == (measured[1], True)  # the newest
    (lines,) = messages().XSpace.FromString(trace.read_bytes()).planes
    (line,) = lines.lines
    assert lines.name == tensorboard_files.LINES
    assert (line.timestamp_ns, line.name.rpartition("/")[2]) == (0, "data")


def test_a_cell_that_cannot_be_shown_is_named_and_the_others_are(measured, folder, capsys):
    folder.record(measured[0]).write_text("{")
    odd = json.loads(folder.record(measured[2]).read_text())
    del odd["cell"]["settings"]["storage"]
    shutil.copytree(folder.cell(measured[2]), folder.records / "odd")
    odd["provenance"] = {"emulated": {"storage": {}}}
    (folder.records / "odd" / "record.json").write_text(json.dumps(odd))
    (folder.cell(measured[1]) / "profile-2.npz").write_bytes(b"PK nonsense")

    assert tensorboard.main([str(folder.root)]) == 1

    said = capsys.readouterr().err
    assert all(f"left out: {cell}" in said for cell in (*measured[:2], "odd"))
    assert _trial(folder.root / "tensorboard" / measured[2])[0]["threads"] == 4


def test_a_campaign_without_records_has_nothing_to_show(folder):
    with pytest.raises(UsageError, match="has no records"):
        tensorboard.main([str(folder.root)])


def test_what_cannot_be_shown_is_refused(measured, folder, monkeypatch, capsys):
    with pytest.raises(UsageError, match="unknown flag '--json'"):
        tensorboard.main(["--json", str(folder.root)])
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    assert run_guarded(["tensorboard", str(folder.root)]) == 3
    assert "TensorBoard is not installed" in capsys.readouterr().err


@pytest.mark.parametrize("link", ["tensorboard", "tensorboard/CELL", "tensorboard/CELL/plugins"])
def test_nothing_is_written_through_a_link_of_a_copied_folder(link, measured, folder, tmp_path, capsys):
    (tmp_path / "home").mkdir()
    place = folder.root / link.replace("CELL", measured[1])
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(tmp_path / "home")

    assert run_guarded(["tensorboard", str(folder.root)]) == 3

    assert "is a link, and is not followed" in capsys.readouterr().err
    assert not [*(tmp_path / "home").iterdir()]


def test_a_link_that_the_user_names_is_followed(measured, folder, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "logs").symlink_to(tmp_path / "disk")

    assert run_guarded(["tensorboard", str(folder.root), "--out", str(tmp_path / "logs")]) == 0
    assert (tmp_path / "disk" / measured[0]).is_dir()
