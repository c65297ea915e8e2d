"""The records of a campaign, each with the verdicts by the terms of its worker."""

from campaign.cells.folder import CampaignFolder
from campaign.cells.verdicts import Verdicts


def records_of(results, cells="*"):
    """Read every record of a campaign folder whose cell has such a name."""
    verdicts = Verdicts(CampaignFolder(results))
    read = (verdicts.read(path)[0] for path in sorted(results.glob(f"records/{cells}/record.json")))
    return [recorded for recorded in read if recorded]
