"""Types of the group ``benchmark``, choice ``baseline``, as in `campaign.config.schema`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from omegaconf import MISSING


class Access(Enum):
    """What a baseline does to its file."""

    write = "write"
    read = "read"
    random_read = "random_read"


class Engine(Enum):
    """What does it."""

    auto = "auto"
    ior = "ior"
    fio = "fio"
    builtin = "builtin"


@dataclass
class Baseline:
    """Group ``benchmark``, choice ``baseline``."""

    name: str = MISSING
    access: Access = MISSING
    engine: Engine = MISSING
    file_mb: int = MISSING
    transfer_mib: int = MISSING
    seconds_max: float = MISSING
