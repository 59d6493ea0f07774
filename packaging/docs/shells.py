"""Completions for bash, zsh and fish: verbs, options and their values from the code, as plain text.

Names of pods, containers and services come from `podslice __complete`. The metavar is the kind of a value:
FILE, DIR, POD, CONTAINER, UNIT, PID, CMD, or words with `|` between them. CMD is a command line of its
own, after `--`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from podslice.cli.command_tree import Argument, Option, Verb

COMMAND = "__complete"
"""The hidden verb that lists names, see `podslice.__main__`."""
_HEAD = "# Made by packaging/generate.py from podslice's command line; not to be edited."
_ASKED = {"POD": "pods", "CONTAINER": "containers", "UNIT": "units", "PID|UNIT": "units"}
_BASH_KNOWS = {"FILE", "DIR", "CMD", *_ASKED}


def bash(root: Verb) -> str:
    """Return the completions for bash, which bash-completion loads at the first use."""
    return _BASH.format(
        head=_HEAD,
        ask=COMMAND,
        verbs=_cases((verb.name, " ".join(v.path[-1] for v in verb.verbs)) for verb in root.walk()),
        options=_cases(
            (verb.name, " ".join(flag for option in verb.options for flag in option.flags))
            for verb in root.walk()
        ),
        arguments=_cases(
            (verb.name, " ".join(_kind(argument.metavar) for argument in verb.arguments))
            for verb in root.walk()
        ),
        values=_bash_values(root),
    )


def _cases(pairs: Iterator[tuple[str, str]]) -> str:
    """Return the lines of a `case`, with equal results joined."""
    by_result: dict[str, list[str]] = {}
    for name, result in pairs:
        if result:
            by_result.setdefault(result, []).append(f'"{name}"')
    return "\n".join(
        f"        {'|'.join(names)}) echo '{result}' ;;" for result, names in by_result.items()
    )


def _bash_values(root: Verb) -> str:
    """Return the kinds of options' values; verbs that differ from most come first, by name."""
    found: dict[str, dict[str, list[str]]] = {}
    for verb in root.walk():
        for option in verb.options:
            for flag in option.flags if option.metavar else ():
                found.setdefault(flag, {}).setdefault(_value_kind(option), []).append(verb.name)
    few: dict[str, list[str]] = {}
    many: dict[str, list[str]] = {}
    for flag, kinds in found.items():
        usual = max(kinds, key=lambda kind: len(kinds[kind]))
        many.setdefault(usual, []).append(f'*" {flag}"')
        for kind in kinds.keys() - {usual}:
            few.setdefault(kind, []).extend(f'"{verb} {flag}"' for verb in kinds[kind])
    return "\n".join(
        f"        {'|'.join(patterns)}) echo '{kind}' ;;"
        for kind, patterns in (*sorted(few.items()), *many.items())
    )


def _value_kind(option: Option) -> str:
    """Return a known metavar, the choices, or `-` for an unknown kind."""
    return " ".join(option.choices) or _kind(option.metavar)


def _kind(metavar: str) -> str:
    return metavar if metavar in _BASH_KNOWS else "-"


