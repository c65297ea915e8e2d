"""What a site's file says reaches the storages, the jobs and the checks."""

import json
import re
from importlib.resources import files

import pytest

from campaign.cli import run
from campaign.config import rules
from campaign.config.collect import collect_points, make_cells
from campaign.errors import UsageError
from campaign.storage.roots import mounted_folder
from jobs.model.settings import flat_items
from jobs.system.device import Mount

TEMPLATE = files("conf") / "site" / "mysite.yaml.template"
OF_SITE = {
    "pool": "n[1-4]",
    "mem_gb": 8.0,
    "wckey": "w1",
    "comment": "project=x",
    "partition": "gpu",
    "account": "a1",
    "qos": "high",
    "constraint": "K80&haswell",
    "gpus_per_node": 2,
}
SITE = "".join(f"{key}: {value}\n" for key, value in OF_SITE.items())
SITE += """\
modules: [gcc/12.2, cuda]
prelude: [export A=1]
spread_max: 0.02
other_cpu_max: 0.75
throttled_max: 0.1
storages:
  lustre: {root: /lustre/me, shared: false, exclusive: license, license: "lustre:1", stripe_count: 4}
  scratch: {root: /scratch/me, stripe_size_mib: 16}
  tmpfs: {root: /dev/shm, node_root: "/node{rank}/shm"}
  ceph: {kind: s3, endpoint: https://s3.here, bucket: mine, prefix: a, region: r, device: /dev/sdb}
"""


@pytest.fixture
def grid(site):
    """Compose words with a site of the user's own."""
    mine = site(SITE)
    return lambda *words: collect_points(["-m", *mine, *words])


@pytest.fixture
def of_mine(grid):
    """The one point of such words."""
    return lambda *words: grid(*words)[0]


@pytest.mark.parametrize("cluster", ["slurm", "auto"])
def test_what_the_site_says_of_its_scheduler_is_the_default_of_the_cluster(cluster, of_mine):
    found = of_mine(f"cluster={cluster}")["cluster"]

    assert {key: found[key] for key in OF_SITE} == OF_SITE
    assert (found["modules"], found["prelude"]) == (["gcc/12.2", "cuda"], ["export A=1"])
    assert found["name"] == cluster


@pytest.mark.parametrize(
    ("words", "trained_on"),
    [
        (["+paper=fig6"], ("emulated", 1.0)),
        (["+paper=fig6", "+size=smoke", "accelerator.step_s=0.5"], ("emulated", 0.5)),
        (["+paper=fig6", "+size=smoke", "accelerator=cpu"], ("cpu", None)),
        (["+paper=fig6", "site.accelerator=auto"], ("auto", None)),
        (["+paper=fig4"], ("auto", None)),
    ],
)
def test_a_training_runs_on_what_the_site_has_unless_another_is_asked_for(words, trained_on):
    points = collect_points(["-m", "site=twin", *words])

    assert {(point["accelerator"]["name"], point["accelerator"]["step_s"]) for point in points} == {trained_on}


def test_the_command_line_overrules_the_site(of_mine):
    found = of_mine("cluster=slurm", "cluster.partition=long", "storage=lustre", "storage.exclusive=none")

    assert (found["cluster"]["partition"], found["site"]["partition"]) == ("long", "gpu")
    assert found["storage"]["exclusive"] == "none"


