"""Translate errors of Hydra, OmegaConf and YAML into errors of ours, each with its cure."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import ConfigKeyError, MissingMandatoryValue, OmegaConfBaseException

from campaign.config.command_line import VERBS
from campaign.config.tree import ROOT, unknown_key
from campaign.errors import CampaignError, UsageError, nearest

FULL_ERROR = "HYDRA_FULL_ERROR"
# Hydra says `benchmark=1` with a bare ValueError; a file that names itself in its defaults ends in a RecursionError.
_LIBRARY_ERRORS = (HydraException, OmegaConfBaseException, RecursionError, ValueError)
_LIBRARIES = ("hydra", "omegaconf", "antlr4", "yaml")
GROUPS_TO_ADD = ("paper", "size")  # groups without a default choice: +paper=fig4


@contextmanager
def explained() -> Iterator[None]:
    """Raise an error of these libraries as a `UsageError`; with HYDRA_FULL_ERROR=1 it is raised unchanged."""
    full = os.environ.get(FULL_ERROR) == "1"
    try:
        yield
    except CampaignError:
        raise
    except Exception as error:
        if full or not _is_of_a_library(error):
            raise
        raise _explanation(error) from error


def _is_of_a_library(error: Exception) -> bool:
    """Return whether an error comes from one of the libraries, even one that they do not declare."""
    *_, innermost = walk_tb(error.__traceback__)
    module = str(innermost[0].f_globals.get("__name__"))
    return isinstance(error, _LIBRARY_ERRORS) or module.partition(".")[0] in _LIBRARIES


def _explanation(error: Exception) -> UsageError:
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    if isinstance(error, MissingConfigException):
        return _unknown_choice(error)
    if isinstance(error, OverrideParseException):
        return _unreadable_word(error)
    if isinstance(cause, OmegaConfBaseException):
        return _refused_value(cause)
    return _unreadable_file(error) or _other(error)


def _unreadable_file(error: Exception) -> UsageError | None:
    if isinstance(error, RecursionError):
        return UsageError(
            "a configuration file is nested too deeply",
            "a defaults list names the file itself, or a value has too many brackets",
        )
    if isinstance(error, UnicodeDecodeError):
        return UsageError(f"a configuration file is no text: {error}", "write the files of --config-dir in UTF-8")
    if type(error).__module__.startswith("yaml."):
        where = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", "")
        what = f"{where.name}, line {where.line + 1}: {problem}" if where else " ".join(str(error).split())
        return UsageError(what, "the file must be YAML: key: value")
    return None


def _refused_value(cause: OmegaConfBaseException) -> UsageError:
    if isinstance(cause, MissingMandatoryValue):
        return UsageError(f"{cause.full_key} has no value", f"give one: {cause.full_key}=…")
    if isinstance(cause, ConfigKeyError | AttributeError):
        siblings = cause.parent_node if isinstance(cause.parent_node, DictConfig) else {}
        return unknown_key(str(cause.full_key), [key for key in siblings if key != "hydra"])
    if cause.full_key:
        return UsageError(f"{cause.full_key}: {_first_line(cause)}", "see `python -m campaign help keys`")
    return _other(cause)


def _unknown_choice(error: MissingConfigException) -> UsageError:
    group, _, choice = str(error.missing_cfg_file).rpartition("/")
    options = [option for option in error.options or () if option]
    if not group:
        return UsageError(f"no configuration '{choice}'", "see `python -m campaign --info searchpath`")
    return UsageError(f"{group}: no choice '{choice}'", nearest(choice, options) if options else "")


def _unreadable_word(error: OverrideParseException) -> UsageError:
    word = str(error.override)
    if "=" not in word:
        return UsageError(f"'{word}' is neither a verb nor KEY=VALUE", nearest(word, VERBS))
    return UsageError(f"cannot read '{word}'", "quote the characters that the shell or Hydra's grammar interprets")


def _other(error: Exception) -> UsageError:
    if "No match in the defaults list" in str(error):
        word = str(error).partition("'")[2].partition("'")[0]
        hint = f"write +{word}=…" if word in GROUPS_TO_ADD else nearest(word, ROOT)
        return UsageError(f"'{word}' is not a group with a choice to replace", hint)
    if "Ambiguous value" in str(error):
        return UsageError(_first_line(error), "--cfg and its like show one cell: give each key one value")
    return UsageError(_first_line(error), "see `python -m campaign help keys`")


def _first_line(error: Exception) -> str:
    first, _, rest = str(error).strip().partition("\n")
    return (f"{first} {rest.partition(chr(10))[0]}" if first.endswith(":") else first).rstrip(".")
