"""A user at a terminal: type, wait for output, resize the window. Runs in a machine.

`run` executes another command, which ends before the next act.

Reads a play as JSON, {"argv": […], "env": {…}, "acts": [["type", "fg\\n"], ["see", "done"],
["resize", 40, 132], ["signal", 15], ["run", "touch", "x"]]}, and writes {"screen", "exit_code"}; the latter is negative
for death by a signal, as the parent's waitpid has it. Stdlib only.
"""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time

PATIENCE_SEC = 60


class Screen:
    """The output so far, and how far the acts have read it."""

    def __init__(self, terminal: int) -> None:
        self.terminal = terminal
        self.text = ""
        self.seen = 0

    def see(self, wanted: str) -> None:
        until = time.monotonic() + PATIENCE_SEC  # a page that is redrawn has always output
        while (found := self.text.find(wanted, self.seen)) < 0:
            if not self.read() or time.monotonic() > until:
                sys.exit(f"{wanted!r} did not appear:\n{self.text}")
        self.seen = found + len(wanted)

    def read(self) -> bool:
        """Read available output; return false at the end, or after a timeout."""
        if not select.select([self.terminal], [], [], PATIENCE_SEC)[0]:
            return False
        try:
            data = os.read(self.terminal, 1 << 16)
        except OSError:  # the other end is closed
            return False
        self.text += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)


def main() -> None:
    play = json.load(sys.stdin)
    pid, terminal = pty.fork()
    if pid == 0:
        environment = {**os.environ, **play["env"]}
        os.execvpe(play["argv"][0], play["argv"], environment)  # noqa: S606 (the play)
    screen = Screen(terminal)
    for what, *how in play["acts"]:
        match what:
            case "type":
                os.write(terminal, how[0].encode())
            case "see":
                screen.see(how[0])
            case "resize":
                fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", *how, 0, 0))
            case "run":
                environment = {**os.environ, **play["env"]}
                subprocess.run(how, env=environment, check=True)
            case "signal":
                os.kill(pid, signal.Signals(how[0]))
    while screen.read():
        pass
    _, status = os.waitpid(pid, 0)
    json.dump({"screen": screen.text, "exit_code": os.waitstatus_to_exitcode(status)}, sys.stdout)


if __name__ == "__main__":
    main()
