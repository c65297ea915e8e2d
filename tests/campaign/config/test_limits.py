"""What is refused of site, storage and cluster before anything is started, each with its cure."""

import copy
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.config import rules
from campaign.config.tree import CHOICES, NODES, convert_point, convert_value
from campaign.errors import UsageError
from campaign.testbed.spec import KINDS as DEVICES
from campaign.testbed.spec import EmulatedNode, Testbed
from jobs.model.conduct import SBATCH_TEXTS, ConductKeys, SiteStorage, SlurmCluster
from jobs.model.declared import declared_settings
from jobs.model.settings import Common
from tests.campaign.work_lists import compose, with_value

SLURM = "cluster=slurm"
ALEXNET = "benchmark=alexnet"
MALWARE = ("benchmark=malware", "dataset=malware")
CLIMATE = ("benchmark=climate", "dataset=climate_smoke")
COMMAND = ("benchmark=command", "benchmark.argv=[a]")
FOLDER = ("dataset=folder", "dataset.path=/a")
PLAIN, BASELINE = (), "benchmark=baseline"
LARGE = ("dataset=climate", "dataset.width=16384", "dataset.height=16384")
SAVED = (ALEXNET, "checkpoint=hdd", "checkpoint.root=/x")
BUFFER = (ALEXNET, "checkpoint=burst_buffer", "checkpoint.fast.root=/f")
_WRONG = [
    (PLAIN, "profile.every=5", "profile.every=5 with profile.posix=none", "profile.posix=trace"),
    # Words that end up in a batch script.
    ("site=tegner", "++site.storages.lustre.license='a b'", "site.storages.lustre.license='a b'", "lustre:1"),
    ("site=tegner", "site.modules=['$x']", "site.modules: '$x'", "cuda/12.2"),
    # The mini-application.
    (ALEXNET, "batch_size=1024", "a training takes whole batches: batch_size=1024", "batch_size=512 or less"),
    ("accelerator=emulated", "threads=1", "accelerator=emulated: benchmark=micro computes nothing",
     "benchmark=alexnet"),
    (ALEXNET, "accelerator.step_s=1", "accelerator.step_s=1.0 with accelerator=auto", "accelerator=emulated"),
    (ALEXNET, "accelerator.name=tpu", "accelerator.name=tpu is no accelerator", "gpu"),
    # Images and files.
    (LARGE, "benchmark.preprocess=false", "less than 4 GiB", "help dataset"),
    # Choices.
    (PLAIN, "benchmark.name=run", "benchmark.name=run is no benchmark", "micro"),
    (PLAIN, "cluster.name=foo", "cluster.name=foo is no cluster", "local"),
    # Baselines.
    (BASELINE, "checkpoint=local", "benchmark=baseline trains nothing", ""),
    ((BASELINE, "benchmark.access=random_read"), "benchmark.engine=ior", "IOR has no threads", ""),
    # Snapshots.
    (("checkpoint=hdd",), "checkpoint.root=/x", "checkpoint=hdd: benchmark=micro trains nothing", "benchmark=alexnet"),
    ((ALEXNET, "checkpoint=hdd"), "checkpoint.root=https://h/b", "checkpoint is a bucket",
     "checkpoint.slow may be a bucket"),
    (BUFFER, "checkpoint.slow.root=https://h", "checkpoint.slow.root=https://h: this is not the address", "https://HOST/BUCKET"),
    *(
        (
            BUFFER,
            f"checkpoint.slow.root='https://k:s@h/b{more}'",
            "checkpoint.slow.root=h/b: this is not the address",
            "without cred",
        )
        for more in ("", "?key=s")
    ),
    (
        BUFFER,
        "checkpoint.slow.root='https://AKIA:SECRET/b'",
        "checkpoint.slow.root=…: this is not the address",
        "without cred",
    ),
    (SAVED, "checkpoint.in_flight=2", "in_flight=2 with checkpoint.mode=sync", "checkpoint.mode=async"),
    (SAVED, "checkpoint.name='../x'", "checkpoint.name='../x' is not a valid name", "letters"),
    (SAVED, "checkpoint.root=''", "checkpoint.root='' is no path", "folder"),
    # Profiles.
    # What is no image, and copies.
    ("dataset=malware", "threads=1", "dataset=malware has no images to decode", "benchmark.preprocess=false"),
    (ALEXNET, "dataset=malware", "dataset=malware has no images to decode", "benchmark=micro"),
    (FOLDER, "dataset.hdf5=x", "dataset=folder has no images to decode", "benchmark.preprocess=false"),
    (FOLDER, "dataset.hdf5=/x", "dataset.hdf5='/x' is no path of a data set", "climate/data"),
    (CLIMATE, "staging=all", "staging=all: benchmark=climate cannot read the copies", "benchmark.stage=FOLDER"),
    (("site=twin", "storage=nodes"), "staging=all", "below storage.node_root", "staging=none"),
    (CLIMATE, "benchmark.stage=fast", "benchmark.stage='fast' is no absolute path", "/mnt/fast"),
    ((*CLIMATE, "benchmark.stage=/f"), "benchmark.control=no_io", "reads no files, so no copies are needed", "leave"),
    (CLIMATE, "benchmark.channels=[16]", "benchmark.channels=[16]: the data have no such", "null for all"),
    # A program of the user's.
    (COMMAND, "profile.posix=trace", "can only count the POSIX calls of a program", "profile.posix=counters"),
    (COMMAND, "profile.tensorflow=all", "can only count the POSIX calls of a program", "profile.posix=counters"),
    (COMMAND, "benchmark.metric=a", "benchmark.metric=a has 0 groups", "round the number"),
    (COMMAND, "benchmark.begins='(a'", "benchmark.begins=(a is no regular expression", "Python's module re"),
    # Several nodes.
    (CLIMATE, "nodes=103", "dataset.files=129 make 0 batches for training on 103 nodes", "smaller batch"),
    ("nodes=4", "iterations=9", "the dataset has 128 for each node", "iterations=2 or fewer"),
    ("storage.root=/a", "storage.node_root=/b", "storage.node_root=/b with storage.root=/a", "{rank}"),
    ("storage.root=a", "storage.node_root='/b{rank}'", "is not a folder for each rank", "write absolute paths"),
    # Options of sbatch.
    (SLURM, "+cluster.extra.mail_type=END", "cluster.extra.mail_type is no long option", "write mail-type"),
    (SLURM, "+cluster.extra.mail-user='a\tb'", "is no plain value", "one line of text"),
    (SLURM, "+cluster.extra.mail-user=[a]", "is no plain value", "one line of text"),
    # Numbers.
    ("site=tegner", "++site.storages.lustre.stripe_count=2001", "stripe_count=2001", "-1 to 2,000"),
    # Names and paths.
    ("site=tegner", "site.storages.lustre.root='a\tb'", "site.storages.lustre.root='a\\tb' is no path", "folder"),
    # What does not go together.
    (PLAIN, "storage.exclusive=license", "storage=local has no licence here", "storage.license=…"),
    ("cluster=auto", "site.timeout_max_min=30", "site=none allows 30 minutes", "is requeued and continues"),
    (SLURM, "campaign_dir=a%j", "has a '%'", "cluster=local"),
    ("cluster=auto", "campaign_dir='a\\b'", r"has a '\\'", "cluster=local"),
    (SLURM, 'campaign_dir="it\'s"', 'has a "\'"', "cluster=local"),
    # Keys.
    ("site=tegner", "+site.storages.lustre.rot=x", "unknown key 'site.storages.lustre.rot'",
     "site.storages.lustre.root"),
]  # fmt: skip
LEGAL = [
    ("dataset=malware", "benchmark.preprocess=false", "staging=advised"),
    (SLURM, "cluster.partition='gpu,long'"),
    (SLURM, "cluster.constraint='[rack1*2&rack2]|!K420'"),
    (SLURM, "cluster.pool='n[1-4,7],m1'"),
    (SLURM, "cluster.prelude=['export A=1; echo $A']"),
    (SLURM, "cluster.dependency='afterok:1:2,singleton?after:3+5'"),
    (SLURM, "cluster.licenses=lustre@server/db:2"),
    (SLURM, "cluster.modules=[gcc/12.2,boost/1.8+mpi]"),
    (
        SLURM,
        '+cluster.extra={mail-type: END, nice: 10, contiguous: true, reservation: null, gpus: 1, mail-user: "it\'s"}',
    ),
    (SLURM, "detach=true"),
    (SLURM, "cluster.timeout_min=2"),
    (SLURM, "site.timeout_max_min=60"),
    (SLURM, "campaign_dir='a b'"),
    ("cluster=local", "campaign_dir=a%j"),
    ("runs=40", "max_runs=6"),
    ("runs=3", "warmup_runs=0", "max_runs=5", "until_spread=0.01"),
    ("cluster=local", "site.timeout_max_min=30"),
    ("site=tegner", "site.storages.lustre.root=/x"),
    ("storage.license=lustre:1", "storage.exclusive=license"),
    ("storage.stripe_count=-1", "storage.stripe_size_mib=1"),
]


