"""A benchmark that nobody knows: its record says what it is there for, and it is tabled and drawn."""

from tests.analysis.record_factory import id_of, record, run
from tests.analysis.training_factory import drawn


def toy(rates, *, size, merit=("pipeline", "files_per_s", "files/s", "higher"), **settings):
    """Return a record of a benchmark `toy` with a figure of its own and a setting `benchmark.size`."""
    runs = [run(n, 100.0, files_per_s=rate) for n, rate in enumerate(rates, start=1)]
    made = record(runs, benchmark__size=size, benchmark__name="toy", **settings)
    made["cell"] |= {"benchmark": "toy", "id": id_of(made).replace("micro", "toy")}
    made["cell"] |= dict(zip(("kind", "figure", "unit", "better"), merit, strict=True))
    return made


def swept(storage="hdd", **settings):
    return [toy([9.0 * size, 10.0 * size, 12.0 * size], size=size, storage=storage, **settings) for size in (1, 2, 4)]


def test_points_of_several_hosts_are_not_joined_and_the_caption_says_why():
    (spec,) = drawn("sweep-", *swept("hdd")[:2], *swept("hdd", host="node2")[2:])

    styles = {line.get_linestyle() for line in spec.drawn().axes[0].lines if len(line.get_xdata()) == 3}
    assert "-" not in styles
    assert "Not comparable (mixed: hosts node1, node2)." in spec.caption


def test_versions_never_mix():
    newer = swept()
    for each in newer:
        each["cell"] |= {"benchmark_version": 2, "id": f"{id_of(each)}-2"}

    specs = drawn("sweep-", *swept(), *newer)

    assert [spec.stem for spec in specs] == ["sweep-toy_version_1", "sweep-toy_version_2"]