def test_the_tolerance_of_the_site_is_that_of_the_check(of_mine):
    of_site = {"spread_max": 0.02, "other_cpu_max": 0.75, "throttled_max": 0.1}

    assert of_site.items() <= of_mine()["checks"].items()
    asked = of_mine(*(f"checks.{key}=0.6" for key in of_site))["checks"]
    assert {asked[key] for key in of_site} == {0.6}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["storage=lustre"], {"root": "/lustre/me", "shared": False, "exclusive": "license", "license": "lustre:1",
         "stripe_count": 4}),
        (["storage=hdd"], {"root": None}),
        (["storage=tmpfs"], {"root": "/dev/shm", "shared": False, "node_root": "/node{rank}/shm"}),  # noqa: S108 - no file is made
        (["storage=site", "storage.name=scratch"], {"root": "/scratch/me", "stripe_size_mib": 16}),
    ],
    ids=["all of it", "nothing", "memory", "a name of the user's own"],
)  # fmt: skip
def test_a_storage_is_where_and_what_the_site_says_and_has_defaults_for_the_rest(words, says, of_mine):
    name = words[-1].partition("=")[2]
    default = {"shared": True, "exclusive": "lock", "license": None, "stripe_count": None, "stripe_size_mib": None}
    default |= {"node_root": None}

    assert of_mine(*words)["storage"] == {"name": name, **default, **says}


def test_an_object_store_is_where_the_site_says_and_is_no_folder(of_mine):
    of_site = {"endpoint": "https://s3.here", "bucket": "mine", "prefix": "a", "region": "r", "device": "/dev/sdb"}

    found = of_mine("storage=s3", "storage.name=ceph")

    assert {key: found["storage"][key] for key in of_site} == of_site
    with pytest.raises(UsageError, match="another kind of ceph"):
        make_cells([of_mine("storage=site", "storage.name=ceph", "storage.root=/x")])


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("endpoint: https://h/gateway", "site.storages.ceph.endpoint='https://h/gateway' is no address"),
        ("endpoint: https://k:s@h", "site.storages.ceph.endpoint='h' is no address"),
        ("endpoint: https://k:s", "site.storages.ceph.endpoint='…' is no address"),
        ("region: eu_1", "not the address of a bucket"),
        ("prefix: a//b", "not the address of a bucket"),
        ("bucket: a/b", "not the address of a bucket"),
        ("prefix: runs#1", None),
    ],
)
def test_what_a_site_says_of_a_bucket_is_looked_at(site, said, message):
    store = {"kind": "s3", "endpoint": "https://h", "bucket": "mine", **dict([said.split(": ")])}
    mine = site(f"storages: {{ceph: {json.dumps(store)}}}\n")
    words = ("checkpoint=burst_buffer", "checkpoint.fast.root=/f", "checkpoint.slow.name=ceph")
    (point,) = collect_points(["-m", *mine, "benchmark=alexnet", "iterations=4", "checkpoint.every=2", *words])

    if message:
        with pytest.raises(UsageError, match=re.escape(message)):
            rules.check_point(point)
    else:
        rules.check_point(point)


