from dataclasses import replace

import pytest

from campaign.cells.cell import distinguishing_settings, make_cell
from jobs.benchmarks import registry
from jobs.model.settings import EVERY, flat_items
from tests.campaign.work_lists import BUFFERED, DIRECT, compose, with_value

_OTHER = {True: False, False: True, None: 7, "cold": "warm", "data": "/elsewhere"}
KINDS = [
    (), ("benchmark=alexnet",), DIRECT, BUFFERED, ("benchmark=baseline",),
    ("benchmark=baseline", "benchmark.access=random_read"), ("dataset=folder", "dataset.path=/a"),
    ("benchmark=command", "benchmark.argv=[a,'{threads}']"),
    ("nodes=2",), ("benchmark=climate", "dataset=climate_smoke"),
    ("storage=s3", "storage.endpoint=http://127.0.0.1:7480", "storage.bucket=bucket"),
]  # fmt: skip


@pytest.mark.parametrize("words", KINDS)
def test_every_setting_changes_the_id(words):
    point = compose(*words)
    base = make_cell(point).id

    for key, value in flat_items(make_cell(point).settings):
        if key == "benchmark.name":
            continue
        other = [1] if isinstance(value, list) else _OTHER.get(value, f"{value}x" if isinstance(value, str) else None)
        other = "/files" if key == "dataset.list" and value is None else other  # a file that lists files
        changed = with_value(point, key, value + 1 if other is None else other)
        assert make_cell(changed).id != base, key


def test_no_key_of_the_conduct_changes_the_id(point):
    base = make_cell(point).id

    for key in point.keys() - set(EVERY):
        assert make_cell({**point, key: "something else"}).id == base, key


def test_the_beginning_of_an_id_says_what_people_vary(point):
    assert make_cell(point).id.startswith("micro-demo-local-t4-b64-p0-")
    assert make_cell({**point, "threads": 3, "batch_size": 5, "prefetch": 7}).id.startswith(
        "micro-demo-local-t3-b5-p7-"
    )


def _profile(**asked):
    return {"posix": "none", "tensorflow": "none", "every": None} | asked


@pytest.mark.parametrize(
    ("key", "nothing", "others", "acting"),
    [
        ("staging", "none", ["smallest", "advised"], "advised"),
        ("nodes", None, [1, 2, 4], 4),
        ("profile", _profile(every=5), [_profile(posix="counters")],
         {"posix": "counters", "tensorflow": "none"}),
        ("profile", _profile(), [_profile(posix="trace"), _profile(posix="trace", every=5)],
         {"posix": "trace", "tensorflow": "none", "every": 5}),
        ("profile", _profile(), [_profile(tensorflow="5-15")], {"posix": "none", "tensorflow": "5-15"}),
    ],
)  # fmt: skip
def test_a_cell_has_the_settings_that_act_and_no_others(key, nothing, others, acting, point):
    cells = [make_cell({**point, key: value}) for value in others]

    assert len({cell.id for cell in cells}) == len(cells)
    assert cells[-1].settings[key] == acting
    if nothing is not None:
        assert key not in make_cell({**point, key: nothing}).settings


def test_a_cell_names_each_setting_that_acts_be_it_at_its_default(point):
    settings = make_cell(point).settings

    assert settings["benchmark"] == point["benchmark"]
    assert settings["nodes"] == 1
    assert settings.keys() == {
        "benchmark", "dataset", "storage", "threads", "batch_size", "prefetch", "iterations", "seed", "cache",
        "accelerator", "checkpoint", "nodes",
    }  # fmt: skip
    assert "reader" in make_cell(compose("benchmark=climate", "dataset=climate_smoke")).settings


def test_a_cell_of_several_nodes_says_so_and_on_one_node_nothing_is_synchronised(point):
    ids = [make_cell({**point, "nodes": 2, "sync": sync}).id for sync in ("none", "barrier")]

    assert make_cell({**point, "sync": "allreduce"}).id == make_cell(point).id
    assert ids[0] != ids[1]
    assert all("-n2-" in each for each in ids)
    assert make_cell({**point, "staging": "advised"}).id.startswith("micro-demo-local-advised-t4")


