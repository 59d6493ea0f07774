"""Random events on a node with an agent, and the expected state afterwards."""

import json
import random

from tests.host import agent

DISK = "/run/podslice/.filled"
FEWEST = 20
"""With fewer pods none is removed."""


class Chaos:
    """Chooses events; tracks the pods that the manifests request."""

    def __init__(self, machine, seed):
        self.machine = machine
        self.random = random.Random(seed)
        self.good = {}
        """The last valid manifest by name: these must be applied."""
        self.broken = set()
        self.fresh = set()
        """Manifests that may not have been read yet: while they are invalid the previous ones may apply."""
        self.made = 0
        self.counts = {}
        self.is_disk_full = False
        self.plan_output = ""

    def fill(self, count):
        """Return the shell lines that write the initial manifests."""
        return [line for _ in range(count) for line in self._add()]

    def burst(self, count):
        """Return a number of events, as the lines of one shell script."""
        lines = []
        self.fresh.clear()
        for _ in range(count):
            event = self.random.choice(self.events())
            self.counts[event.__name__.lstrip("_")] = (
                self.counts.get(event.__name__.lstrip("_"), 0) + 1
            )
            lines += event()
        if self.is_disk_full:
            lines += self._empty_disk()
        return lines

    def events(self):
        often = [self._add, self._change, self._remove, self._set_by_hand, self._stop_by_hand]
        some = [self._break, self._mend, self._kill_agent, self._fill_disk]
        seldom = [self._reload, self._reexec, self._restart_bus]
        if self.machine.kind == "vm":
            seldom.append(self._jump)  # namespaces share the clock of the host
        return often * 6 + some * 2 + seldom

    def _write(self, name, text):
        path = f"{agent.MANIFESTS}/{name}.yaml"
        return [f"cat > {path}.new <<'END'\n{text}\nEND", f"mv {path}.new {path}"]

    def _add(self):
        self.made += 1
        return self._put(f"pod-{self.made}")

    def _put(self, name):
        cpu, memory = self.random.randint(1, 3), self.random.randint(1, 4)
        text = agent.manifest(name, cpu=f"{cpu}m", memory=f"{memory}Mi")
        self.good[name] = text
        self.fresh.add(name)
        self.broken.discard(name)
        return self._write(name, text)

    def _any(self):
        return self.random.choice(sorted(self.good))

    def _change(self):
        return self._put(self._any())

    def _remove(self):
        if len(self.good) < FEWEST:
            return self._add()
        name = self._any()
        del self.good[name]
        self.broken.discard(name)
        return [f"rm {agent.MANIFESTS}/{name}.yaml"]

    def _break(self):
        name = self.random.choice(sorted(self.good.keys() - self.fresh))
        self.broken.add(name)
        text = self.random.choice(
            ["kind: Pod\nmetadata: {name: x", self.good[name].replace("Mi", "Mii"), "[]", "\t{"]
        )
        return self._write(name, text)

    def _mend(self):
        if not self.broken:
            return self._change()
        name = self.random.choice(sorted(self.broken))
        self.broken.discard(name)
        return self._write(name, self.good[name])

    def _slice(self):
        number = self.random.randrange(1000)
        find = "systemctl list-units --plain --no-legend 'kubepods*.slice' | cut -d' ' -f1"
        return f"$({find} | awk '{{n[NR]=$1}} END {{print n[1 + {number} % NR]}}')"

    def _set_by_hand(self):
        value = self.random.choice(["CPUWeight=77", "MemoryMax=1G", "CPUQuota=33%", "TasksMax=99"])
        return [f"systemctl set-property --runtime {self._slice()} {value} || true"]

    def _stop_by_hand(self):
        return [f"systemctl stop {self._slice()} || true"]

    def _kill_agent(self):
        return [f"systemctl kill --kill-whom=main -s KILL {agent.UNIT} || true"]

    def _reload(self):
        return ["systemctl daemon-reload"]

    def _reexec(self):
        return ["systemctl daemon-reexec"]

    def _restart_bus(self):
        return ["systemctl restart dbus.service"]

    def _jump(self):
        hours = self.random.choice([-5, -1, 1, 7])
        return [f'date -s "{hours} hours" >/dev/null']

    def _fill_disk(self):
        self.is_disk_full = True
        return [f"dd if=/dev/zero of={DISK} bs=64k 2>/dev/null || true"]

    def _empty_disk(self):
        self.is_disk_full = False
        return [f"rm -f {DISK}"]

    # The expected state.

    def expected(self):
        """Return the manifests that must be in force, as one document."""
        items = [json.loads(text) for text in self.good.values()]
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})

    def is_settled(self):
        """Return whether the state has converged, without leftovers."""
        plan = self.machine.podslice(
            "plan", "--prune", "-f", "-", input=self.expected(), check=False
        )
        self.plan_output = plan.stdout + plan.stderr
        return plan.exit_code == 0 and plan.stdout.strip() == "nothing to do"

    def explain(self):
        """Return the differences and the agent's last log lines."""
        log = self.machine.run("journalctl", "-u", agent.UNIT, "-n", "60", "--no-pager").stdout
        return f"{self.plan_output}\n{log}"
