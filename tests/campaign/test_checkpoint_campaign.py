"""A whole campaign whose trainings are saved, from the words to the figures."""

import pytest

from tests.campaign.command_line import TINY
from tests.judged import records_of

TIMES = {"blocked_s", "write_s", "drain_s", "exposed_s", "durable_fast_s", "durable_slow_s"}
WORDS = (
    "benchmark=alexnet", "benchmark.width=0.05", "benchmark.image_size=32", "accelerator=emulated",
    "accelerator.step_s=0.01", "trace.interval_s=0.1", "prefetch=1", "iterations=20", "cluster=local",
)  # fmt: skip


@pytest.mark.long
def test_a_campaign_with_checkpoints_is_proved_drawn_and_leaves_no_snapshot(command, site, tmp_path):
    tiny = [word for word in TINY if not word.startswith("batch_size")]
    for name in ("optane", "hdd"):
        (tmp_path / name).mkdir()
    mine = site(f"storages: {{optane: {{root: {tmp_path}/optane}}, hdd: {{root: {tmp_path}/hdd}}}}\n")

    done = command(*mine, *tiny, *WORDS, "batch_size=1", "-m", "checkpoint=none,hdd,burst_buffer")

    assert done.returncode == 0, done.stderr
    records = records_of(tmp_path / "results")
    saved = {record["cell"]["settings"]["checkpoint"]["name"]: record["runs"] for record in records}
    assert saved.keys() == {"none", "hdd", "burst_buffer"}
    for name, runs in saved.items():
        for run in runs:
            proofs = [check for check in run["checks"] if check["rule"] == "checkpoints_durable"]
            assert [check["passed"] for check in proofs] == [True] * (name != "none")
        # A part that nobody names lacks in each run; between two parts of one, the machine may do something else.
        gaps_s = [run["wall_s"] - sum(run[part] for part in run["wall_parts"]) for run in runs]
        assert min(map(abs, gaps_s)) <= 0.005
    for name in ("hdd", "burst_buffer"):
        assert all(line.keys() >= TIMES for run in saved[name] for line in run["checkpoints"])
        assert all([line["step"] for line in run["checkpoints"]] == [20] for run in saved[name])
    drawn = {path.name for path in (tmp_path / "results" / "figures").glob("*.pdf")}
    assert drawn == {"fig9.pdf", "fig10.pdf", "checkpoints.pdf"}
    assert [path.name for root in ("optane", "hdd") for path in (tmp_path / root / "checkpoints").iterdir()] == []
