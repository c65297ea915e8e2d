"""Use the public functions of Hydra: register defaults and resolvers, compose configurations, and explain errors.

Hydra's Compose API composes a grid. `hydra.main` is used only to print something: ``--cfg``, ``--info``, and shell
completions. Hydra needs no plugin of this project, and calls no callback of a configuration file. Resolvers are the
functions behind ``${name:…}`` in conf/.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, lru_cache
from pathlib import Path
from shlex import quote
from traceback import walk_tb
from types import TracebackType
from typing import Any, Self

import msgspec
from hydra import compose, initialize_config_module
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.main import main as hydra_main
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, MissingMandatoryValue, OmegaConfBaseException

from campaign.config.command_line import quote_for_hydra
from campaign.config.tree import CHOICES, NODES, ROOT, unknown_key_error
from campaign.errors import CampaignError, UsageError
from campaign.storage.roots import storage_of_folder
from campaign.testbed.spec import Testbed
from campaign.verbs import VERBS
from jobs.benchmarks.registry import benchmarks, names_of
from jobs.model.conduct import ConductKeys
from jobs.model.declared import MISSING, DeclaredSetting, Keys, declared_defaults, declared_settings
from jobs.model.settings import Common, ObjectStorage, Storage
from jobs.objects.address import address_of
from jobs.parser import nearest_hint

_NEEDS_QUOTES = re.compile(r"[^\w\s\[\](){}'\",:/+.$%*@?|\\-]|[^\x00-\x7f]")
"""A character that Hydra's grammar allows only between quotes; brackets, quotes and commas are parts of the grammar."""
TESTBED = "testbed"
"""The name of the Hydra configuration with the settings of a testbed."""


@cache
def register_defaults() -> None:
    """Register the defaults and the resolvers with Hydra; the defaults are plain values in the group ``declared``."""
    store = ConfigStore.instance().store
    plain = {
        **default_values(Common),
        **default_values(ConductKeys),
        **{name: default_values(kind) for name, kind in NODES.items()},
    }
    store(group="declared", name="campaign", node=dict.fromkeys(CHOICES, MISSING) | plain, package="_global_")
    store(name=TESTBED, node=default_values(Testbed))
    for group, kinds in CHOICES.items():
        for name, kind in kinds.items():
            store(group=f"declared/{group}", name=name, node=default_values(kind))
    by_site = (_site_storage, _site_storage_root, _storage_of, _site_accelerator)
    for resolver in (*by_site, _if_emulated, _by_size, _of_benchmark, _if_generated):
        OmegaConf.register_new_resolver(resolver.__name__.removeprefix("_"), resolver, replace=True)


def default_values(kind: type[Keys]) -> dict[str, Any]:
    """Return the defaults of a node in the form that Hydra composes.

    A default that depends on the size is an interpolation.
    """

    def default_value(declaration: DeclaredSetting) -> Any:
        if declaration.node is declaration.type:
            return default_values(declaration.node) | msgspec.to_builtins(declaration.default)
        if declaration.setting.smoke is None:
            return declared_defaults(kind).get(declaration.name, MISSING)
        return f"${{by_size:{json.dumps(declaration.default)},{json.dumps(declaration.setting.smoke)}}}"

    return {name: default_value(declaration) for name, declaration in declared_settings(kind).items()}


def _site_storage(key: str, default: Any = MISSING, *, _root_: DictConfig) -> Any:
    """Return the value of a key of the chosen storage from the site's file, or else the default of the key."""
    site_storage = _root_.site.storages.get(_root_.storage.name)
    value = None if site_storage is None else site_storage.get(key)
    kind = ObjectStorage if "endpoint" in _root_.storage else Storage
    default_value = declared_defaults(kind).get(key) if default == MISSING else default
    return default_value if value is None else value


def _site_storage_root(name: str, default: Any, *, _root_: DictConfig) -> Any:
    """Return the root of the storage with this name: the chosen storage, or a storage of the site.

    For a bucket, return its address. If there is no such storage, return `default`.
    """
    storage = _root_.storage if _root_.storage.name == name else _root_.site.storages.get(name)
    if storage is not None and storage.get("endpoint") and storage.get("bucket"):
        return address_of(storage)
    return default if storage is None or storage.get("root") is None else storage.root


def _storage_of(path: str, key: str, *, _root_: DictConfig) -> str:
    """Return the name or the root of the storage in which a folder lies; `key` is ``name`` or ``root``."""
    roots = {
        str(name): root for name, storage in _root_.site.storages.items() if (root := storage.get("root")) is not None
    }
    name, root = storage_of_folder(Path(path).expanduser(), roots)
    return {"name": name, "root": root}[key]


