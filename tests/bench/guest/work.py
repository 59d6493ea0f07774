"""Work inside the virtual machine's control groups, timed by the machine's own clock.

    work.py worker NAME   in a container: executes commands, line by line
    work.py conduct       sends the commands of the script on standard input to workers, and writes
                          the results to standard output, both as JSON

Standard library only and few imports, because the machine is slow. A worker has two FIFOs in /run/work,
NAME.in and NAME.out, and starts once; it forks its spinning processes once, too. Its commands:

    where                         its control group
    spin WIDTH CPU_MS WAIT_MS     so much CPU time, divided among WIDTH processes; each of them waits
                                  for WAIT_MS in between. Answers with the end, in ns
    tick COUNT PERIOD_USEC CPU_USEC   a little work in each period; the delay of each after its due
                                  time, in µs
    burn WIDTH                    processes that spin until `rest`
    rest                          ends the processes of burn

A script is {"for_ms": 0, "at_least": 0, "tracks": [{"first_ms": 0, "steps": [{"pause_ms",
"parts": [[NAME, COMMAND], ...]}]}]}. Tracks run in parallel, each one step after the other, after
its pause; the parts of a step begin at once, and it ends with the last. With `for_ms` tracks repeat,
and begin no step after that time, unless they took fewer than `at_least`.
"""
# pathlib costs a tenth of a second at the start in an emulated machine:
# ruff: noqa: PTH103, PTH120, PTH123

import os
import signal
import sys
import time

DIRECTORY = "/run/work"
CGROUP = "/sys/fs/cgroup"
ROOT = f"{CGROUP}/kubepods.slice"
PIECES = 10
"""The number of pieces into which waits divide work."""
STAMP = 20
"""Digits of a time."""


def main(argv):
    if argv[0] == "worker":
        serve(f"{DIRECTORY}/{argv[1]}")
    else:
        conduct()


# ---- a worker


def serve(path):
    """Execute the commands of the FIFO."""
    commands, answers = open_fifos(path)
    worker = Worker()
    known = {
        "where": own_group,
        "spin": worker.spin,
        "tick": tick,
        "burn": worker.burn,
        "rest": worker.rest,
    }
    while True:
        name, *arguments = read_line(commands).split()
        try:
            answer = known[name](*map(int, arguments))
        except Exception as error:  # noqa: BLE001 - the waiting conductor must receive it
            answer = f"error {error!r}"
        os.write(answers, f"{answer}\n".encode())


def open_fifos(path):
    """Open both ends of both, so that neither side reads an end of file."""
    os.makedirs(DIRECTORY, exist_ok=True)
    for end in ("in", "out"):
        try:  # noqa: SIM105 - contextlib is one more import
            os.mkfifo(f"{path}.{end}")
        except FileExistsError:
            pass
    return tuple(os.open(f"{path}.{end}", os.O_RDWR) for end in ("in", "out"))


def read_line(fd):
    """Read a line; a second one is written only after the first is answered."""
    data = b""
    while not data.endswith(b"\n"):
        data += os.read(fd, 1 << 16)
    return data.decode().strip()


def own_group():
    """Return the control group, from the root of version 2: `0::/kubepods.slice/…`."""
    with open("/proc/self/cgroup") as file:
        return file.read().strip().rpartition("::")[2]


class Worker:
    """The processes of one container."""

    def __init__(self):
        self.spinners = []
        self.done = os.pipe()
        self.others = []

    def spin(self, width, cpu_ms, wait_ms):
        while len(self.spinners) < width:
            self.spinners.append(self.start_spinner())
        order = f"{cpu_ms * 1_000_000 // width} {wait_ms}\n".encode()
        for _, orders in self.spinners[:width]:
            os.write(orders, order)
        ends = b""
        while len(ends) < width * STAMP:
            ends += os.read(self.done[0], 1 << 12)
        return max(int(ends[at : at + STAMP]) for at in range(0, len(ends), STAMP))

    def start_spinner(self):
        orders = os.pipe()
        if not (pid := os.fork()):
            while True:
                cpu_nsec, wait_ms = map(int, read_line(orders[0]).split())
                spin_and_wait(cpu_nsec, wait_ms)
                os.write(self.done[1], b"%020d" % time.monotonic_ns())
        return pid, orders[1]

    def burn(self, width):
        for _ in range(width):
            if not (pid := os.fork()):
                while True:
                    pass
            self.others.append(pid)
        return "burning"

    def rest(self):
        for pid in self.others:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.others = []
        return "resting"