@pytest.mark.parametrize(
    ("words", "sync"),
    [
        (["sync=allreduce"], "allreduce"),
        (["sync=allreduce", "site.trusted_network=true"], "ring"),
        (["sync=ring", "site.trusted_network=true"], "ring"),
        (["sync=barrier", "site.trusted_network=true"], "barrier"),
    ],
)
def test_tensorflow_s_servers_add_up_only_where_the_site_says_that_nobody_else_reaches_them(
    words, sync, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    cells, _ = make_cells(collect_points(["-m", "nodes=2", *words]))

    assert [cell.settings["sync"] for cell in cells] == [sync]
    assert run.main(["--dry-run", "-m", "cluster=local", "nodes=2", *words]) == 0
    assert ("listen on all network addresses of each node without" in capfd.readouterr().err) == (sync == "ring")


def test_tensorflow_s_servers_are_refused_where_others_may_reach_them():
    with pytest.raises(UsageError, match=r"sync=ring without site\.trusted_network=true") as caught:
        make_cells(collect_points(["-m", "nodes=2", "sync=ring"]))

    assert "sync=allreduce" in caught.value.hint


def test_storages_of_the_site_can_be_swept(grid):
    found = grid("storage=site", "storage.name=lustre,scratch")

    assert [point["storage"]["root"] for point in found] == ["/lustre/me", "/scratch/me"]


@pytest.mark.parametrize("name", ["lustre", "tmpfs"])
def test_a_storage_that_is_not_here_is_refused_with_the_cure(name):
    with pytest.raises(UsageError, match=f"storage={name} has no root here") as caught:
        make_cells(collect_points(["-m", f"storage={name}"]))

    assert "storage.root=" in caught.value.hint


@pytest.mark.parametrize(("site", "storages"), [("blackdog", "hdd,ssd,optane"), ("tegner", "lustre")])
def test_the_papers_machines_are_complete(site, storages):
    cells, conduct = make_cells(collect_points(["-m", f"site={site}", f"storage={storages}", "cluster=slurm"]))

    assert [cell.settings["storage"]["name"] for cell in cells] == storages.split(",")
    assert {cell.access["shared"] for cell in cells} == {site == "tegner"}
    assert conduct["checks"]["spread_max"] == {"blackdog": 0.01, "tegner": 0.04}[site]


@pytest.mark.parametrize(
    ("words", "storage"),
    [
        (["site=tegner", "storage=lustre", "site.storages.lustre.stripe_count=4"], ("lustre", "/lustre", 4)),
        (["storage=scratch", "+site.storages.scratch.root=/s"], ("scratch", "/s", None)),
    ],
)
def test_each_key_of_a_storage_of_the_site_can_be_said_on_the_command_line_and_so_can_a_new_storage(words, storage):
    (point,) = collect_points(["-m", *words])

    assert tuple(point["storage"][key] for key in ("name", "root", "stripe_count")) == storage


def test_a_storage_of_the_site_is_a_choice_whatever_its_name(grid):
    points = grid("storage=scratch,local,ceph", "benchmark=alexnet", "checkpoint=scratch", "checkpoint.every=2")

    found = [(point["storage"]["name"], point["storage"].get("root")) for point in points]
    assert found == [("scratch", "/scratch/me"), ("local", "data"), ("ceph", None)]
    assert points[0]["storage"]["stripe_size_mib"] == 16
    assert points[2]["storage"]["bucket"] == "mine"
    assert {point["checkpoint"]["root"] for point in points} == {"/scratch/me"}


def test_a_storage_that_the_site_has_not_is_told_with_those_that_it_has(grid):
    with pytest.raises(UsageError, match="no choice 'scrath'") as caught:
        grid("storage=scrath")

    assert "did you mean 'scratch'" in caught.value.hint
    with pytest.raises(UsageError, match="no choice 'scratch'"):  # of the site alone, not of the next command
        collect_points(["-m", "storage=scratch"])


@pytest.mark.parametrize(
    ("words", "storages"),
    [
        ("storage=/mnt/a,/mnt/b", [("mnt_a", "/mnt/a"), ("mnt_b", "/mnt/b")]),
        ("storage=/mnt/a,scratch threads=1", [("mnt_a", "/mnt/a"), ("scratch", "/scratch/me")]),
        ("storage='/a-b/c,d'", [("a_b_c_d", "/a-b/c,d")]),
        ("storage=./here storage.shared=false", [("here", "./here")]),
        ("storage='~/data'", [("data", "~/data")]),
        ("storage.name=mine storage=/mnt/a", [("mine", "/mnt/a")]),
        (f"storage=/{'long/' * 20}", [("ong_long_long_long_long_long_long", f"/{'long/' * 20}")]),
        ("storage=/", [("root", "/")]),
        ("benchmark=alexnet checkpoint=/mnt/a checkpoint.every=2", [("local", "data")]),
    ],
)
def test_a_folder_is_short_for_a_storage_with_that_root(words, storages, grid):
    points = grid(*words.split())

    cells, _ = make_cells(points)
    found = [(cell.settings["storage"]["name"], cell.settings["storage"]["root"]) for cell in cells]
    assert found == [(name[-32:], root) for name, root in storages]
    if "checkpoint" in words:
        assert [(point["checkpoint"]["name"], point["checkpoint"]["root"]) for point in points] == [("mnt_a", "/mnt/a")]


def test_in_the_folder_where_one_stands_a_storage_has_its_name(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")

    assert collect_points(["storage=."])[0]["storage"]["name"].endswith("_mine")


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("cluster.modules=gcc,cuda", [["gcc", "cuda"]]),
        ("cluster.modules=gcc", [["gcc"]]),
        ("cluster.modules=['a,b',2024]", [["a,b", "2024"]]),
        ("site.modules=gcc,cuda", [["gcc", "cuda"]]),
        ("site.prelude='export A=1'", [["export A=1"]]),
        ("site.pool=n[1-4],n7", ["n[1-4],n7"]),
        ("cluster.pool=n[1-4],n7", ["n[1-4],n7"]),
        ("site.partition=gpu,long", ["gpu,long"]),
        ("benchmark.channels=1,2", [[1, 2]]),
        ("benchmark.channels=[1],[2,3],null", [[1], [2, 3], None]),
        ("benchmark.channels=choice(1,2)", None),
    ],
)
def test_a_comma_in_a_list_separates_its_items_whichever_key_it_is(word, values):
    key = word.partition("=")[0]

    if values is None:
        with pytest.raises(UsageError, match="is no list"):
            collect_points(["cluster=slurm", "benchmark=climate", word])
    else:
        assert [
            dict(flat_items(point))[key] for point in collect_points(["cluster=slurm", "benchmark=climate", word])
        ] == values


