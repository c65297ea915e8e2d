"""The curve of utilisation over the number of accelerators, and the sentence of the summary."""

import pytest

from analysis.figures.feed_accelerators import answers
from analysis.frames import frames_of_records
from jobs.judging.fed_accelerators import NOT_MLPERF
from tests.analysis.record_factory import id_of, parse, record, run

OWN = {"name": "own", "minimum": 0.9, "step_s": 0.1, "batch": 8, "sample_bytes": 200_000}
MERIT = {"kind": "pipeline", "figure": "au_percent", "unit": "%", "better": "higher", "benchmark": "feed"}


def probe(number, *shares, batches="cold", wait=0.0, late=0.0, step_s=0.1, **settings):
    page_cache = {"resident_fraction": 1.0, "device_bytes": 0} if batches == "warm" else {}
    runs = [
        run(
            n, 80.0 * number, au_percent=share, au_mean_percent=share, au_dlio_percent=share, cpu_wait_percent=wait,
            **page_cache,
        )
        for n, share in enumerate(shares, start=1)
    ]  # fmt: skip
    for each in runs:
        each["accelerators"] = [{"accelerator": 0, "late_share": late, "wall_s": each["wall_s"]}]
    source = "memory" if batches == "memory" else "storage"
    made = record(runs, benchmark__name="feed", benchmark__accelerators=number, benchmark__source=source, **settings)
    cache = "as_is" if batches == "memory" else batches
    made["cell"]["settings"] |= {"accelerator": OWN | {"step_s": step_s}, "cache": cache}
    made["cell"] |= MERIT | {
        "id": id_of(made).replace("micro", f"feed-{number}-{batches}-{step_s}"),
        "page_cache": cache,
    }
    return made


def late_probe(number, batches="cold", times=2, **settings):
    """Return a probe whose accelerators ended their steps late."""
    return probe(number, *[99.0] * times, batches=batches, late=0.02, **settings)


SEARCH = [probe(3, 99.0), probe(4, 93.0, 91.0), probe(5, 74.0, 91.0), probe(8, 46.0)]
CONTROLS = [probe(5, 99.5, batches="memory")]


FEEDS_4 = f"local feeds 4 own, not 5 (worst rank 91.0 %, 74.0 %) ({NOT_MLPERF})"
CLIENT = "local: this client can emulate at most"
LEAST_3, LEAST_4 = (f"; local feeds at least {number} ({NOT_MLPERF})" for number in (3, 4))


@pytest.mark.parametrize(
    ("records", "sentences"),
    [
        ([*SEARCH, *CONTROLS], [FEEDS_4]),
        ([*SEARCH[:3], probe(10, 99.0), *CONTROLS], [FEEDS_4]),
        (
            [*SEARCH[:2], probe(5, 74.0, 91.0, wait=18.0), *CONTROLS],
            [f"{CLIENT} 4 own (batches from memory, 5: 99.5 %, cold, 5: readers lack a processor for 18 %){LEAST_4}"],
        ),
        (
            [*SEARCH, probe(5, 97.9, batches="memory"), probe(4, 97.0, batches="memory")],
            [f"{CLIENT} 3 own (batches from memory, 4: 97.0 %){LEAST_3}"],
        ),
        (
            [*SEARCH, *CONTROLS, probe(5, 89.0, batches="warm")],
            [f"{CLIENT} 4 own (batches from memory, 5: 99.5 %, data in memory, 5: 89.0 %){LEAST_4}"],
        ),
        (
            [SEARCH[0], late_probe(4), probe(3, 99.0, batches="memory")],
            [f"{CLIENT} 3 own (cold, 4: steps end late){LEAST_3}"],
        ),
        ([late_probe(1)], [f"{CLIENT} 0 own (cold, 1: steps end late) ({NOT_MLPERF})"]),
        ([SEARCH[0], late_probe(4, times=1)], []),
        (
            [probe(3, 99.0), probe(4, 93.0), late_probe(4, batches="memory")],
            [f"{CLIENT} 3 own (batches from memory, 4: steps end late){LEAST_3}"],
        ),
        (SEARCH, []),
        ([*SEARCH[:2], *CONTROLS], []),
        (
            [*SEARCH[:2], probe(4, 99.0, batches="memory")],
            [f"local feeds 4 own at least (worst rank 91.0 %) ({NOT_MLPERF})"],
        ),
        (
            [probe(1, 28.0), probe(1, 99.0, batches="memory")],
            [f"local feeds less than one own (worst rank 28.0 %) ({NOT_MLPERF})"],
        ),
        (
            [probe(1, 28.0), probe(1, 99.0, batches="memory"), late_probe(1, step_s=0.3), probe(1, 91.0, step_s=0.4)],
            [f"local feeds less than one own (worst rank 28.0 %) ({NOT_MLPERF})"],
        ),
        (
            [*SEARCH, *CONTROLS, late_probe(1, step_s=0.2), probe(2, 89.0, step_s=0.2)],
            [FEEDS_4, f"{CLIENT} 0 own (cold, 1: steps end late) ({NOT_MLPERF})"],
        ),
    ],
    ids=[
        "known",
        "twice as many are fed in one run",
        "readers lack a processor",
        "the client is the limit",
        "the client reads too slowly",
        "cold runs come late",
        "not even one is in time",
        "one late run decides nothing",
        "batches from memory come late",
        "no control",
        "no control of the last number",
        "no number that fails",
        "less than one",
        "longer steps of one are no search of their own",
        "two searches with steps of two lengths",
    ],
)
def test_the_summary_says_what_the_command_says_of_a_search_that_came_to_its_end(records, sentences):
    table, runs = frames_of_records([parse(each) for each in records])

    assert list(answers(table, runs)) == sentences
