"""The paper's claims, held against cells that must not be compared."""

from tests.analysis.record_factory import record
from tests.analysis.training_factory import training
from tests.lies.lie import REFUSED, VALID, Answer, Expected, lie
from tests.lies.records.made import judged, reported

_THREADS = (1, 2, 8)
_SCALING = {"hdd": (1.0, 1.6, 2.0), "ssd": (1.0, 1.9, 3.5), "lustre": (1.0, 1.9, 7.0)}
_DOUBLED, _BEST, _EQUAL = "almost double", "lustre scales best", "runtime is equal"
_HOSTS, _ONE_DEVICE = Expected((REFUSED,), "hosts|machines"), "one device"


def _grid(hosts=("node1",) * 3, device=None):
    """Return cells of three storages that scale as in the paper; `hosts` are those of 1, 2 and 8 threads."""
    return [
        record([100.0 * gain, 100.1 * gain, 100.2 * gain], storage=storage, threads=threads, host=host, device=device)
        for storage, gains in _SCALING.items()
        for threads, gain, host in zip(_THREADS, gains, hosts, strict=True)
    ]


@lie("Nothing: three storages of one host scale as in the paper.", Expected((VALID,), "^holds"))
def honest_records(workspace):
    return "eight threads over one: 2.0, 3.5, 7.0", judged(workspace, _BEST, *_grid())


@lie("One thread was measured on one host, two on another.", _HOSTS)
def doubling_of_two_hosts(workspace):
    cells = _grid(hosts=("node1", "node2", "node1"))
    return "one thread on node1, two on node2, of each storage", judged(workspace, _DOUBLED, *cells)


@lie("One thread was measured on one host, eight on another.", _HOSTS)
def scaling_of_two_hosts(workspace):
    cells = _grid(hosts=("node1", "node1", "node2"))
    return "one thread on node1, eight on node2, of each storage", judged(workspace, _BEST, *cells)


@lie("Three storages are three names of one disk.", Expected((REFUSED,), _ONE_DEVICE))
def scaling_of_one_disk(workspace):
    return "hdd, ssd and lustre are the device vda of one host", judged(workspace, _BEST, *_grid(device="vda"))


@lie("In the table 'vs 1 thread' the one thread is another host's.", Expected((REFUSED,)))
def table_of_two_hosts(workspace):
    answer = reported(workspace, *_grid(hosts=("node1", "node2", "node2")))
    first = next(place for place, line in enumerate(answer.remarks) if line.startswith("vs 1 thread"))
    table = "\n".join(answer.remarks[first : first + 6])
    told = "1.90" in table and "host" not in table  # without the ratios, or with the hosts named, it is right
    return "one thread on node1, two and eight on node2", Answer(VALID if told else REFUSED, (), answer.remarks)


@lie(
    "Two storages are two names of one disk, with one thread count, and are found to be equal.",
    Expected((REFUSED,), f"{_ONE_DEVICE}|thread|storage"),
)
def equal_on_one_disk(workspace):
    cells = [training([51.2, 51.1, 51.0], storage=name, device="vda") for name in ("hdd", "ssd")]
    return "hdd and ssd are the device vda, all with four threads", judged(workspace, _EQUAL, *cells)


@lie(
    "Runtimes that differ by half are found to be equal, because the runs were judged with checks.spread_max=10.",
    Expected((REFUSED,), "loose|spread|check|tolerance"),
)
def equal_by_loose_checks(workspace):
    cells = [
        training([runtime, runtime + 0.1, runtime + 0.2], storage=name, threads=threads, limit=10.0)
        for name, runtime in (("hdd", 90.0), ("ssd", 60.0))
        for threads in (1, 4)
    ]
    return "hdd takes 1.5 times as long as ssd", judged(workspace, _EQUAL, *cells)
