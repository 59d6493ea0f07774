"""Command line of the lab; run it from the root of the source tree."""

import argparse
import contextlib
import os
import shutil
import sys
import termios
import threading
import tty
from collections.abc import Callable, Sequence

from tests.lab import deps, image, keeper, paths, recipe
from tests.lab.machine import CommandTimeout, LabError, Process
from tests.lab.namespace import Namespace
from tests.lab.remote import RemoteMachine
from tests.lab.vm import Vm, ensure_template

SHELL_TIMEOUT_SEC = 24 * 3600.0
EPILOG = """\
examples:
  python3 -m tests.lab image bookworm
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

    def add(
        name: str, call: Callable[[argparse.Namespace], int], text: str
    ) -> argparse.ArgumentParser:
        verb = verbs.add_parser(name, help=text, description=text.capitalize() + ".")
        verb.set_defaults(call=call)
        return verb

    add("deps", do_deps, "install what this host lacks, with apt")
    verb = add("image", do_image, "build an image and its template, if the cache has none")
    verb.add_argument("suite", nargs="?", default=recipe.DEFAULT_SUITE, choices=recipe.SUITES)
    verb.add_argument("--no-template", action="store_true", help="do not boot it in a vm")
    verb = add("shell", do_shell, "boot a machine and open a shell in it")
    add_machine_options(verb)
    verb = add("run", do_run, "boot a machine and run one command in it")
    add_machine_options(verb)
    verb.add_argument("--timeout", type=float, default=600.0, metavar="SEC", help="default: 600")
    verb.add_argument("command", nargs="+", metavar="CMD", help="after --")
    verb = add("clean", do_clean, "remove what killed runs have left")
    verb.add_argument("--all", action="store_true", help="and the cache with all images")
    add("info", do_info, "show the state of the lab")
    return parser


def add_machine_options(verb: argparse.ArgumentParser) -> None:
    """Add the options that choose the machine."""
    verb.add_argument("--vm", action="store_true", help="a virtual machine, not a namespace")
    verb.add_argument("--cold", action="store_true", help="boot the vm, do not restore it")
    verb.add_argument("--suite", default=recipe.DEFAULT_SUITE, choices=recipe.SUITES)


def do_deps(_: argparse.Namespace) -> int:
    """Install packages."""
    print_line(f"installed: {' '.join(deps.ensure_deps()) or 'nothing, none is missing'}")
    return 0


def do_image(arguments: argparse.Namespace) -> int:
    """Build an image."""
    built = image.ensure_image(arguments.suite)
    print_line(built.dir)
    if not arguments.no_template:
        print_line(ensure_template(built))
    return 0


def do_run(arguments: argparse.Namespace) -> int:
    """Run one command."""
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
    """Remove leftovers."""
    paths.require_host()
    runs = paths.run_dir()
    for name in keeper.sweep(runs.iterdir()) if runs.is_dir() else ():
        print_line(f"removed {name}")
    if arguments.all:
        for kind in ("template", "image", "base", "build", "package", "wheels", "extras"):
            for path in image.remove_unused(kind):
                print_line(f"removed {path}")
        shutil.rmtree(paths.cache_dir() / "debs", ignore_errors=True)
    return 0


def do_info(_: argparse.Namespace) -> int:
    """Show the state of the lab."""
    print_line(f"cache     {paths.cache_dir()}")
    print_line(f"host      {deps.host_suite() or 'unknown'}, {paths.why_unavailable() or 'usable'}")
    print_line(f"missing   {' '.join(deps.missing()) or 'nothing'}")
    for kind in ("base", "image", "template", "build", "package", "wheels", "extras", "run"):
        for path in sorted(p for p in (paths.cache_dir() / kind).glob("*") if p.is_dir()):
            print_line(f"{kind:9} {path.name}")
    return 0


def boot(arguments: argparse.Namespace) -> RemoteMachine:
    """Yield the machine that the options choose, with the source tree at /src."""
    if arguments.cold and not arguments.vm:
        raise LabError("--cold is for --vm only")
    if not arguments.vm:
        return Namespace(arguments.suite, bind={"/src": paths.source_dir()})
    return Vm(arguments.suite, has_source=True, is_cold=arguments.cold)


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


def print_line(text: object) -> None:
    """Write a line."""
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
