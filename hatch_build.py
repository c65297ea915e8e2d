"""Builds the profiler's hook library when the project is installed; without a compiler the rest is installed."""

import importlib.util
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class HookLibrary(BuildHookInterface):
    """Adds the library beside its source, and says for which machines the wheel is."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Build it where the source lies: an editable install finds it there, too."""
        source = Path(self.root, "jobs", "profiler", "build.py")
        spec = importlib.util.spec_from_file_location("profiler_build", source)
        builder = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(builder)
        try:
            library = builder.build_library()
        except builder.BuildError as error:
            self.app.display_warning(f"without jobs.profiler: {error}")
            return
        build_data["artifacts"].append(str(library.relative_to(self.root)))
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
