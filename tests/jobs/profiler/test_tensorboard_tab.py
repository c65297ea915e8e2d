"""What the plug-in of TensorBoard answers: the windows below its folder, and nothing else."""

import importlib.metadata
import os
from types import SimpleNamespace

import pytest

from jobs.profiler import Profile, xspace_messages
from jobs.profiler.tensorboard import plane

pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")
test = pytest.importorskip("werkzeug.test")


@pytest.fixture
def logdir(tmp_path, data):
    """A folder of TensorBoard's with a window, one that failed, a file that is no trace, a link and a pipe."""
    with Profile(only=[data.parent]) as profile:
        data.read_bytes()
    folder = tmp_path / "logs" / "run" / "plugins" / "profile" / "2026"
    folder.mkdir(parents=True)
    (folder / "vm.xplane.pb").write_bytes(plane.planes(profile.window, 0))
    (folder / "failed.xplane.pb").write_bytes(plane.planes(None, 0, "a window is open already"))
    (folder / "garbage.xplane.pb").write_bytes(b"\xff" * 100)
    secret = tmp_path / "secret.xplane.pb"
    secret.write_bytes(plane.planes(profile.window, 0))
    (folder / "link.xplane.pb").symlink_to(secret)
    os.mkfifo(folder / "pipe.xplane.pb")
    (tmp_path / "logs" / "away").symlink_to(tmp_path)
    return tmp_path / "logs"


def _client(logdir):
    from jobs.profiler.tensorboard.plugin import TFIOPlugin  # noqa: PLC0415

    plugin = TFIOPlugin(SimpleNamespace(logdir=str(logdir)))
    return plugin, {path: test.Client(app) for path, app in plugin.get_plugin_apps().items()}


def test_the_plug_in_is_found_by_its_entry_point():
    (point,) = importlib.metadata.entry_points(group="tensorboard_plugins", name="tf_io")

    assert point.load().plugin_name == plane.SUMMARY


def test_windows_below_the_folder_are_listed_and_shown(logdir):
    plugin, apps = _client(logdir)

    listed = {each["name"].rpartition("/")[2]: each for each in apps["/windows"].get("/").json}

    assert plugin.is_active()
    assert set(listed) == {"vm", "failed"}
    assert listed["failed"]["fault"] == "a window is open already"
    shown = apps["/window"].get("/", query_string={"name": listed["vm"]["name"]}).json
    assert shown["figures"]["bytes_read"] == listed["vm"]["figures"]["bytes_read"] == 10_000
    assert shown["files"][0]["path"].endswith("/data/file")


def test_a_trace_is_read_once_for_the_list_however_many_there_are(logdir, monkeypatch):
    folder = logdir / "run" / "plugins" / "profile" / "2026"
    for number in range(2_100):
        (folder / f"{number}.xplane.pb").write_bytes((folder / "failed.xplane.pb").read_bytes())
    read, plane_of = [], xspace_messages.plane
    monkeypatch.setattr(xspace_messages, "plane", lambda path, *words: read.append(path) or plane_of(path, *words))
    plugin, apps = _client(logdir)

    for _ in range(3):
        assert plugin.is_active()
        listed = apps["/windows"].get("/").json

    assert [len(listed), len(read)] == [2_000, len(set(read))]  # one of the first is garbage, and one a link
    assert listed[-1]["name"] < "run/plugins/profile/2026/99"


@pytest.mark.parametrize(("more", "is_listed"), [(0, True), (1, False)])
def test_what_the_list_has_of_a_window_has_its_bounds(logdir, more, is_listed):
    nothing = '"host": "h", "fault": "", "figures": null, "started_ns": null'
    fault = "x" * ((1 << 16) - len(nothing) + more)
    (logdir / "run" / "plugins" / "profile" / "2026" / "z.xplane.pb").write_bytes(plane.planes(None, 0, fault, "h"))

    listed = _client(logdir)[1]["/windows"].get("/").json

    assert (listed[-1].get("fault") == fault) is is_listed


def test_a_number_that_json_has_not_spoils_no_other_window(logdir):
    space = xspace_messages.messages().XSpace()
    foreign = space.planes.add(name=plane.SUMMARY)
    foreign.stat_metadata[1].name = plane.SUMMARY
    foreign.stats.add(metadata_id=1, str_value='{"schema": 1, "figures": {"files": NaN}}')
    (logdir / "run" / "plugins" / "profile" / "2026" / "nan.xplane.pb").write_bytes(space.SerializeToString())

    listed = _client(logdir)[1]["/windows"].get("/")

    assert "NaN" not in listed.text
    assert len(listed.json) == 2


@pytest.mark.parametrize("name", ["", "run/plugins/profile/2026/link", "../secret", "run/plugins/profile/2026/pipe"])
def test_no_other_file_is_answered_for(logdir, name):
    _, apps = _client(logdir)

    answer = apps["/window"].get("/", query_string={"name": name})

    assert (answer.status_code, answer.json) == (404, {"error": "no such window"})


@pytest.mark.parametrize("of", ["", "run/none"])  # without a folder there are several, and the current one is none
def test_without_a_window_there_is_no_tab(of, logdir, monkeypatch):
    monkeypatch.chdir(logdir)
    plugin, apps = _client(of)

    assert not plugin.is_active()
    assert apps["/windows"].get("/").json == []


def test_the_script_of_the_tab_is_served(logdir):
    plugin, apps = _client(logdir)

    answer = apps[plugin.frontend_metadata().es_module_path].get("/")

    assert answer.mimetype == "application/javascript"
    assert "innerHTML" not in answer.text  # text of others is set as text


def test_folders_too_deep_in_each_other_hide_no_window(logdir, nested):
    nested(logdir / "deep")
    plugin, apps = _client(logdir)

    assert plugin.is_active()
    assert len(apps["/windows"].get("/").json) == 2
