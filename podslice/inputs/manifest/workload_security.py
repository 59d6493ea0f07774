"""`securityContext` of containers and of the pod → values."""

from __future__ import annotations

from podslice.imports import quick_models
from podslice.inputs.manifest.workload_fields import Refusals
from podslice.inputs.scalars import quote
from podslice.model.workload import Security, SELinux

with quick_models():
    from podslice.inputs.manifest.workload_models import (
        CapabilityFields,
        PodSecurityFields,
        ProfileFields,
        SecurityFields,
        SELinuxFields,
    )

SECCOMP_ROOT = "/var/lib/kubelet/seccomp"
"""Where a profile of type Localhost is, as for `podman kube play`.

Source: podman-kube-play(1), --seccomp-profile-root; Kubernetes, "Seccomp and Kubernetes".
"""
_UNCONFINED = "unconfined"


def read_security(
    own: SecurityFields | None, pod: PodSecurityFields, refusals: Refusals, path: str, pod_path: str
) -> Security:
    """Read the context of a container; what it does not state is that of the pod.

    Source: Kubernetes, pkg/securitycontext/util.go, DetermineEffectiveSecurityContext.
    """
    fields = own or SecurityFields()
    user = pod.run_as_user if fields.run_as_user is None else fields.run_as_user
    group = pod.run_as_group if fields.run_as_group is None else fields.run_as_group
    _check_user(fields, pod, user, group, refusals, path, pod_path)
    capabilities = fields.capabilities or CapabilityFields()
    labels = fields.se_linux_options or pod.se_linux_options or SELinuxFields()
    at_seccomp = path if fields.seccomp_profile else pod_path
    at_apparmor = path if fields.app_armor_profile else pod_path
    return Security(
        user=user,
        group=group if user is not None else None,
        added=_capabilities(capabilities.add),
        dropped=_capabilities(capabilities.drop),
        read_only_root=bool(fields.read_only_root_filesystem),
        is_privileged=bool(fields.privileged),
        no_new_privileges=fields.allow_privilege_escalation is False,
        unmasked=fields.proc_mount == "Unmasked",
        seccomp=_profile(
            fields.seccomp_profile or pod.seccomp_profile,
            f"{SECCOMP_ROOT}/",
            refusals,
            f"{at_seccomp}.seccompProfile",
        ),
        apparmor=_profile(
            fields.app_armor_profile or pod.app_armor_profile,
            "",
            refusals,
            f"{at_apparmor}.appArmorProfile",
        ),
        selinux=SELinux(
            user=labels.user or "",
            role=labels.role or "",
            type=labels.type or "",
            level=labels.level or "",
        ),
    )


def _check_user(
    fields: SecurityFields,
    pod: PodSecurityFields,
    user: int | None,
    group: int | None,
    refusals: Refusals,
    path: str,
    pod_path: str,
) -> None:
    if user is None and group is not None:
        at = path if fields.run_as_group is not None else pod_path
        refusals.refuse(
            f"{at}.runAsGroup", "a unit has no group without a user", "set runAsUser as well"
        )
    non_root = pod.run_as_non_root if fields.run_as_non_root is None else fields.run_as_non_root
    at = path if fields.run_as_non_root is not None else pod_path
    if non_root and user is None:
        reason = "podman does not check the user of an image"
        refusals.refuse(f"{at}.runAsNonRoot", reason, "set runAsUser as well")
    elif non_root and user == 0:
        refusals.error(f"{at}.runAsNonRoot", "the user is root", "set another runAsUser")


def _capabilities(names: list[str] | None) -> tuple[str, ...]:
    """Return names as podman takes them, in any case and with or without CAP_."""
    return tuple(name.upper().removeprefix("CAP_") for name in names or ())


def _profile(
    fields: ProfileFields | None, root: str, refusals: Refusals, path: str
) -> str | None:
    """Return a profile; None for that of the runtime, which is also podman's default."""
    if fields is None or fields.type in (None, "RuntimeDefault"):
        return None
    if fields.type == "Unconfined":
        return _UNCONFINED
    if fields.type == "Localhost" and fields.localhost_profile:
        return f"{root}{fields.localhost_profile}"
    if fields.type == "Localhost":
        refusals.error(f"{path}.localhostProfile", "a profile of type Localhost needs a name")
    else:
        hint = "write RuntimeDefault, Unconfined or Localhost"
        refusals.error(f"{path}.type", f"unknown type {quote(fields.type or '')}", hint)
    return None