SHM = "/dev/shm"  # noqa: S108 - another file system, nothing is written
MEMORY = "storages:\n  memory: {root: /dev/shm, shared: false}\n"


@pytest.mark.parametrize(
    ("words", "sites", "storage"),
    [
        (["dataset.path=/dev/shm"], "", ("shm", SHM, True)),
        (["dataset.path=/dev/shm"], MEMORY, ("memory", SHM, False)),
        (["dataset.path=site"], MEMORY, ("local", "data", True)),
        (["dataset.path=/no/such/folder"], "", ("local", "data", True)),
        (["dataset.path=/dev/shm", "storage=local"], MEMORY, ("local", "data", True)),
        (["dataset.path=/dev/shm", "storage.name=mine"], "", ("mine", SHM, True)),
    ],
)
def test_a_folder_of_ones_own_brings_the_storage_that_it_lies_on(words, sites, storage, site, monkeypatch):
    mine = site(sites)
    monkeypatch.chdir(mine[1])

    (point,) = collect_points(["-m", *mine, "dataset=folder", *words])

    assert tuple(point["storage"][key] for key in ("name", "root", "shared")) == storage


def test_each_of_several_folders_brings_its_own_storage(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    points = collect_points(["-m", "dataset=folder", f"dataset.path={tmp_path},/dev/shm"])

    assert [point["storage"]["name"] for point in points] == ["local", "shm"]


def test_the_template_is_no_site_until_it_is_copied(tmp_path):
    with pytest.raises(Exception, match="mysite"):
        collect_points(["-m", "site=mysite"])

    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "mysite.yaml").write_text(TEMPLATE.read_text())
    words = ["site=mysite", "storage=site", "storage.name=lustre,scratch", "cluster=slurm"]
    cells, conduct = make_cells(collect_points(["-m", "--config-dir", str(tmp_path), *words]))

    assert [cell.access["exclusive"] for cell in cells] == ["license", "lock"]
    assert conduct["site"]["name"] == "mysite"


def test_the_only_writable_folder_of_a_user_on_a_mounted_lustre_is_found(tmp_path):
    mounts = [Mount(str(tmp_path), "server:/fs", "lustre", "rw", ""), Mount("/", "/dev/a", "ext4", "rw", "")]

    assert mounted_folder("lustre", mounts, "me") == tmp_path
    assert mounted_folder("lustre", mounts[1:], "me") is None
    tmp_path.joinpath("scratch", "me").mkdir(parents=True)
    assert mounted_folder("lustre", mounts, "me") is None  # the mount point itself may be written, too