@pytest.mark.parametrize(("choice", "word", "message", "hint"), _WRONG)
def test_a_wrong_value_is_named_with_its_cure(choice, word, message, hint):
    with pytest.raises(UsageError) as caught:
        rules.check_point(compose(*([choice] if isinstance(choice, str) else choice), word))

    assert message in caught.value.message
    assert hint in caught.value.hint
    assert "SECRET" not in caught.value.message + caught.value.hint


@pytest.mark.parametrize("words", LEGAL)
def test_what_a_cluster_needs_is_let_through(words):
    assert rules.check_point(compose(*words)) is None


@pytest.fixture(scope="module")
def slurm_point():
    return compose(SLURM)


KINDS = {
    **{f"{group}:{name}": kind for group, kinds in CHOICES.items() for name, kind in kinds.items()},
    **{
        kind.__name__: kind
        for kind in (Common, ConductKeys, SiteStorage, Testbed, EmulatedNode, *DEVICES.values(), *NODES.values())
    },
}
NUMBERS = [
    pytest.param(each, id=f"{name}.{each.name}")
    for name, kind in KINDS.items()
    for each in declared_settings(kind).values()
    if each.scalar in (int, float)
]


@pytest.mark.parametrize("each", NUMBERS)
def test_a_number_is_legal_from_the_least_to_the_most_and_no_further(each):
    least, most = each.bounds

    for value in (math.nan, math.inf, math.nextafter(least, -math.inf), math.nextafter(most, math.inf)):
        with pytest.raises(UsageError, match="is out of range") as caught:
            convert_value(value, each, "the.key")
        assert caught.value.message == f"the.key={value} is out of range"
        assert caught.value.hint.replace(",", "").startswith(f"legal: {least:.15g} to {most:.15g}")
    assert [convert_value(value, each, "the.key") for value in (least, most)] == [least, most]


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (PLAIN, "threads"), (PLAIN, "checks.peak_max"), (ALEXNET, "benchmark.width"), (SLURM, "cluster.parallel"),
        (BUFFER, "checkpoint.streams"), (MALWARE, "dataset.files"), (PLAIN, "site.login_processes"),
    ],
)  # fmt: skip
def test_a_number_of_each_node_is_looked_at_where_it_is_composed(words, key):
    point = compose(*([words] if isinstance(words, str) else words))

    with pytest.raises(UsageError, match=f"{key}=-7 is out of range"):
        convert_point(with_value(point, key, -7))


