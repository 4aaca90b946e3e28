"""`escrowmq completion`: prints a shell script that completes verbs, actions and options.

The script contains all words: calling this program at each key press would take 0.2 s.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final, NamedTuple

from escrowmq.cli.printing import print_text

_INSTALL: Final = {
    "bash": "escrowmq completion bash > ~/.local/share/bash-completion/completions/escrowmq",
    "zsh": "escrowmq completion zsh > ~/.zfunc/_escrowmq   (with fpath+=~/.zfunc before compinit)",
    "fish": "escrowmq completion fish > ~/.config/fish/completions/escrowmq.fish",
}


class Continuations(NamedTuple):
    """What may follow a command line: next words and options, each with its help."""

    path: str
    words: dict[str, str]
    options: dict[str, str]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options to its parser."""
    parser.add_argument("shell", choices=sorted(_INSTALL))
    parser.epilog = "To install: " + "; ".join(_INSTALL.values())


def run(arguments: argparse.Namespace) -> int:
    """Print the script for a shell; return the exit code."""
    from escrowmq.cli.main import build_parser

    found = list(continuations(build_parser(), ""))
    script = {"bash": _bash_script, "zsh": _zsh_script, "fish": _fish_script}[arguments.shell]
    print_text(script(found))
    return 0


def continuations(parser: argparse.ArgumentParser, path: str) -> Iterator[Continuations]:
    """Yield every verb and action below a parser, each with the words and options that may follow
    it."""
    fill = getattr(parser, "declare_options", None)
    if fill is not None:
        fill()
    words: dict[str, str] = {}
    options: dict[str, str] = {}
    inner: list[tuple[str, argparse.ArgumentParser]] = []
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            about = {one.dest: one.help or "" for one in action._choices_actions}  # noqa: SLF001
            for name, one in action.choices.items():
                words[name] = about.get(name, "")
                inner.append((f"{path} {name}".strip(), one))
        elif action.option_strings and action.help != argparse.SUPPRESS:
            options[max(action.option_strings, key=len)] = (action.help or "").replace("%%", "%")
        elif action.choices:
            words |= {str(choice): "" for choice in action.choices}
    yield Continuations(path, words, options)
    for name, one in inner:
        yield from continuations(one, name)


def _without_shell_characters(about: str) -> str:
    """Return a help text without characters that have a meaning in a shell."""
    line = " ".join(about.split())
    return "".join(letter for letter in line if letter not in "'\"`$\\:[]{}")


def _bash_script(found: list[Continuations]) -> str:
    cases = "\n".join(
        f"    '{one.path}') words='{' '.join([*one.words, *one.options])}' ;;" for one in found
    )
    return f"""# bash completion for escrowmq
_escrowmq() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} path= words= word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case $word in -*) ;; *)
      case " $path" in *" "*" "*) ;; *) path="${{path:+$path }}$word" ;; esac ;;
    esac
  done
  case $path in
{cases}
    *) [ "${{path% *}}" != "$path" ] && _escrowmq_of "${{path% *}}" ;;
  esac
  COMPREPLY=( $(compgen -W "$words" -- "$cur") )
}}
_escrowmq_of() {{
  case $1 in
{cases}
  esac
}}
complete -o default -F _escrowmq escrowmq
"""


def _zsh_script(found: list[Continuations]) -> str:
    cases = []
    for one in found:
        rows = [
            f"'{name}:{_without_shell_characters(about)}'"
            for name, about in (one.words | one.options).items()
        ]
        cases.append(f"    '{one.path}') rows=({' '.join(rows)}) ;;")
    lines = "\n".join(cases)
    return f"""#compdef escrowmq
_escrowmq() {{
  local -a rows
  local path_= word
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    [[ $word == -* ]] && continue
    [[ $path_ == *' '* ]] || path_="${{path_:+$path_ }}$word"
  done
  case $path_ in
{lines}
  esac
  if (( $#rows )); then _describe 'escrowmq' rows; else _files; fi
}}
if [ "$funcstack[1]" = _escrowmq ]; then _escrowmq "$@"; else compdef _escrowmq escrowmq; fi
"""


def _fish_script(found: list[Continuations]) -> str:
    lines = ["# fish completion for escrowmq"]
    for one in found:
        names = one.path.split()
        if not names:
            seen = "__fish_use_subcommand"
        else:
            seen = "; and ".join(f"__fish_seen_subcommand_from {name}" for name in names)
            if len(names) == 1 and one.words:
                seen += f"; and not __fish_seen_subcommand_from {' '.join(one.words)}"
        for name, about in one.words.items():
            text = _without_shell_characters(about)
            lines.append(f"complete -c escrowmq -f -n '{seen}' -a {name} -d '{text}'")
        for name, about in one.options.items():
            kind = f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
            lines.append(
                f"complete -c escrowmq -n '{seen}' {kind} -d '{_without_shell_characters(about)}'"
            )
    return "\n".join(lines) + "\n"
