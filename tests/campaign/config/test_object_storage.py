"""An object store as a storage: what can be meant by its keys, and what of them is the cell."""

import re
from pathlib import Path

import pytest

from campaign.cells.cell import make_cell
from campaign.config import rules
from campaign.config.collect import collect_points, make_cells
from campaign.errors import RefusalsError, UsageError
from jobs.model.settings import flat_items
from tests.campaign.work_lists import compose

WORDS = ("storage=s3", "storage.endpoint=http://127.0.0.1:7480", "storage.bucket=bucket")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("storage.endpoint=null",), "storage=s3 has no endpoint"),
        (("storage.bucket=null",), "storage=s3 has no bucket"),
        (("storage.endpoint=127.0.0.1",), "is no address"),
        (("storage.endpoint='http://me:secret@host'",), "storage.endpoint='host' is no address"),
        (("storage.endpoint='http://me:secret'",), "storage.endpoint='…' is no address"),
        (("storage.endpoint='http://host:99999'",), "is no address"),
        (("storage.endpoint='http://host/path'",), "is no address"),
        (("storage.bucket=AB",), "is no bucket"),
        (("storage.prefix=a/../b",), "is no prefix"),
        (("storage.region='a b'",), "is no region"),
        (("storage.device=' '",), "is no path"),
        (("storage.concurrency=8",), "the engine threads has threads=…"),
        (("storage.kind=posix",), "storage.kind=posix does not fit"),
        (("cache=warm",), "cache=warm: a client can neither fill nor examine"),
        (("staging=all",), "staging=all with an object store"),
        (("nodes=2",), "nodes=2 with an object store"),
        (("storage.shared=false",), "storage.shared=False with an object store"),
        (("profile.posix=trace",), "profile.posix=trace with an object store"),
        (("benchmark=hepcnn", "dataset=hep"), "reader=h5py_threads with an object store"),
        (("benchmark=climate", "dataset=climate", "reader=offsets", "benchmark.stage=/fast"), "benchmark.stage=/fast"),
        (("benchmark=climate", "dataset=climate", "reader=offsets", "benchmark.control=metadata"), "are not opened"),
        (("benchmark=baseline", "benchmark.engine=fio"), "cannot use objects"),
        (("benchmark=baseline", "storage.engine=async"), "reads and writes objects by threads"),
    ],
)
def test_what_cannot_be_meant_of_objects_is_refused_and_no_password_is_repeated(words, message):
    chosen = [word for word in words if "." not in word.partition("=")[0]]

    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        rules.check_point(compose(*chosen, *WORDS, *(word for word in words if word not in chosen)))

    assert "secret" not in caught.value.message + caught.value.hint


PAPER = Path(__file__).parents[3] / "conf" / "paper"
PROFILE = ("profile.posix=trace with an object store", "profile.posix=none")
READER = ("reader=h5py_threads with an object store", "reader=offsets")
NODES = ("nodes=2 with an object store", "nodes=1")
CONTROL = ("benchmark.control=metadata opens files", "benchmark.control=none,no_io,no_compute")
RECIPES = {  # why each is refused on objects, and the words against that, as docs/how-to/s3.md says
    **dict.fromkeys(("table1", "fig4", "fig5", "fig6", "fig7", "fig8", "fig9", "fig10"), ()),
    "hepcnn": (READER, NODES),
    "cdb": (READER, CONTROL, NODES),
    **{f"tfdarshan_fig{each}": (PROFILE,) for each in ("3", "4", "5", "5_malware", *range(6, 12))},
    "tfdarshan_fig12": (PROFILE, ("staging=smallest with an object store", "staging=none")),
}
OTHERWISE = {f"tfdarshan_fig{each}": ["profile.posix=none", "profile.every=null"] for each in (3, 4)}


# One recipe of each kind; the others are like one of these.
KINDS = ("table1", "fig9", "cdb", "tfdarshan_fig12")
EVERY_RECIPE = [
    pytest.param(name, marks=[pytest.mark.long] * (name not in KINDS))
    for name in sorted(path.stem for path in PAPER.glob("*.yaml"))
]


@pytest.mark.parametrize("recipe", EVERY_RECIPE)
def test_a_recipe_is_refused_on_objects_for_what_the_table_says_and_runs_with_its_words(recipe):
    words = [f"+paper={recipe}", "+size=smoke", "site=blackdog", *WORDS]  # a site with the paper's storages

    refused = RECIPES[recipe]
    if refused:
        with pytest.raises(UsageError) as caught:
            make_cells(collect_points(["-m", *words]))
        for message, word in refused:
            assert message in caught.value.message
            assert word in caught.value.hint
    if recipe != "tfdarshan_fig12":  # which stages files, as it is meant to
        make_cells(collect_points(["-m", *words, *OTHERWISE.get(recipe, [word for _, word in refused])]))


def test_what_a_grid_is_refused_for_is_said_all_at_once_the_same_cure_once():
    words = ("benchmark=hepcnn", "dataset=hep", "nodes=2,4", "cache=warm", "storage.region='a b'")

    with pytest.raises(RefusalsError) as caught:
        make_cells(collect_points(["-m", *WORDS, *words]))

    cures = [cure for _, cure in caught.value.refusals]
    assert [cure.partition(",")[0].partition(" ")[0] for cure in cures] == [
        "storage.region=us-east-1", "cache=cold", "reader=offsets", "nodes=1", "nodes=1",
    ]  # fmt: skip
    assert all(cure in caught.value.hint for cure in cures)
    assert re.findall(r"nodes=\d with an object store", caught.value.message) == [
        f"nodes={count} with an object store" for count in (2, 4)
    ]
    assert caught.value.message.count("is no region") == caught.value.hint.count("nodes=1") == 1


def test_another_fault_of_a_later_point_hides_nothing_that_was_found_before():
    words = ("cache=warm,cold", "profile.posix=trace", "threads=1,999999")

    with pytest.raises(UsageError) as caught:
        make_cells(collect_points(["-m", *WORDS, *words]))

    for why, cure in (
        ("cache=warm: a client can neither fill nor examine", "cache=cold"),
        ("profile.posix=trace with an object store", "profile.posix=none"),
        ("threads=999999 is out of range", "legal: 1 to"),
    ):
        assert why in caught.value.message
        assert cure in caught.value.hint


def test_where_the_disk_is_seen_is_no_part_of_the_cell_and_how_objects_are_read_is():
    usual = make_cell(compose(*WORDS))

    for words in (("storage.device=/dev/loop7",), ("storage.timeout_s=30", "storage.engine=threads")):
        assert make_cell(compose(*WORDS, *words)).id == usual.id
    assert make_cell(compose(*WORDS, "storage.device=/dev/loop7")).access["device"] == "/dev/loop7"
    for word in ("storage.engine=async", "storage.checksum=true", "storage.retries=3", "storage.bucket=other"):
        assert make_cell(compose(*WORDS, word)).id != usual.id
    assert not any("secret" in key for key, _ in flat_items(usual.settings))


def test_the_key_of_a_users_own_objects_is_no_path():
    point = compose(*WORDS, "dataset=folder", "dataset.path=photos/mine")

    assert make_cell(point).settings["dataset"]["path"] == "photos/mine"
