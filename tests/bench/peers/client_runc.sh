#!/bin/sh
# Makes a container of runc for each bundle, one after the other; runc has no other way.
#
#     client_runc.sh BUNDLES
set -eu
for bundle in "$1"/*/; do
    name="${bundle%/}"
    runc --systemd-cgroup create --bundle "$bundle" "${name##*/}" >/dev/null </dev/null
done
