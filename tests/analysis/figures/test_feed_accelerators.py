"""The curve of utilisation over the number of accelerators, and the sentence of the summary."""

import pytest

from analysis.figures.feed_accelerators import NOTICE, answers, over_accelerators
from analysis.frames import frames_of_records
from tests.analysis.record_factory import id_of, parse, record, run
from tests.analysis.training_factory import drawn

OWN = {"name": "own", "minimum": 0.9, "step_s": 0.1, "batch": 8, "sample_bytes": 200_000}
MERIT = {"kind": "pipeline", "figure": "au_percent", "unit": "%", "better": "higher", "benchmark": "feed"}


def probe(number, *shares, batches="cold", wait=0.0, **settings):
    runs = [
        run(n, 80.0 * number, au_percent=share, au_mean_percent=share, au_dlio_percent=share, cpu_wait_percent=wait)
        for n, share in enumerate(shares, start=1)
    ]
    source = "memory" if batches == "memory" else "storage"
    made = record(runs, benchmark__name="feed", benchmark__accelerators=number, benchmark__source=source, **settings)
    cache = "as_is" if batches == "memory" else batches
    made["cell"]["settings"] |= {"accelerator": OWN, "cache": cache}
    made["cell"] |= MERIT | {"id": id_of(made).replace("micro", f"feed-{number}-{batches}"), "page_cache": cache}
    return made


SEARCH = [probe(3, 99.0), probe(4, 93.0, 91.0), probe(5, 74.0, 91.0), probe(8, 46.0)]
CONTROLS = [probe(5, 99.5, batches="memory")]


def test_the_chart_has_the_limit_the_demand_and_a_line_per_source_of_batches():
    (spec,) = drawn("feed", *SEARCH, *CONTROLS)
    left, right = over_accelerators(spec.frame.assign(baseline=60.0), spec.title, spec.caption).axes

    cold = spec.frame[spec.frame["batches"] == "cold"]
    assert cold["demand"].tolist() == pytest.approx([48, 64, 80, 128])
    assert cold["au_percent_min"].tolist() == [99, 91, 74, 46]
    assert any(set(line.get_ydata()) == {90.0} for line in left.lines), "the limit"
    assert any(list(line.get_ydata()) == pytest.approx([48, 64, 80, 128]) for line in right.lines), "the demand"
    assert any(set(line.get_ydata()) == {60.0} for line in right.lines), "the baseline"
    assert "not an MLPerf result" in spec.title


def test_what_the_chart_has_is_not_drawn_over_its_settings_again():
    assert drawn("sweep-feed", *SEARCH, *CONTROLS) == []
    assert len(drawn("sweep-feed", SEARCH[0])) == 1, "one number is no chart of its own"


@pytest.mark.parametrize(
    ("records", "sentences"),
    [
        ([*SEARCH, *CONTROLS], ["local feeds 4 own, not 5 (not an MLPerf result, not reviewed)"]),
        (
            [*SEARCH[:2], probe(5, 74.0, 91.0, wait=18.0), *CONTROLS],
            [f"local: this client cannot emulate 5 own: its readers lack a processor ({NOTICE})"],
        ),
        (
            [*SEARCH, probe(5, 97.9, batches="memory")],
            ["local: this client cannot emulate 5 own: 97.9 % from memory (not an MLPerf result, not reviewed)"],
        ),
        (SEARCH, []),
        ([*SEARCH[:2], *CONTROLS], []),
        (
            [*SEARCH[:2], probe(4, 99.0, batches="memory")],
            ["local feeds 4 own at least (not an MLPerf result, not reviewed)"],
        ),
    ],
    ids=[
        "known",
        "readers lack a processor",
        "the client is the limit",
        "no control",
        "no control of the last number",
        "no number that fails",
    ],
)
def test_the_summary_says_how_many_are_fed_only_if_the_client_is_not_the_limit(records, sentences):
    table, _ = frames_of_records([parse(each) for each in records])

    assert list(answers(table)) == sentences