_BASH = """\
# bash completion for podslice                                        -*- shell-script -*-
{head}

_podslice_verbs() {{
    case "$1" in
{verbs}
    esac
}}

_podslice_options() {{
    case "$1" in
{options}
    esac
}}

_podslice_arguments() {{
    case "$1" in
{arguments}
    esac
}}

# the kind of an option's value: a metavar such as FILE, words, - for anything; empty without one
_podslice_value() {{
    case "$2 $1" in
{values}
    esac
}}

_podslice() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} verb="" option="" command="" arguments=0 index word
    COMPREPLY=()
    # bash splits words at =, so --rules=x is three words
    for ((index = 1; index < COMP_CWORD; index++)); do
        word=${{COMP_WORDS[index]}}
        if [[ -n $option ]]; then
            [[ $word == "=" ]] || option=""
        elif [[ $word == "=" ]]; then
            option=$word # and its value: --env A=1
        elif [[ $word == -- ]]; then
            command=$((index + 1))
            break
        elif [[ $word == -?* ]]; then
            [[ -n $(_podslice_value "$word" "$verb") ]] && option=$word
        elif [[ " $(_podslice_verbs "$verb") " == *" $word "* ]]; then
            verb=${{verb:+$verb }}$word
        else
            arguments=$((arguments + 1))
        fi
    done
    [[ $cur == "=" ]] && cur=""

    local kind
    if [[ -n $command ]]; then
        [[ " $(_podslice_arguments "$verb") " == *" CMD "* ]] || return
        for word in _comp_command_offset _command_offset; do
            declare -F "$word" >/dev/null && "$word" "$command" && return
        done
        kind=FILE
        ((COMP_CWORD > command)) || kind=COMMAND
    elif [[ -n $option ]]; then
        kind=$(_podslice_value "$option" "$verb")
        [[ $kind == "-" ]] && return
    elif [[ $cur == -* ]]; then
        kind=$(_podslice_options "$verb")
    else
        kind=$(_podslice_verbs "$verb")
        local metavars
        read -r -a metavars <<< "$(_podslice_arguments "$verb")"
        if ((${{#metavars[@]}})); then
            # the last one may be repeated
            ((arguments < ${{#metavars[@]}})) || arguments=$((${{#metavars[@]}} - 1))
            kind=${{metavars[arguments]}}
        fi
    fi

    case "$kind" in
        FILE|DIR)
            compopt -o filenames 2>/dev/null
            local action=-f
            [[ $kind == DIR ]] && action=-d
            while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen $action -- "$cur") ;;
        POD) _podslice_ask pods ;;
        CONTAINER) _podslice_ask containers ;;
        UNIT|"PID|UNIT") _podslice_ask units ;;
        COMMAND)
            while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -c -- "$cur") ;;
        CMD) [[ -z $cur ]] && COMPREPLY=(--) ;;
        -) ;;
        *)
            while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -W "$kind" -- "$cur") ;;
    esac
}}

# names from podslice: plain characters, and the output is not expanded nevertheless
_podslice_ask() {{
    while IFS= read -r word; do
        [[ $word == "$cur"* ]] && COMPREPLY+=("$word")
    done < <("${{COMP_WORDS[0]}}" {ask} "$1" "${{COMP_WORDS[@]:1:COMP_CWORD-1}}" 2>/dev/null)
}}

complete -F _podslice podslice
"""


def zsh(root: Verb) -> str:
    """Return the completions for zsh, for a directory of $fpath."""
    functions = "\n".join(_zsh_function(verb) for verb in root.walk())
    return f"""\
#compdef podslice
{_HEAD}

# podslice_words is the whole line: below a verb _arguments leaves only the rest of it in words
_podslice_ask() {{
    local -a names
    names=(${{(f)"$(_call_program names ${{(q)podslice_words[1]}} {COMMAND} $argv[-1] ${{(q)podslice_words[2,-1]}} 2>/dev/null)"}})
    # _arguments inserts its own words before those of the action
    compadd "${{(@)argv[1,-2]}}" -a names
}}

{functions}
# loaded by autoload the file is the function itself; sourced, it registers it
if [ "$funcstack[1]" = "_podslice" ]; then
    _podslice "$@"
else
    compdef _podslice podslice
fi
"""


def _zsh_function(verb: Verb) -> str:
    name = "_".join(("_podslice", *(part.replace("-", "_") for part in verb.path)))
    specs = [_zsh_option(option) for option in verb.options]
    specs += [_zsh_argument(argument) for argument in verb.arguments]
    if not verb.verbs:
        body = " \\\n        ".join(specs)
        return f"{name}() {{\n    _arguments -s -S \\\n        {body}\n}}\n"
    verbs = "\n".join(f"        {_quote(f'{v.path[-1]}:{v.help[0]}')}" for v in verb.verbs)
    calls = "\n".join(
        f"            {v.path[-1]}) {name}_{v.path[-1].replace('-', '_')} ;;" for v in verb.verbs
    )
    body = " \\\n        ".join([*specs, "'1: :->verb'", "'*:: :->rest'"])
    whole = "" if verb.path else '    local -a podslice_words=("${(@)words[1,CURRENT-1]}")\n'
    return f"""\
{name}() {{
{whole}    local context state state_descr line
    typeset -A opt_args
    local -a verbs=(
{verbs}
    )
    _arguments -s \\
        {body}
    case $state in
        verb) _describe verb verbs ;;
        rest) case $line[1] in
{calls}
        esac ;;
    esac
}}
"""


