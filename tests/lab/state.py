"""The state that podslice may leave in a machine, and its removal between tests."""

from tests.lab.machine import Machine

# Of units: those that run or are loaded under podslice's names. Of files: those that such calls write.
# Failed lookups: a transient unit that existed during a daemon-reload and was stopped later. systemd
# (252 and 257) then looks for the file it has removed, and reports "not found" even where any slice
# could be started, until the next daemon-reload.
LEFTOVERS_SCRIPT = r"""
systemctl list-units --all --plain --no-legend 'kubepods*' 'podslice*' 'podruntime*' 'run-podslice*' |
  while read -r unit load active _; do
    [ "$active" = inactive ] && [ "$load" = not-found ] || echo "unit $unit ($load, $active)"
  done
for dir in /run/systemd/system.control /etc/systemd/system.control; do
  [ -d $dir ] && find $dir -mindepth 1 -maxdepth 1 -printf 'file %p\n'
done
for name in kubepods podslice podruntime; do
  find /run/systemd/transient -name "$name*" -printf 'file %p\n' 2>/dev/null
done
[ -e /run/podslice ] && echo 'file /run/podslice'
systemctl show --property=Id,LoadState --value kubepods.slice kubepods-burstable.slice \
  kubepods-besteffort.slice podruntime.slice | paste -d ' ' - - - | grep -v ' loaded' |
  sed 's/^/forgotten file of /'
true
"""
# Units first, because systemd removes the files of transient ones itself. Stopping a slice stops its
# units. systemd 262 stops none of several units if one has been removed meanwhile.
# A unit of any name that failed in a slice keeps the slice loaded, so all failures are reset.
CLEAN_SCRIPT = r"""
units=$(systemctl list-units --all --plain --no-legend 'kubepods*' 'podslice*' 'podruntime*' 'run-podslice*' |
  while read -r unit _; do echo "$unit"; done)
if [ -n "$units" ]; then
  systemctl kill --signal=KILL $units
  systemctl stop $units || for unit in $units; do systemctl stop "$unit"; done
fi 2>/dev/null
systemctl reset-failed
cd /run/systemd && rm -rf /run/podslice
rm -rf system.control/* /etc/systemd/system.control/* \
  transient/kubepods* transient/podslice* transient/podruntime*
systemctl daemon-reload
"""


def find_leftovers(machine: Machine) -> list[str]:
    """Return units and files of podslice that exist now, as text."""
    return sorted(machine.run("sh", "-c", LEFTOVERS_SCRIPT).stdout.splitlines())


def clean(machine: Machine) -> None:
    """Remove everything that `find_leftovers` finds."""
    machine.run("sh", "-c", CLEAN_SCRIPT)