def _site_accelerator(*, _root_: DictConfig) -> Any:
    """Return the accelerator of the site, or ``auto`` for a benchmark that computes nothing.

    If the site has ``auto``, a benchmark whose steps are emulated by default gets ``emulated``.
    """
    name = _root_.benchmark.name
    if _root_.site.accelerator == "auto" and name in names_of("emulates"):
        return "emulated"
    return _root_.site.accelerator if name in names_of("computes") else "auto"


def _if_emulated(accelerator: str, step_s: float) -> float | None:
    """Return `step_s` for the emulated accelerator, and None for any other accelerator."""
    return step_s if accelerator == "emulated" else None


def _if_generated(value: Any, *, _root_: DictConfig) -> Any:
    """Return `value` for a generated data set, and None for the user's own files."""
    return None if "path" in _root_.dataset else value


def _of_benchmark(name: str, default: Any = None, *, _root_: DictConfig) -> Any:
    """Return the chosen benchmark's own default of a common setting, or else the common default."""
    benchmark = benchmarks().get(_root_.benchmark.name)
    common_default = declared_defaults(Common).get(name, default)
    return benchmark.own_defaults.get(name, common_default) if benchmark else common_default


def _by_size(paper: Any, smoke: Any, lab: Any = None, *, _root_: DictConfig) -> Any:
    """Return the value for the chosen size (paper, smoke or lab); without `lab`, size=lab gets the value of `smoke`."""
    small = {"smoke": smoke, "lab": smoke if lab is None else lab}
    return small.get(_root_.size, paper)


FULL_ERROR = "HYDRA_FULL_ERROR"
# Hydra raises a bare ValueError for `benchmark=1`; a file that names itself in its defaults ends in a RecursionError.
_LIBRARY_ERRORS = (HydraException, OmegaConfBaseException, RecursionError, ValueError)
_LIBRARIES = ("hydra", "omegaconf", "antlr4", "yaml")
GROUPS_TO_ADD = ("paper", "size")  # groups without a default choice: +paper=fig4


@contextmanager
def explain_errors() -> Iterator[None]:
    """Turn an error of Hydra, OmegaConf or YAML into a UsageError with a cure.

    With HYDRA_FULL_ERROR=1 in the environment, the error is raised unchanged.
    """
    is_unchanged = os.environ.get(FULL_ERROR) == "1"
    try:
        yield
    except CampaignError:
        raise
    except Exception as error:
        if is_unchanged or not _is_of_a_library(error):
            raise
        raise _explain(error) from error


def _is_of_a_library(error: Exception) -> bool:
    """Return whether an error has a type of these libraries, or was raised in a module of these libraries."""
    *_, innermost = walk_tb(error.__traceback__)
    module = str(innermost[0].f_globals.get("__name__"))
    return isinstance(error, _LIBRARY_ERRORS) or module.partition(".")[0] in _LIBRARIES


def _explain(error: Exception) -> UsageError:
    """Return a UsageError that explains a library's error in the words of this program."""
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    if isinstance(error, MissingConfigException):
        return _explain_unknown_choice(error)
    if isinstance(error, OverrideParseException):
        return _explain_unreadable_word(error)
    if isinstance(cause, OmegaConfBaseException):
        return _explain_refused_value(cause)
    return _explain_unreadable_file(error) or _explain_other_error(error)


def _explain_unreadable_file(error: Exception) -> UsageError | None:
    if isinstance(error, RecursionError):
        return UsageError(
            "a configuration file is nested too deeply",
            "a defaults list names the file itself, or a value has too many brackets",
        )
    if isinstance(error, UnicodeDecodeError):
        return UsageError(f"a configuration file is not UTF-8: {error}", "write the files of --config-dir in UTF-8")
    if type(error).__module__.startswith("yaml."):
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", "")
        message = f"{mark.name}, line {mark.line + 1}: {problem}" if mark else " ".join(str(error).split())
        return UsageError(message, "the file must be YAML: key: value")
    return None


def _explain_refused_value(cause: OmegaConfBaseException) -> UsageError:
    if isinstance(cause, MissingMandatoryValue):
        return UsageError(f"{cause.full_key} has no value", f"give it a value: {cause.full_key}=…")
    if isinstance(cause, ConfigKeyError | AttributeError):
        siblings = cause.parent_node if isinstance(cause.parent_node, DictConfig) else {}
        return unknown_key_error(str(cause.full_key), [key for key in siblings if key != "hydra"])
    if cause.full_key:
        return UsageError(f"{cause.full_key}: {_first_line(cause)}", "see `python -m campaign help keys`")
    return _explain_other_error(cause)


def _explain_unknown_choice(error: MissingConfigException) -> UsageError:
    group, _, choice = str(error.missing_cfg_file).rpartition("/")
    options = [option for option in error.options or () if option]
    if not group:
        return UsageError(f"no configuration '{choice}'", "see `python -m campaign --info searchpath`")
    return UsageError(f"{group}: no choice '{choice}'", nearest_hint(choice, options) if options else "")