@given(st.sampled_from(SBATCH_TEXTS), st.text("ab1 ;$`'\"\\\n<>{}~#%é\0", min_size=1))
def test_nothing_that_a_shell_would_act_on_gets_into_a_script(slurm_point, key, text):
    point = copy.deepcopy(slurm_point)
    point["cluster"][key] = text

    if set(text) <= set("ab1"):
        rules.check_point(point)
    else:
        with pytest.raises(UsageError, match=key):
            rules.check_point(point)


def test_every_text_of_a_job_is_looked_at(slurm_point):
    of_slurm, of_storage = (
        {name for name, each in declared_settings(kind).items() if each.scalar is str and not each.words} - {"name"}
        for kind in (SlurmCluster, SiteStorage)
    )

    assert of_slurm == set(SBATCH_TEXTS)
    assert of_storage == {
        *("root", "license", "node_root"),
        *("endpoint", "bucket", "prefix", "region", "device"),  # looked at where the storage is chosen
    }


@pytest.mark.parametrize("node", ["benchmark", "dataset", "site", "storage", "cluster", "checks"])
def test_every_key_of_every_node_must_be_there_and_no_other(node, slurm_point):
    for key in slurm_point[node]:
        without = copy.deepcopy(slurm_point)
        del without[node][key]
        with pytest.raises(UsageError, match=f"{node}.{key} is missing"):
            convert_point(without)

    slurm_point = {**slurm_point, node: {**slurm_point[node], "foo": 1}}
    with pytest.raises(UsageError, match=f"unknown key '{node}.foo'"):
        convert_point(slurm_point)


def test_a_folder_below_one_with_a_percent_sign_is_no_place_for_slurm(tmp_path, monkeypatch, slurm_point):
    (tmp_path / "50%").mkdir()
    monkeypatch.chdir(tmp_path / "50%")

    with pytest.raises(UsageError, match="has a '%'"):
        rules.check_point(slurm_point)
