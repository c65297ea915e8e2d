"""The tab "TF I/O" of TensorBoard, which alone loads this: what our windows in the traces below its folder have seen.

It reads the summary in each trace (`jobs.profiler.tensorboard.plane`) and nothing else, follows no link, and answers
for no file but those that it has listed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import wrappers

from jobs.profiler import xspace_messages
from jobs.profiler.hook_library import ProfilerError
from jobs.profiler.tensorboard.plane import SCHEMA, SUMMARY
from jobs.system import files, untrusted

_ENDING = ".xplane.pb"
_WHERE = ("plugins", "profile")  # <run>/plugins/profile/<time>/<host>.xplane.pb
_MOST_FOLDERS, _MOST_TRACES, _LARGEST_BYTES, _LARGEST_ENTRY = 20_000, 2_000, 8 << 20, 1 << 16
_SHOWN = ("host", "fault", "figures", "started_ns")  # of each window in the list


class TFIOPlugin(base_plugin.TBPlugin):  # type: ignore[misc] # tensorboard publishes no types
    """Serves the tab and the summaries of windows."""

    plugin_name = SUMMARY

    def __init__(self, context: Any) -> None:
        self._logdir = Path(context.logdir).resolve() if context.logdir else None  # none: TensorBoard has several

    def get_plugin_apps(self) -> dict[str, Any]:
        """Return what is served, by path."""
        apps = {"/tab.js": self._tab, "/windows": self._windows, "/window": self._window}
        return {path: wrappers.Request.application(app) for path, app in apps.items()}

    def is_active(self) -> bool:
        """Tell whether there is a window to show."""
        return any(_entry(*each) for each in self._traces().values())

    def frontend_metadata(self) -> Any:
        """Name the tab and its script."""
        return base_plugin.FrontendMetadata(es_module_path="/tab.js", tab_name="TF I/O")

    def _tab(self, request: wrappers.Request) -> Any:
        script = files.read(Path(__file__).resolve().with_name("tab.js"))
        return http_util.Respond(request, script, "application/javascript")

    def _windows(self, request: wrappers.Request) -> Any:
        found = {name: _entry(*each) for name, each in sorted(self._traces().items())}
        told = ",".join(f'{{"name": {json.dumps(name)}, {each}}}' for name, each in found.items() if each)
        return http_util.Respond(request, f"[{told}]", "application/json")

    def _window(self, request: wrappers.Request) -> Any:
        trace = self._traces().get(request.args.get("name", ""))
        found = _summary(trace[0]) if trace else None
        told = json.dumps(found or {"error": "no such window"})
        return http_util.Respond(request, told, "application/json", code=200 if found else 404)

    def _traces(self) -> dict[str, tuple[Path, int, int]]:
        """Return the traces below the folder, by name, each with its change and size, for what is remembered."""
        if not (logdir := self._logdir):
            return {}
        return {str(each[0].relative_to(logdir)).removesuffix(_ENDING): each for each in _traces(logdir)}


def _traces(logdir: Path) -> Iterator[tuple[Path, int, int]]:
    found = 0
    for number, (folder, folders, names) in enumerate(os.walk(logdir)):
        deep = len(Path(folder).parts) - len(logdir.parts) > files.DEEPEST
        folders[:] = [] if deep else sorted(folders)
        if number >= _MOST_FOLDERS:
            return
        if Path(folder).parts[-3:-1] != _WHERE:
            continue
        for name in sorted(names):
            path = Path(folder, name)
            if name.endswith(_ENDING) and path.is_file() and found < _MOST_TRACES:
                found += 1
                status = path.lstat()
                yield path, status.st_mtime_ns, status.st_size


@lru_cache(maxsize=_MOST_TRACES)  # all that are listed, of some kB each: asked for every few seconds
def _entry(path: Path, _changed: int, _size: int) -> str:
    """Return what the list has of a trace, as JSON without its brackets; empty where it is not one of ours."""
    found = _summary(path)
    told = json.dumps({key: found.get(key) for key in _SHOWN})[1:-1] if found else ""
    return told if len(told) <= _LARGEST_ENTRY else ""


def _summary(path: Path) -> dict[str, Any] | None:
    """Return the summary in a trace; None where there is none, or it is not one of ours."""
    try:
        plane = xspace_messages.plane(path, SUMMARY, _LARGEST_BYTES)
        told = untrusted.json_value(plane.stats[0].str_value.encode()) if plane and plane.stats else None
    except (OSError, ValueError, ProfilerError):
        return None
    return told if isinstance(told, dict) and told.get("schema") == SCHEMA else None