def spin_and_wait(cpu_nsec, wait_ms):
    if not wait_ms:
        spin(cpu_nsec)
        return
    for _ in range(PIECES):
        spin(cpu_nsec // PIECES)
        time.sleep(wait_ms / 1000 / PIECES)


def spin(cpu_nsec):
    """Spin until this process has used some CPU time."""
    end = time.process_time_ns() + cpu_nsec
    while time.process_time_ns() < end:
        for _ in range(300):
            pass


def tick(count, period_usec, cpu_usec):
    """Times are due even if the previous one was late, so that delays add up."""
    begun, late = time.monotonic_ns(), []
    for number in range(count):
        due = begun + number * period_usec * 1000
        time.sleep(max(due - time.monotonic_ns(), 0) / 1e9)
        spin(cpu_usec * 1000)
        late.append((time.monotonic_ns() - due) // 1000)
    return " ".join(map(str, late))


# ---- the conductor


def conduct():
    import json  # noqa: PLC0415 - a worker does without
    import threading  # noqa: PLC0415

    script = json.load(sys.stdin)
    stage = Stage(script)
    begun, before = time.monotonic_ns(), read_stat(ROOT)
    stage.deadline = begun + script["for_ms"] * 1_000_000 if script["for_ms"] else None
    threads = [
        threading.Thread(target=stage.play, args=(number, track))
        for number, track in enumerate(script["tracks"])
    ]
    for thread in threads:
        thread.start()
    if stage.deadline:
        time.sleep(max(stage.deadline - time.monotonic_ns(), 0) / 1e9)
        passed, after = time.monotonic_ns() - begun, read_stat(ROOT)
    for thread in threads:
        thread.join()
    if not stage.deadline:
        passed, after = time.monotonic_ns() - begun, read_stat(ROOT)
    if stage.errors:
        sys.exit("\n".join(stage.errors))
    found = {
        "cpus": os.cpu_count(),
        "wall_ms": passed / 1e6,
        "used_ms": (after["usage_usec"] - before["usage_usec"]) / 1000,
        "steps": stage.found,
        "limits": {name: limits_of(group) for name, group in stage.groups.items()},
    }
    json.dump(found, sys.stdout)


class Stage:
    """The workers of a script, and the results of its steps."""

    def __init__(self, script):
        names = {
            part[0]
            for track in script["tracks"]
            for step in track["steps"]
            for part in step["parts"]
        }
        self.fifos = {name: open_fifos(f"{DIRECTORY}/{name}") for name in sorted(names)}
        for name in self.fifos:
            self.send(name, "where")
        self.groups = {name: CGROUP + self.answer(name) for name in self.fifos}
        self.found, self.errors, self.deadline = [], [], None
        self.at_least = script["at_least"]

    def send(self, name, command):
        os.write(self.fifos[name][0], f"{command}\n".encode())

    def answer(self, name):
        return read_line(self.fifos[name][1])

    def play(self, number, track):
        """The steps of one track: until the deadline, but at least as many as the script wants."""
        time.sleep(track["first_ms"] / 1000)
        taken = 0
        while True:
            for step in track["steps"]:
                time.sleep(step["pause_ms"] / 1000)
                is_over = self.deadline and time.monotonic_ns() > self.deadline
                if self.errors or (is_over and taken >= self.at_least):
                    return
                taken += 1
                try:
                    self.take(number, step)
                except Exception as error:  # noqa: BLE001 - of a thread; raised at the end
                    self.errors.append(f"{step['parts']}: {error!r}")
            if not self.deadline:
                return

    def take(self, number, step):
        names = [name for name, _ in step["parts"]]
        groups = [self.groups[name] for name in names]
        pod = os.path.dirname(groups[0])
        before = [read_stat(group) for group in (*groups, pod)]
        begun = time.monotonic_ns()
        for name, command in step["parts"]:
            self.send(name, command)
        answers = [self.answer(name) for name in names]
        ended = time.monotonic_ns()
        after = [read_stat(group) for group in (*groups, pod)]
        if wrong := [answer for answer in answers if answer.startswith("error")]:
            raise RuntimeError(", ".join(wrong))
        if all(command.startswith("spin") for _, command in step["parts"]):
            ended = max(map(int, answers))
        used = [
            {
                "used_ms": (late["usage_usec"] - early["usage_usec"]) / 1000,
                "throttled": late["nr_throttled"] - early["nr_throttled"],
            }
            for early, late in zip(before, after, strict=True)
        ]
        self.found.append(
            {
                "track": number,
                "ms": (ended - begun) / 1e6,
                "answers": answers,
                "containers": used[:-1],
                "pod": used[-1],
            }
        )


def read_stat(group):
    """Return the use of a group and its number of throttled periods; 0 for a group without cpu.max."""
    stat = read_counts(f"{group}/cpu.stat")
    return {"usage_usec": stat["usage_usec"], "nr_throttled": stat.get("nr_throttled", 0)}


def limits_of(group):
    """Return the CPU limits of a container and its pod, `max` for none, as the kernel does."""
    pod = os.path.dirname(group)
    places = (("container", group), ("pod", pod))
    return {f"{of}_cpu": read_text(f"{place}/cpu.max") for of, place in places}


def read_counts(path):
    return {name: int(count) for name, count in map(str.split, read_text(path).splitlines())}


def read_text(path):
    with open(path) as file:
        return file.read().strip()


if __name__ == "__main__":
    main(sys.argv[1:])
