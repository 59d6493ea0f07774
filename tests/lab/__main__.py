"""Command line of the lab; run it from the root of the source tree."""

import argparse
import contextlib
import os
import shutil
import sys
import termios
import threading
import tty
from collections.abc import Sequence

from tests.lab import image, keeper, paths, recipe
from tests.lab.machine import CommandTimeout, LabError, Process
from tests.lab.namespace import Namespace
from tests.lab.remote import RemoteMachine
from tests.lab.vm import Vm

SHELL_TIMEOUT_SEC = 24 * 3600.0
CACHED = ("template", "image", "base", "build", "package", "wheels", "extras", "bench")
EPILOG = """\
examples:
  python3 -m tests.lab run -- systemd-cgls
  python3 -m tests.lab run --vm -- python3 -m pytest -q tests/bus
  python3 -m tests.lab shell --vm

Machines are thrown away when the command ends. In them the source tree is at /src, which is
also the working directory. Files are kept in $PODSLICE_LAB, or else in ~/.cache/podslice-lab.
"""


def main(argv: Sequence[str]) -> int:
    """Run the verb of the command line; return the exit code."""
    arguments = make_parser().parse_args(argv)
    try:
        code: int = arguments.call(arguments)
    except (LabError, CommandTimeout) as error:
        sys.stderr.write(f"tests.lab: {error}\n")
        return 1
    return code


def make_parser() -> argparse.ArgumentParser:
    """Return the parser with all verbs and their options."""
    parser = argparse.ArgumentParser(
        prog="python3 -m tests.lab",
        description="Boot a real systemd to test against, on a host which need not run one.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    shell = verbs.add_parser("shell", help="boot a machine and open a shell in it")
    shell.set_defaults(call=do_shell)
    run = verbs.add_parser("run", help="boot a machine and run one command in it")
    run.set_defaults(call=do_run)
    run.add_argument("--timeout", type=float, default=600.0, metavar="SEC", help="default: 600")
    run.add_argument("command", nargs="+", metavar="CMD", help="after --")
    for verb in (shell, run):
        verb.add_argument("--vm", action="store_true", help="a virtual machine, not a namespace")
        verb.add_argument("--suite", default=recipe.DEFAULT_SUITE, choices=recipe.SUITES)
    clean = verbs.add_parser("clean", help="remove what killed runs have left")
    clean.set_defaults(call=do_clean)
    clean.add_argument("--all", action="store_true", help="and the cache with all images")
    return parser


def do_run(arguments: argparse.Namespace) -> int:
    with boot(arguments) as machine:
        return run_attached(machine, arguments.command, arguments.timeout)


def do_shell(arguments: argparse.Namespace) -> int:
    """Open a shell, on its own terminal in the machine."""
    size = shutil.get_terminal_size()
    script = f"stty cols {size.columns} rows {size.lines} 2>/dev/null; exec bash -l"
    with boot(arguments) as machine:
        command = ["script", "--quiet", "--return", "--command", script, "/dev/null"]
        if not sys.stdin.isatty():
            return run_attached(machine, ["bash", "-l"], SHELL_TIMEOUT_SEC)
        before = termios.tcgetattr(0)
        tty.setraw(0)
        try:
            return run_attached(machine, command, SHELL_TIMEOUT_SEC)
        finally:
            termios.tcsetattr(0, termios.TCSADRAIN, before)


def do_clean(arguments: argparse.Namespace) -> int:
    paths.require_host()
    runs = paths.run_dir()
    removed: list[object] = [*(keeper.sweep(runs.iterdir()) if runs.is_dir() else ())]
    if arguments.all:
        removed += [path for kind in CACHED for path in image.remove_unused(kind)]
        shutil.rmtree(paths.cache_dir() / "debs", ignore_errors=True)
    sys.stdout.writelines(f"removed {each}\n" for each in removed)
    return 0


def boot(arguments: argparse.Namespace) -> RemoteMachine:
    """Return the machine that the options choose, with the source tree at /src."""
    if arguments.vm:
        return Vm(arguments.suite, has_source=True)
    return Namespace(arguments.suite, bind={"/src": paths.source_dir()})


def run_attached(machine: RemoteMachine, command: Sequence[str], timeout_sec: float) -> int:
    """Run a command in /src with the standard streams of this process; return its exit code."""
    outputs = {"stdout": sys.stdout.buffer, "stderr": sys.stderr.buffer}

    def show(name: str, data: bytes) -> None:
        outputs[name].write(data)
        outputs[name].flush()

    script = 'cd /src && exec "$@"'
    process = machine.spawn("sh", "-c", script, "sh", *command, sink=show)
    threading.Thread(target=feed, args=(process,), daemon=True).start()
    return process.wait(timeout_sec).exit_code


def feed(process: Process) -> None:
    """Forward standard input to the process, to its end."""
    with contextlib.suppress(LabError):  # the machine ended, and this thread with it
        while data := os.read(0, 1 << 16):
            process.write(data)
        process.close_stdin()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
