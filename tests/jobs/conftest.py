"""One process that has TensorFlow imported serves all tests of this room."""

import shutil
from pathlib import Path

import pytest

from campaign.worker.runner import Template
from jobs.checkpoints import drain_process
from jobs.system.device import device_of
from tests.jobs.jobs_factory import ROOT, HandClock, judged_in_time, make_request, make_settings, write_jpegs
from tests.jobs.objects.conftest import signed, store  # noqa: F401 - fixtures
from tests.jobs.store.raw import Files, Objects


@pytest.fixture(scope="session", autouse=True)
def _this_checkout():
    """Whatever a test starts imports from here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        yield


class JudgingTemplate(Template):
    """A template whose answers have a verdict, where they are of runs."""

    def run(self, argument, log, timeout_s, *job, **named):
        def once():
            return super(JudgingTemplate, self).run(argument, log, timeout_s, *job, **named)

        return once() if job or named else judged_in_time(once, argument)


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    log = tmp_path_factory.mktemp("template") / "template.log"
    template = JudgingTemplate(log, ("tensorflow", "jobs.run", "jobs.benchmarks.micro", "tests.jobs.template_jobs"))
    # A first run fetches TensorFlow's own code from the device, and its bytes count as the run's.
    paths = write_jpegs(log.parent / "first", 4)
    request = {"names": [str(path) for path in paths], "settings": make_settings()}
    first = template.run(request, log.with_name("first.log"), 60, job="tests.jobs.template_jobs:measure")
    assert "value" in first, first
    yield template
    template.close()


@pytest.fixture
def disk(tmp_path):
    """Return a folder whose pages can leave memory and come back from a device."""
    if device_of(tmp_path) is None:
        pytest.skip(f"{tmp_path} is on no block device: pass --basetemp on a disk")
    return tmp_path


@pytest.fixture(scope="session")
def shared_images(tmp_path_factory):
    """Return a folder of 24 good images; nobody writes to it."""
    folder = tmp_path_factory.mktemp("images")
    write_jpegs(folder, 24)
    return folder


@pytest.fixture
def paths(shared_images, tmp_path):
    """Images of this test alone: it may damage them, and nobody else opens them."""
    return sorted(shutil.copytree(shared_images, tmp_path / "data").iterdir())


@pytest.fixture
def order(job, paths):
    """The files in the order in which seed 1 asks for them."""
    return [paths[index] for index in job("order_of_list", names=paths, seed=1)]


@pytest.fixture
def execute(template, tmp_path):
    """Run a benchmark once in a fresh process and return its figures."""

    def run(folder, **changes):
        return template.run(make_request(folder, tmp_path / "held", **changes), tmp_path / "run.log", 60)

    return run


@pytest.fixture
def job(template, tmp_path):
    """Run a function of a module in a fresh process that has TensorFlow; `folder` is that of the files."""

    def run(function, names=(), of="tests.jobs.template_jobs", **argument):
        argument = {"names": [str(name) for name in names], **argument}
        if names:
            argument.setdefault("folder", str(Path(names[0]).parent))
        answer = template.run(argument, tmp_path / "job.log", 120, job=f"{of}:{function}")
        assert "value" in answer, answer
        return answer["value"]

    return run


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on when somebody sleeps, or when it is told to."""
    clock = HandClock()
    monkeypatch.setattr("time.perf_counter", clock.now)
    monkeypatch.setattr("time.sleep", clock.sleep)
    monkeypatch.setattr("jobs.system.clock.wait", clock.sleep)
    return clock


@pytest.fixture
def folders(tmp_path):
    """The two folders of a burst buffer, not made yet."""
    return tmp_path / "fast", tmp_path / "slow"


@pytest.fixture
def idle(monkeypatch):
    """Keep drainers from being started."""
    monkeypatch.setattr(drain_process.Drainer, "poke", lambda self: None)


@pytest.fixture(params=["folder", "bucket"])
def kind(request):
    return request.param


@pytest.fixture
def raw(kind, request, tmp_path):
    """What lies in a folder, or below the prefix ``p`` of a bucket, by name."""
    if kind == "folder":
        return Files(tmp_path / "place")
    fake = request.getfixturevalue("store")
    fake.objects.clear()
    return Objects(fake)
