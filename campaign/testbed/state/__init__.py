"""What there is of a testbed: its folder, images, models, loop devices, mounts and bounds, each from its own source."""

from campaign.testbed.state.found import MARKER, SCHEMA, Loop, Marker, Seen, Server, Storage, unfinished
from campaign.testbed.state.look import inspect

__all__ = ["MARKER", "SCHEMA", "Loop", "Marker", "Seen", "Server", "Storage", "inspect", "unfinished"]