def _explain_unreadable_word(error: OverrideParseException) -> UsageError:
    word = str(error.override)
    if "=" not in word:
        if Path(word).is_dir():
            return UsageError(f"'{word}' is a folder, and no verb is named", f"python -m campaign status {quote(word)}")
        return UsageError(f"'{word}' is neither a verb nor KEY=VALUE", nearest_hint(word, VERBS))
    key, _, value = word.partition("=")
    odd = _NEEDS_QUOTES.search(value)
    cause = f": the character {odd[0]} needs quotes" if odd else ""
    as_text = quote(f"{key}={quote_for_hydra(value)}")
    return UsageError(f"cannot read '{word}'{cause}", f"if the value is one plain text, quote it: {as_text}")


def _explain_other_error(error: Exception) -> UsageError:
    if "No match in the defaults list" in str(error):
        word = str(error).partition("'")[2].partition("'")[0]
        hint = f"write +{word}=…" if word in GROUPS_TO_ADD else nearest_hint(word, ROOT)
        return UsageError(f"'{word}' is not a group with a choice to replace", hint)
    if "Ambiguous value" in str(error):
        return UsageError(_first_line(error), "--cfg and --info print a single cell: give each key one value")
    return UsageError(_first_line(error), "see `python -m campaign help keys`")


def _first_line(error: Exception) -> str:
    first, _, rest = str(error).strip().partition("\n")
    return (f"{first} {rest.partition(chr(10))[0]}" if first.endswith(":") else first).rstrip(".")


_BASE = "1.3"  # the version of Hydra whose defaults apply (version_base)
_CONFIG = "config"  # the file conf/config.yaml, which has the default choices of all groups


class Composer:
    """A context manager that composes configurations from ``conf/`` and from the user's configuration folder."""

    def __init__(self, folder: str | None = None, config: str = _CONFIG) -> None:
        """Search `folder` in addition to ``conf/``, and start with the file `config`.

        Raises UsageError if the folder does not exist.
        """
        register_defaults()
        if folder is not None and not Path(folder).is_dir():
            raise UsageError(
                f"there is no folder {folder}",
                "name a folder that has your own site/, storage/, paper/, … with --config-dir or $CAMPAIGN_CONFIG_DIR",
            )
        self._search_path = (
            [f"hydra.searchpath=[{quote_for_hydra(f'file://{Path(folder).absolute()}')}]"] if folder else []
        )
        self._config = config
        self.options = lru_cache(maxsize=None)(self._options)  # cached, because Hydra needs some ms

    def __enter__(self) -> Self:
        """Start Hydra; a process can have only one active composer."""
        self._hydra = initialize_config_module("conf", version_base=_BASE)
        self._hydra.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Restore the earlier state of Hydra."""
        self._hydra.__exit__(kind, error, at)

    def compose(self, overrides: Sequence[str]) -> DictConfig:
        """Compose overrides that have one value each; return the configuration, including Hydra's own node.

        Raises UsageError for overrides that cannot be composed.
        """
        with explain_errors():
            return compose(self._config, overrides=[*self._search_path, *overrides], return_hydra_config=True)

    def parse(self, override: str) -> Override:
        """Parse an override by Hydra's grammar; raises UsageError for an unreadable override."""
        with explain_errors():
            return self._parser.parse_overrides([override])[0]

    @cached_property
    def _parser(self) -> OverridesParser:
        return OverridesParser.create()

    def _options(self, group: str) -> frozenset[str]:
        """Return the choices of a group, or an empty set if the name is no group."""
        return self._find_options(group, ObjectType.CONFIG) if group.partition("/")[0] in self._groups else frozenset()

    @cached_property
    def _groups(self) -> frozenset[str]:
        return self._find_options("", ObjectType.GROUP)

    def _find_options(self, group: str, kind: ObjectType) -> frozenset[str]:
        loader = GlobalHydra.instance().config_loader()
        return frozenset(loader.get_group_options(group, kind, overrides=self._search_path))


def show_with_hydra(arguments: Sequence[str]) -> None:
    """Let Hydra print something for arguments with flags like ``--cfg``; raises UsageError for wrong arguments."""
    register_defaults()
    with explain_errors(), _command_line_of(arguments):
        hydra_main(version_base=_BASE, config_path="pkg://conf", config_name=_CONFIG)(lambda _: None)()


@contextmanager
def _command_line_of(arguments: Sequence[str]) -> Iterator[None]:
    """Put arguments into ``sys.argv`` for Hydra, and make Hydra raise errors, which it would otherwise print."""
    argv, full_error = sys.argv, os.environ.get(FULL_ERROR)
    sys.argv, os.environ[FULL_ERROR] = ["campaign", *arguments], "1"
    try:
        yield
    finally:
        sys.argv = argv
        os.environ.pop(FULL_ERROR)
        if full_error is not None:
            os.environ[FULL_ERROR] = full_error
