"""The judge of the records of a campaign folder, for the analysis (`jobs.judging.campaign_judge`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from analysis.records import readable
from analysis.records.readable import AbsentError, UnreadableError
from jobs.judging import peaks
from jobs.judging.campaign_judge import CampaignJudge, UnusableRecordError
from jobs.model.record import Asked, Manifest, Record

FILE, CAMPAIGN = "record.json", "campaign.json"


def judge_of(home: Path, folders: Sequence[Path]) -> tuple[CampaignJudge, UnreadableError | None]:
    """Return the judge of the records in these folders, and why ``campaign.json`` in `home` cannot be read.

    A ``campaign.json`` that is absent is no fault; without one each cell is judged by the terms of its record.
    """
    requests: Sequence[Asked] = ()
    fault = None
    try:
        requests = readable.load(home / CAMPAIGN, Manifest)["requests"]
    except AbsentError:  # records alone
        pass
    except UnreadableError as error:
        fault = error
    judge = CampaignJudge(requests, _baselines(folders))
    _ = judge.peaks  # read here, once: the judge goes to other processes
    return judge, fault


def judged(path: Path, judge: CampaignJudge) -> Record:
    """Return what stands in the file of a record, judged.

    Raises UnreadableError where it cannot be read, contradicts itself, or lacks what it is judged by.
    """
    try:
        return judge.judged(readable.load(path, Record))
    except UnusableRecordError as error:
        raise UnreadableError(str(error)) from error


def _baselines(folders: Sequence[Path]) -> Iterator[Record]:
    for folder in folders:
        if peaks.is_of_baseline(folder.name) and not folder.is_symlink():
            with suppress(UnreadableError):  # it is named when it is read with the others
                yield readable.load(folder / FILE, Record)