def _zsh_option(option: Option) -> str:
    note = f"[{_zsh_text(option.help)}]"
    value = f":{option.metavar.lower()}:{_zsh_action(option)}" if option.metavar else ""
    value = re.sub(r"^:[^:]*:", f":{_zsh_text(option.name[2:])}:", value)
    specs = []
    for flag in option.flags:
        others = " ".join(option.flags)
        prefix = "*" if option.is_repeatable else f"({others})" if len(option.flags) > 1 else ""
        equals = "=" if value and flag.startswith("--") else ""
        specs.append(_quote(f"{prefix}{flag}{equals}{note}{value}"))
    return " ".join(specs)


def _zsh_action(option: Option) -> str:
    if option.choices:
        return f"({' '.join(option.choices)})"
    return _ZSH_ACTIONS.get(option.metavar, " ")


_ZSH_ACTIONS = {
    "FILE": "_files",
    "DIR": "_files -/",
    "PID": "_pids",
    "NAME": " ",
    **{metavar: f"_podslice_ask {what}" for metavar, what in _ASKED.items()},
}


def _zsh_argument(argument: Argument) -> str:
    if argument.metavar == "CMD":
        return _quote("*:::command:_normal")
    action = _ZSH_ACTIONS.get(argument.metavar, "_files")
    repeated = "*" if argument.is_repeatable else ""
    return _quote(f"{repeated}:{argument.metavar.lower()}:{action}")


def _zsh_text(text: str) -> str:
    return re.sub(r"([\[\]:\\])", r"\\\1", text)


def fish(root: Verb) -> str:
    """Return the completions for fish, for its directory of vendor completions."""
    return "\n".join([_HEAD, _FISH, *(line for verb in root.walk() for line in _fish(verb)), ""])


_FISH = f"""
# the verbs on the command line, in order
function __podslice_path
    set -l found
    for word in (commandline -opc)[2..]
        set -l longer $found $word
        contains -- "$longer" $__podslice_paths
        and set found $longer
    end
    echo "$found"
end

function __podslice_at
    set -l path (__podslice_path)
    test "$path" = "$argv"
    and not contains -- -- (commandline -opc)
end

# the command line after --
function __podslice_command
    set -l words (commandline -opc)
    set -l words $words[(math 1 + (contains -i -- -- $words))..]
    complete -C (string join ' ' -- (string escape -- $words) (commandline -ct))
end

function __podslice_behind
    contains -- -- (commandline -opc)
    and test (__podslice_path) = "$argv"
end

function __podslice_ask
    set -l words (commandline -opc)
    $words[1] {COMMAND} $argv $words[2..] 2>/dev/null
end
"""


def _fish(verb: Verb) -> Iterator[str]:
    if not verb.path:
        paths = " ".join(_quote(each.name) for each in verb.walk() if each.path)
        yield f"set -g __podslice_paths {paths}\n"
        yield "complete -c podslice -f"
    here = f"complete -c podslice -n {_quote(f'__podslice_at {verb.name}'.strip())}"
    for each in verb.verbs:
        yield f"{here} -a {each.path[-1]} -d {_quote(each.help[0])}"
    for argument in verb.arguments:
        if argument.metavar == "CMD":
            behind = _quote(f"__podslice_behind {verb.name}")
            yield f"complete -c podslice -n {behind} -a '(__podslice_command)'"
        else:
            action = _FISH_ACTIONS.get(argument.metavar)
            yield f"{here} -a {action}" if action else f"{here} -F"
    for option in verb.options:
        short = "".join(f" -s {flag[1]}" for flag in option.flags if not flag.startswith("--"))
        long = "".join(f" -l {flag[2:]}" for flag in option.flags if flag.startswith("--"))
        yield f"{here}{short}{long}{_fish_value(option)} -d {_quote(option.help)}"


def _fish_value(option: Option) -> str:
    if not option.metavar:
        return ""
    if option.choices:
        return f" -x -a {_quote(' '.join(option.choices))}"
    if option.metavar == "FILE":
        return " -r -F"
    action = _FISH_ACTIONS.get(option.metavar)
    return f" -x -a {action}" if action else " -x"


_FISH_ACTIONS = {
    "DIR": "'(__fish_complete_directories)'",
    "PID": "'(__fish_complete_pids)'",
    **{metavar: f"'(__podslice_ask {what})'" for metavar, what in _ASKED.items()},
}


def _quote(text: str) -> str:
    """Quote text as one word, for all three shells."""
    return "'" + text.replace("'", "'\\''") + "'"
