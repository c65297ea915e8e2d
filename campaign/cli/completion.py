"""Run the flag `-sc`: complete the command line in bash and zsh.

Hydra completes keys and choices of groups; this module completes verbs, flags and legal values. The shell scripts are
our own, because Hydra's script completes only a program file. It does not work for `python -m campaign`, nor in a shell
that already has a completion for `python`.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout, suppress

from campaign import console
from campaign.config import command_line
from campaign.errors import CampaignError, UsageError
from campaign.verbs import VERBS
from jobs.parser import END_OF_FLAGS, put_verb_first
from jobs.system.programs import python_command

_INSTALL = {
    "bash": r"""
_tfio_campaign() {
  local line=${COMP_LINE:0:COMP_POINT} program=("${COMP_WORDS[0]/#\~\//$HOME/}")
  if [[ ${program[0]##*/} == python* ]]; then
    if [[ ! $line =~ ^[^[:space:]]+[[:space:]]+-m[[:space:]]+campaign[[:space:]] ]]; then
      [[ -z $_tfio_before ]] || "$_tfio_before" "$@"
      return
    fi
    program+=(-m campaign)
  fi
  local word=${line##*[[:space:]]}
  COMPREPLY=($(compgen -W "$(COMP_LINE=$line "${program[@]}" -sc query=bash 2> /dev/null)" -- "$word"))
  [[ ${COMPREPLY[0]} != *[=./] ]] || compopt -o nospace
  # Bash replaces only the part of a word behind its last =.
  [[ $COMP_WORDBREAKS != *=* ]] || COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*=}"}"}")
}
! declare -F _completion_loader > /dev/null || _completion_loader python
_tfio_before=$(complete -p python 2> /dev/null | sed -n 's/.*-F \([^ ]*\).*/\1/p')
[[ $_tfio_before != _tfio_campaign ]] || _tfio_before=
complete -o default -F _tfio_campaign tfio-campaign python python3
""",
    "zsh": r"""
_tfio_campaign() {
  local -a program=("${words[1]/#\~\//$HOME/}") found
  if [[ ${program[1]:t} == python* ]]; then
    if [[ "$words[2] $words[3]" != "-m campaign" ]] || (( CURRENT < 4 )); then
      ${_tfio_before:-_default} "$@"
      return
    fi
    program+=(-m campaign)
  fi
  found=(${=$(COMP_LINE="${words[1,CURRENT-1]} $PREFIX" "${program[@]}" -sc query=zsh 2> /dev/null)})
  compadd -S '' -- ${(M)found:#*[=./]}
  compadd -- ${found:#*[=./]}
  (( compstate[nmatches] )) || { compset -P '*='; _files }
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
_tfio_before=${_comps[python]:#_tfio_campaign}
compdef _tfio_campaign tfio-campaign python python3
""",
}
_UNINSTALL = {
    "bash": "complete -r tfio-campaign python python3\n"
    '[[ -z $_tfio_before ]] || complete -o default -F "$_tfio_before" python python3\n'
    "unset -f _tfio_campaign; unset _tfio_before",
    "zsh": "compdef -d tfio-campaign python python3\n"
    '[[ -z $_tfio_before ]] || compdef "$_tfio_before" python python3\n'
    "unfunction _tfio_campaign; unset _tfio_before",
}
# Hydra also offers these groups, but a user does not choose them, or chooses them with a plus as in _ADDED.
_NOT_CHOSEN = ("hydra", "declared", "testbed", "measure", "paper", "size")
_ADDED = [f"+{group}=" for group in ("paper", "size")]
_CHOICE = re.compile(rf"\+?(?:{'|'.join(command_line.GROUPS)})=\w+")
_FLAG = re.compile(r"(?<![\w-])--?\w[\w-]*")
_WORDS = re.compile(r"^ +\{?([a-z]+(?:[,|][a-z]+)+)\}?$", re.MULTILINE)


def main(argv: Sequence[str]) -> int:
    """Print the script that installs or removes the completion of a shell, or the completions of a command line."""
    action, _, shell = (*argv, "")[0].partition("=")
    if action not in ("install", "uninstall", "query") or shell not in _INSTALL:
        cure = 'eval "$(tfio-campaign -sc install=bash)", or zsh; uninstall=… removes the completion'
        raise UsageError("-sc takes install=SHELL, uninstall=SHELL or query=SHELL, SHELL is bash or zsh", cure)
    if action == "query":
        console.show_lines("\n".join(words_that_may_follow(os.environ.get("COMP_LINE", ""))))
    else:
        console.show_lines({"install": _INSTALL, "uninstall": _UNINSTALL}[action][shell].strip())
    return 0


def words_that_may_follow(line: str) -> list[str]:
    """Return the verbs, flags, keys and choices that the last word of a command line may become."""
    words = line.split()[1:]
    words = words[2:] if words[:2] == ["-m", "campaign"] else words
    word = words.pop() if words and not line[-1].isspace() else ""
    before = put_verb_first(words, VERBS, command_line.FLAGS_WITH_VALUE)
    if END_OF_FLAGS in before:
        return []
    return sorted({found for found in _possible_words(before, word) if found.startswith(word)})


def _possible_words(before: Sequence[str], word: str) -> Iterator[str]:
    """Yield words that may follow the words `before`; some do not begin with `word`, and the caller drops them."""
    verb = before[0] if before and before[0] in VERBS else ""
    shown = _read_help(verb) if verb else ""
    if word.startswith("-"):
        yield from _FLAG.findall(shown) if verb else command_line.FLAGS
        return
    if verb == "help" or not any(each for each in before if not each.startswith("-")):
        yield from VERBS
    for words in _WORDS.findall(shown) if len(before) == 1 else ():
        yield from re.split(r"[,|]", words)
    if verb == "help":
        yield from (each.rstrip("=") for each in _keys_and_choices((), word))
    elif not verb or ("KEY=VALUE" in shown and (verb != "testbed" or "fill" in before)):
        yield from _keys_and_choices(before, word)


def _read_help(verb: str) -> str:
    """Return the text of ``VERB --help``, from which flags and legal words are read."""
    command = python_command("-m", "campaign", verb, "--help")
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _keys_and_choices(before: Sequence[str], word: str) -> Iterator[str]:
    """Yield the keys that begin with a word, or, behind its =, the values of the key.

    In a list of values, as in ``storage=hdd,s``, the last value is completed.
    """
    from campaign.config import composer, reference  # noqa: PLC0415 - both import Hydra, which is slow

    key, equals, values = word.partition("=")
    first = f"{key}={values[: values.rfind(',') + 1]}" if equals else ""
    choices = [each for each in before if _CHOICE.fullmatch(each)]  # the chosen groups decide which keys exist
    line = " ".join(["tfio-campaign", *choices, f"{key}{equals}{word.removeprefix(first)}" if equals else word])
    printed = io.StringIO()
    os.environ["COMP_LINE"] = line
    with suppress(CampaignError), redirect_stdout(printed):
        folder = command_line.parse_command_line(before).config_dir_flags
        composer.show_with_hydra(["-sc", "query=bash", *folder])
    found = [each for each in printed.getvalue().split() if not each.startswith(_NOT_CHOSEN)]
    legal = [
        f"{name}={value}"
        for section in (reference.list_sections() if equals else ())
        for name, each in section.rows
        if name == key
        for value in (("true", "false") if each.scalar is bool else each.words or ())
    ]
    yield from (
        f"{first}{each.partition('=')[2]}" if equals else each for each in (*found, *legal, *([] if equals else _ADDED))
    )
