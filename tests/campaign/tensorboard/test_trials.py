"""`tensorboard`: what it writes, read by TensorBoard's own reader of records and its own messages."""

import json
import shutil

import pytest

from campaign.__main__ import guarded
from campaign.errors import UsageError
from campaign.tensorboard import command
from jobs.profiler import Profile, xplane
from jobs.profiler.tensorboard import plane
from tests.campaign.on_disk import leave_record

pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")


@pytest.fixture
def measured(cells, folder, tmp_path):
    """Three cells: of 1, 2 and 4 threads; the second one was profiled, the third has no valid run."""
    data = tmp_path / "data"
    data.write_bytes(bytes(1000))
    for cell, rates in zip(cells[0], ((100.0, 104.0, 99.0), (200.0,), ()), strict=True):
        runs = [{"status": "valid", "images_per_s": rate, "read_mb_per_s": rate / 10} for rate in rates]
        status = "done" if rates else "invalid"
        leave_record(folder, cell, *runs, {"status": "invalid", "images_per_s": 9e9}, status=status)
    home = folder.cell(cells[0][1].id)
    with Profile(only=[data]) as profile:
        data.read_bytes()
    profile.save(home / "profile-0.npz")
    made = [cell.id for cell in cells[0]]
    leave_record(
        folder, cells[0][1], {"status": "valid", "images_per_s": 200.0, "profile": {"file": "x"}, "host": "n7"},
        status="done", provenance={"emulated": {"storage": {"name": "hdd"}}},
    )  # fmt: skip
    return made


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
        yield from event_pb2.Event.FromString(reader.record()).summary.value


def _trial(folder):
    """The settings of a trial, its scalars, and how it ended."""
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2  # noqa: PLC0415

    scalars, settings, status = {}, {}, None
    for value in _events(folder):
        told = plugin_data_pb2.HParamsPluginData.FromString(value.metadata.plugin_data.content)
        if value.tag == metadata.SESSION_START_INFO_TAG:
            hparams = told.session_start_info.hparams.items()
            settings = {key: getattr(each, each.WhichOneof("kind")) for key, each in hparams}
        elif value.tag == metadata.SESSION_END_INFO_TAG:
            status = told.session_end_info.status
        else:
            scalars.setdefault(value.tag, []).append(value.simple_value)
    return settings, scalars, status


def test_cells_are_trials_with_what_tells_them_apart_and_their_figures(measured, folder, capsys):
    assert command.main([str(folder.root)]) == 0

    logdir = folder.root / "tensorboard"
    first, second, third = (_trial(logdir / cell) for cell in measured)
    assert first[0] == {"benchmark": "micro", "threads": 1, "status": "done", "emulated": "no"}
    assert [each[0]["threads"] for each in (first, second, third)] == [1, 2, 4]
    assert [each[0]["emulated"] for each in (first, second, third)] == ["no", "local", "no"]
    medians = {"images_per_s": [100], "images_per_s min": [99], "images_per_s max": [104], "valid runs": [3]}
    assert first[1] == medians | {"read_mb_per_s": [10], "runs/images_per_s": [100, 104, 99]}
    assert third[1] == {"valid runs": [0]}
    assert [each[2] for each in (first, second, third)] == [1, 1, 2]  # SUCCESS, SUCCESS, FAILURE
    assert f"tensorboard --logdir {logdir}" in capsys.readouterr().err


def test_a_profiled_cell_has_its_calls_as_a_trace(measured, folder):
    command.main([str(folder.root)])
    command.main([str(folder.root)])  # a second time nothing is made anew

    (trace,) = folder.root.glob("tensorboard/*/plugins/profile/*/*.xplane.pb")
    assert trace.parents[3].name == measured[1]
    lines = xplane.plane(trace, plane.LINES, 1 << 20)
    (line,) = lines.lines
    assert (line.timestamp_ns, line.name.rpartition("/")[2]) == (0, "data")
    assert '"host": "n7"' in xplane.plane(trace, plane.SUMMARY, 1 << 20).stats[0].str_value


def test_a_cell_that_cannot_be_shown_is_named_and_the_others_are(measured, folder, capsys):
    folder.record(measured[0]).write_text("{")
    odd = json.loads(folder.record(measured[2]).read_text())
    del odd["cell"]["settings"]["storage"]
    shutil.copytree(folder.cell(measured[2]), folder.records / "odd")
    odd["provenance"] = {"emulated": {"storage": {}}}
    (folder.records / "odd" / "record.json").write_text(json.dumps(odd))
    (folder.cell(measured[1]) / "profile-0.npz").write_bytes(b"PK nonsense")

    assert command.main([str(folder.root)]) == 1

    said = capsys.readouterr().err
    assert all(f"left out: {cell}" in said for cell in (*measured[:2], "odd"))
    assert _trial(folder.root / "tensorboard" / measured[2])[0]["threads"] == 4


def test_a_link_in_the_way_is_not_followed(measured, folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    logdir = folder.root / "tensorboard"
    logdir.mkdir()
    (logdir / measured[0]).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="link"):
        command.main([str(folder.root)])

    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_campaign_without_records_has_nothing_to_show(folder):
    with pytest.raises(UsageError, match="nothing is recorded"):
        command.main([str(folder.root)])


@pytest.mark.parametrize("link", ["tensorboard", "tensorboard/CELL", "tensorboard/CELL/plugins"])
def test_nothing_is_written_through_a_link_of_a_copied_folder(link, measured, folder, tmp_path, capsys):
    (tmp_path / "home").mkdir()
    place = folder.root / link.replace("CELL", measured[1])
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(tmp_path / "home")

    assert guarded(["tensorboard", str(folder.root)]) == 3

    assert "is a link, and is not followed" in capsys.readouterr().err
    assert not [*(tmp_path / "home").iterdir()]


def test_a_link_that_the_user_names_is_followed(measured, folder, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "logs").symlink_to(tmp_path / "disk")

    assert guarded(["tensorboard", str(folder.root), "--logdir", str(tmp_path / "logs")]) == 0
    assert (tmp_path / "disk" / measured[0]).is_dir()