def test_a_bucket_that_snapshots_drain_to_is_its_address_and_its_device_is_no_part_of_the_cell():
    words = [word for word in BUFFERED if "slow" not in word]
    roots = [f"https://h/b/p?region=eu{device}" for device in ("&device=/dev/sdb", "", "&timeout_s=7")]
    one, same, other = (make_cell(compose(*words, f"checkpoint.slow.root='{root}'")) for root in roots)

    assert (one, one.access.get("slow_device"), same.access.get("slow_device")) == (same, "/dev/sdb", None)
    assert one.settings["checkpoint"]["slow"]["root"] == roots[1]
    assert one.settings["checkpoint"].keys() == make_cell(compose(*BUFFERED)).settings["checkpoint"].keys()
    assert other.id != one.id


@pytest.mark.parametrize(
    ("spelling", "same"),
    [("http://h:80/", True), ("HTTP://H", True), ("http://h.", True), ("https://h", False), ("http://h:81", False)],
)
def test_spellings_of_one_endpoint_are_one_cell(spelling, same):
    def cell_of(endpoint):
        return make_cell(compose("storage=s3", f"storage.endpoint={endpoint}", "storage.bucket=b")).id, make_cell(
            compose("benchmark=alexnet", "checkpoint=burst_buffer", f"checkpoint.slow.root={endpoint.rstrip('/')}/b/p")
        ).id

    (objects, snapshots), (others, other_snapshots) = cell_of("http://h"), cell_of(spelling)

    assert (objects == others) is (snapshots == other_snapshots) is same


def test_a_new_version_of_the_benchmark_makes_a_new_cell(point, monkeypatch):
    before = make_cell(point)
    micro = registry.benchmarks()["micro"]
    monkeypatch.setitem(registry.benchmarks(), "micro", replace(micro, version=micro.version + 1))

    assert make_cell(point).id != before.id


def test_the_same_folder_is_the_same_dataset_from_wherever_it_is_named(point, tmp_path, monkeypatch):
    (tmp_path / "images").mkdir()
    point["dataset"] = {"name": "folder", "path": str(tmp_path / "images")}
    absolute = make_cell(point)
    monkeypatch.chdir(tmp_path)
    point["dataset"] = {"name": "folder", "path": "images"}

    assert make_cell(point).id == absolute.id


def test_how_jobs_are_kept_apart_on_a_storage_is_no_part_of_what_a_cell_is(point):
    access = {"shared": False, "exclusive": "license", "license": "lustre:1"}

    one, other = make_cell(point), make_cell({**point, "storage": {**point["storage"], **access}})

    assert one == other
    assert (one.access, other.access) == ({"shared": True, "exclusive": "lock", "license": None}, access)
    assert other.settings["storage"].keys() == {"name", "root", "stripe_count", "stripe_size_mib", "node_root"}


def test_cells_whose_ids_differ_in_the_hash_alone_are_told_apart_by_what_differs():
    sides = ("checkpoint=burst_buffer", "checkpoint.fast.name=nvme", "checkpoint.fast.root=/f")
    targets = [
        ("checkpoint=none",), ("checkpoint=hdd", "checkpoint.root=/h"), ("checkpoint=ssd", "checkpoint.root=/s"),
        (*sides, "checkpoint.slow.root=/h"), (*sides, "checkpoint.slow.root=/x", "checkpoint.slow.name=ceph"),
    ]  # fmt: skip
    cells = [make_cell(compose("benchmark=alexnet", *words)) for words in targets]
    alone = make_cell(compose("benchmark=alexnet", "threads=9"))

    assert len({cell.id.rpartition("-")[0] for cell in cells}) == 1
    assert [distinguishing_settings([*cells, alone]).get(cell.id) for cell in [*cells, alone]] == [
        "checkpoint=none", "checkpoint=hdd", "checkpoint=ssd",
        "checkpoint=burst_buffer checkpoint.fast.name=nvme checkpoint.slow.name=hdd",
        "checkpoint=burst_buffer checkpoint.fast.name=nvme checkpoint.slow.name=ceph", None,
    ]  # fmt: skip
    one, other = (make_cell(compose("benchmark=alexnet", *sides, f"checkpoint.slow.root={root}")) for root in "ab")
    assert distinguishing_settings([one, other]) == {
        one.id: "checkpoint.slow.root=a",
        other.id: "checkpoint.slow.root=b",
    }


def test_what_tells_cells_apart_is_written_as_it_is_typed():
    words = ["storage.stripe_count=null benchmark.preprocess=true", "storage.stripe_count=2 benchmark.preprocess=false"]
    cells = [make_cell(compose("benchmark=micro", *each.split())) for each in words]

    said = distinguishing_settings(cells)

    assert [sorted(said[cell.id].split()) for cell in cells] == [sorted(each.split()) for each in words]
