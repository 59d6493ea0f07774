"""A real systemd to test against: in namespaces of this host, or in a virtual machine.

`python3 -m tests.lab --help` lists the commands. `machine` has the interface of all machines:
`namespace` (native speed), `vm` (cgroup v2, OOM, pressure, reboot), and `local`, the present one.
"""
