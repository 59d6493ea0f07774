"""The state that podslice may leave in a machine, and its removal between tests."""

from tests.lab.machine import Machine

LIMIT_SEC = 300.0
"""For an emulated machine on a busy host, where a stop of all units and a daemon-reload take minutes."""

# Of units: those that run or are loaded under podslice's names. Of files: those that such calls write.
# Failed lookups: a transient unit that existed when systemd last listed the unit files and was stopped
# later. systemd (252 and 257) then looks for the file it has removed, and reports "not found" even where
# any slice could be started, until the next daemon-reload.
# A shell's own commands, because a process takes 50 ms to start in an emulated machine.
LEFTOVERS_SCRIPT = r"""
find_leftovers() {
  systemctl list-units --all --plain --no-legend 'kubepods*' 'podslice*' 'podruntime*' 'run-podslice*' |
    while read -r unit load active _; do
      [ "$active" = inactive ] && [ "$load" = not-found ] || echo "unit $unit ($load, $active)"
    done
  for file in /run/systemd/system.control/* /etc/systemd/system.control/* /run/podslice /var/lib/podslice \
      /run/systemd/transient/kubepods* /run/systemd/transient/podslice* /run/systemd/transient/podruntime*
  do
    if [ -e "$file" ] || [ -L "$file" ]; then echo "file $file"; fi
  done
  systemctl show --property=Id,LoadState --value kubepods.slice kubepods-burstable.slice \
    kubepods-besteffort.slice podruntime.slice | grep -v '^$' |
    while read -r unit && read -r load; do
      [ "$load" = loaded ] || echo "forgotten file of $unit ($load)"
    done
}
# What systemd's list of unit files depends on: the last daemon-reload, and directories of administrators.
describe_unit_files() {
  systemctl show -P UnitsLoadTimestampMonotonic
  stat -c '%n %y' /run/systemd/system /etc/systemd/system /usr/lib/systemd/system 2>&1
  true
}
"""
# Units first, because systemd removes the files of transient ones itself. Stopping a slice stops its
# units. systemd 262 stops none of several units if one has been removed meanwhile.
# A unit of any name that failed in a slice keeps the slice loaded, so all failures are reset.
# A daemon-reload, which takes seconds in an emulated machine, only if systemd may know removed files.
CLEAN_SCRIPT = r"""
units=$(systemctl list-units --all --plain --no-legend 'kubepods*' 'podslice*' 'podruntime*' 'run-podslice*' |
  while read -r unit _; do echo "$unit"; done)
if [ -n "$units" ]; then
  systemctl kill --signal=KILL $units
  systemctl stop $units || for unit in $units; do systemctl stop "$unit"; done
fi 2>/dev/null
systemctl reset-failed
cd /run/systemd && rm -rf /run/podslice /var/lib/podslice
seen=/run/podlab-unit-files
if [ "$(find_leftovers)" ] || [ "$(describe_unit_files)" != "$(cat $seen 2>/dev/null)" ]; then
  rm -rf system.control/* /etc/systemd/system.control/* \
    transient/kubepods* transient/podslice* transient/podruntime*
  systemctl daemon-reload
  describe_unit_files >$seen
  find_leftovers
fi
"""


def find_leftovers(machine: Machine) -> list[str]:
    """Return units and files of podslice that exist now, as text."""
    return _run(machine, "find_leftovers")


def clean(machine: Machine) -> None:
    """Remove everything that `find_leftovers` finds."""
    _run(machine, CLEAN_SCRIPT)


def restore(machine: Machine) -> list[str]:
    """Clean if there are leftovers; return those that could not be removed."""
    return _run(machine, f'if [ "$(find_leftovers)" ]; then\n{CLEAN_SCRIPT}\nfi')


def _run(machine: Machine, script: str) -> list[str]:
    argv = ("sh", "-c", LEFTOVERS_SCRIPT + script)
    return sorted(machine.run(*argv, timeout_sec=LIMIT_SEC).stdout.splitlines())
