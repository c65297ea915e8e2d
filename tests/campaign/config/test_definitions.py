"""The definitions of accelerators in conf/accelerator: what they demand, who may use them, one of the user's own."""

from importlib.resources import files

import pytest

from campaign.config.collect import make_cells
from campaign.errors import RefusalsError, UsageError
from tests.campaign.work_lists import compose

# MB/s at full utilisation and at the minimum, as computed by hand from the files of MLPerf Storage.
DEMAND = {
    "unet3d_b200": (6_335, 5_701),
    "unet3d_h100": (3_177, 2_859),
    "unet3d_a100": (1_614, 1_452),
    "retinanet_b200": (163, 139),
    "retinanet_mi355": (163, 139),
    "retinanet_h100": (13.7, 11.6),
    "flux_b200": (77, 69),
    "resnet50_h100": (205, 184),
    "resnet50_a100": (105, 95),
    "cosmoflow_h100": (808, 566),
    "cosmoflow_a100": (513, 359),
    "dlrm_b200": (33_249, 0.7 * 33_249),
}
OWN = ("accelerator.sample_bytes=1000", "accelerator.batch=8", "accelerator.step_s=0.05")


def feeds(*words):
    return compose("benchmark=feed", "dataset=samples", "storage=local", *words)


@pytest.mark.parametrize("name", DEMAND)
def test_a_definition_demands_what_its_source_says(name):
    own = feeds(f"accelerator={name}")["accelerator"]
    demand = own["batch"] * own["sample_bytes"] / 1e6 / own["step_s"]

    assert (demand, demand * own["minimum"]) == pytest.approx(DEMAND[name], rel=0.006)
    source, _, commit = own["source"].partition(" @")
    assert (source, len(commit)) == (f"mlcommons/storage configs/dlio/workload/{name}.yaml", 7)


def test_every_definition_has_its_row_here():
    texts = {each.name.removesuffix(".yaml"): each.read_text() for each in (files("conf") / "accelerator").iterdir()}

    assert {name for name, text in texts.items() if "\nsource:" in text} == DEMAND.keys()


def test_batch_and_threads_are_those_of_the_definition_unless_somebody_says_other_ones():
    assert [feeds("accelerator=retinanet_b200")[key] for key in ("batch_size", "threads")] == [24, 8]
    assert feeds("accelerator=retinanet_b200", "threads=2")["threads"] == 2
    assert [compose()[key] for key in ("batch_size", "threads")] == [64, 4]


def test_the_data_have_the_sizes_of_the_samples():
    point = feeds("accelerator=own", *OWN, "accelerator.sample_sd=100")

    assert (point["dataset"]["sample_bytes"], point["dataset"]["sample_sd"]) == (1000, 100)
    assert make_cells([point])[0][0].settings["accelerator"]["minimum"] == 0.9


def test_the_source_is_no_part_of_a_cell():
    cells, _ = make_cells([feeds("accelerator=own", *OWN, f"accelerator.source={source}") for source in "ab"])

    assert len(cells) == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ("accelerator=dlrm_b200",),
            "step_s=0.000375 is less than 0.001 s: a process cannot sleep for so short a time",
        ),
        (("accelerator=own", *OWN, "sync=barrier"), "always meet"),
        (
            ("accelerator=own", *OWN, "accelerator.samples_per_file=3", "benchmark.engine=tf"),
            "files with one sample each",
        ),
        (("accelerator=own", *OWN, "accelerator.sample_sd=501"), "more than half of sample_bytes"),
        (("accelerator=cpu",), "benchmark=feed needs an emulated accelerator"),
    ],
)
def test_what_cannot_be_emulated_is_refused_with_the_reason(words, why):
    with pytest.raises((UsageError, RefusalsError), match=why):
        make_cells([feeds(*words)])


def test_no_other_benchmark_takes_a_definition():
    with pytest.raises(UsageError, match="is for benchmark=feed"):
        make_cells([compose("benchmark=alexnet", "accelerator=unet3d_h100")])
