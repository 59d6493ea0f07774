#!/bin/sh
# Starts the units of a work file with one busctl each, as a person's script would.
#
#     client_busctl.sh WORK
#
# busctl call, as neither of the shorter ways makes the same units: systemctl set-property --runtime
# leaves drop-ins for units that are not transient and have no description, and systemd-run makes
# services and scopes, which need processes.
set -eu
tab="$(printf '\t')"

send() {
    [ -z "$unit" ] || busctl --quiet call org.freedesktop.systemd1 /org/freedesktop/systemd1 \
        org.freedesktop.systemd1.Manager StartTransientUnit 'ssa(sv)a(sa(sv))' \
        "$unit" replace "$count" "$@" 0
}

unit='' last=''
while IFS="$tab" read -r what name type value; do
    case "$what" in
    unit)
        send "$@"
        unit="$name" last="$name" count=0
        set --
        ;;
    set)
        count=$((count + 1))
        set -- "$@" "$name" "$type"
        # here, arrays have one element
        if [ "$type" = as ]; then set -- "$@" 1; fi
        set -- "$@" "$value"
        ;;
    wait)
        send "$@"
        unit=''
        # there is no better way to learn that the last one's job is done: this joins it
        systemctl start "$last"
        ;;
    esac
done <"$1"
