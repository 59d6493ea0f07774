"""The content of the image: packages, files and links. Data only; a change here makes a new image."""

DEFAULT_SUITE = "trixie"
SUITES = ("trixie", "bookworm", "forky")
# systemd 258 and later refuse to start on cgroup v1
UNIFIED_SUITES = frozenset({"forky"})
KERNEL_PACKAGE = "linux-image-cloud-amd64"
USER_NAME, USER_ID = "lab", 1000


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# busybox-static: the initrd, and root directories for containers
PACKAGES = words(
    """
    busybox-static dbus dbus-user-session iproute2 kmod libpam-systemd procps python3
    python3-dbus-next python3-h11 python3-h2 python3-prometheus-client python3-pydantic
    python3-pytest python3-pytest-asyncio python3-rich python3-typer python3-yaml systemd-sysv
    udev
    """
)

# imported once into the agent, so that its forks start at once; missing modules are ignored
PRELOADED_MODULES = words(
    """
    asyncio subprocess json tomllib yaml pydantic.main pydantic.fields pydantic.types
    pydantic.functional_validators pydantic.type_adapter pydantic._internal._generate_schema
    pydantic._internal._validators typer.main typer.completion typer.rich_utils rich.console
    rich.live rich.progress rich.table rich.traceback dbus_next.aio h11 prometheus_client pytest
    _pytest.assertion.rewrite pytest_asyncio.plugin
    """
)

SOURCE_DIR = "/src"

# units that cost boot time in a slow machine and that no test uses
MASKED_UNITS = words(
    """
    apt-daily-upgrade.timer apt-daily.timer console-getty.service dev-hugepages.mount
    dev-mqueue.mount dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer
    getty-static.service getty@tty1.service kmod-static-nodes.service ldconfig.service
    modprobe@.service serial-getty@ttyS0.service sys-fs-fuse-connections.mount
    sys-kernel-config.mount sys-kernel-debug.mount sys-kernel-tracing.mount systemd-binfmt.service
    systemd-hwdb-update.service systemd-pcrphase-sysinit.service systemd-pcrphase.service
    systemd-random-seed.service systemd-timesyncd.service systemd-update-utmp-runlevel.service
    systemd-update-utmp.service
    """
)

FILES = {
    "etc/hostname": "podlab\n",
    "etc/hosts": "127.0.0.1 localhost podlab\n",
    "etc/fstab": "",
    "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
    # the agent's port in a virtual machine
    "etc/modules-load.d/lab.conf": "virtio_console\n",
    "etc/systemd/journald.conf.d/lab.conf": (
        "[Journal]\nStorage=volatile\nRateLimitIntervalSec=0\nReadKMsg=yes\n"
    ),
    "etc/systemd/system.conf.d/lab.conf": (
        "[Manager]\nDefaultTimeoutStartSec=300s\nDefaultDeviceTimeoutSec=300s\n"
    ),
    # all devices take seconds without hardware virtualisation; only these matter
    "etc/systemd/system/systemd-udev-trigger.service.d/lab.conf": (
        "[Service]\nExecStart=\n"
        "ExecStart=-udevadm trigger --type=devices --action=add --subsystem-match=block"
        " --subsystem-match=net --sysname-match=vd* --sysname-match=lo --sysname-match=eth*\n"
    ),
}

LINKS = {
    "etc/systemd/system/default.target": "/lib/systemd/system/multi-user.target",
    "etc/systemd/system/multi-user.target.wants/podlab-agent.service": "../podlab-agent.service",
    **{f"etc/systemd/system/{unit}": "/dev/null" for unit in MASKED_UNITS},
}

# modules of the initrd, where the kernel does not have them built in
BOOT_MODULES = ("virtio_pci", "virtio_blk", "crc32c_generic", "ext4")

INIT_SCRIPT = """\
#!/bin/sh
mount -t devtmpfs dev /dev
mount -t proc proc /proc
for module in {modules}; do insmod /lib/$module 2>/dev/null; done
tries=0
while [ ! -b /dev/vda ] && [ $tries -lt 400 ]; do sleep 0.05; tries=$((tries+1)); done
mount -t ext4 -o rw,noatime /dev/vda /new || exec sh
mount --move /dev /new/dev
umount /proc
exec switch_root /new /sbin/init
"""
