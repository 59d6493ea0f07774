"""The sessions of the README: its console blocks as commands with their output, run on a machine.

Each command runs as on a terminal of `COLUMNS` columns, in one directory. A command without output
in the README has its output elsewhere, as a picture.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tests.lab.machine import Machine, Result

COLUMNS, ROWS = 100, 40
DIRECTORY = "/root/session"
TIMEOUT_SEC = 300.0
_BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
_PROMPT = "$ "
# sudo is not installed on the machines, where everything runs as root
_PROLOGUE = 'sudo() { "$@"; }\n'
_ERASE = "\x1b[K"
_NUMBER = re.compile(
    r"\d[\d.,:/-]*\d|\d|(?<=\s)-(?=\s|$)"  # a value that is not known is a dash
)
_UNIT = re.compile(r"# ?(?:[KMGT]i?B?|B|n|u|m|µs|ms|s|min|h|d|%)(?![\w])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command of the README, and the lines that it prints."""

    command: str
    output: tuple[str, ...] = ()


def sections(readme: str) -> dict[str, str]:
    """Return the text of each section of the README by its heading."""
    parts = re.split(r"^## (.*)\n", readme, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def read_steps(text: str) -> list[Step]:
    return [step for block in _BLOCK.findall(text) for step in _read_block(block)]


def _read_block(block: str) -> Iterator[Step]:
    step: Step | None = None
    for line in block.splitlines():
        if line.startswith(_PROMPT):
            if step is not None:
                yield step
            step = Step(command=line.removeprefix(_PROMPT))
        elif step is None:
            raise ValueError(f"a console block begins with a command, not with {line!r}")
        else:
            step = replace(step, output=(*step.output, line))
    if step is not None:
        yield step


def with_outputs(readme: str, outputs: Sequence[Sequence[str]]) -> str:
    """Return the README with other outputs, one for each of its commands that shows one."""
    left = iter(outputs)

    def write(block: re.Match[str]) -> str:
        lines = ["```console"]
        for step in _read_block(block[1]):
            found = next(left)
            lines += [_PROMPT + step.command, *(found if step.output else ())]
        return "\n".join([*lines, "```"])

    return _BLOCK.sub(write, readme)


def prepare(machine: Machine) -> None:
    machine.run("mkdir", "-p", DIRECTORY)


def run(machine: Machine, command: str, *, columns: int = COLUMNS, color: bool = False) -> Result:
    """Run a command as on a terminal; its output has all that it prints there."""
    text = f"{_PROLOGUE}cd {DIRECTORY}\n{command}\n"
    shell = f"stty cols {columns} rows {ROWS}; exec bash -c {shlex.quote(text)}"
    environment = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "SYSTEMD_PAGER": "cat"}
    environment |= {} if color else {"NO_COLOR": "1"}
    result = machine.run(
        *("script", "--quiet", "--return", "--command", shell, "/dev/null"),
        env=environment,
        check=False,
        timeout_sec=TIMEOUT_SEC,
    )
    return replace(result, argv=(command,), stdout=settled(result.stdout))


def settled(output: str) -> str:
    """Return what remains on the terminal after a line was redrawn, as progress is."""
    lines = []
    for line in output.split("\n"):
        shown = ""
        for part in line.removesuffix("\r").split("\r"):
            text, erases, rest = part.partition(_ERASE)
            shown = text + rest if erases else text + shown[len(text) :]
        lines.append(shown)
    return "\n".join(lines)


def lines_of(result: Result) -> list[str]:
    return [line.rstrip() for line in result.stdout.splitlines()]


def without_numbers(line: str) -> str:
    """Return a line without what differs from run to run: numbers, their units, bars and widths."""
    text = re.sub("[█░▓▒]+", "█", line)
    text = _UNIT.sub("#", _NUMBER.sub("#", text))
    return " ".join(text.split())


def differences(step: Step, result: Result) -> list[str]:
    """Return why a command does not do what the README shows; numbers may differ."""
    found = lines_of(result)
    if result.exit_code != 0:
        return [f"$ {step.command}: exit code {result.exit_code}", *found]
    if not step.output or [*map(without_numbers, step.output)] == [*map(without_numbers, found)]:
        return []
    return [f"$ {step.command} prints", *found, "and not", *step.output]
