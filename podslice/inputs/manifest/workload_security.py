"""`securityContext` of containers and of the pod → values."""

from __future__ import annotations

from typing import NamedTuple

from podslice.errors import quote
from podslice.inputs.manifest.workload_fields import Refusals
from podslice.inputs.manifest.workload_models import (
    CapabilityFields,
    PodSecurityFields,
    ProfileFields,
    SecurityFields,
    SELinuxFields,
)
from podslice.model.workload import SECCOMP_ROOT, Security, SELinux

_UNCONFINED = "unconfined"


class SecurityReader(NamedTuple):
    """Reads the security contexts of the containers of one pod."""

    refusals: Refusals
    pod: PodSecurityFields
    pod_path: str

    def read(self, own: SecurityFields | None, path: str) -> Security:
        """Read the context of a container; what it does not state is that of the pod.

        Source: Kubernetes, pkg/securitycontext/util.go, DetermineEffectiveSecurityContext.
        """
        fields = own or SecurityFields()
        user = self.pod.run_as_user if fields.run_as_user is None else fields.run_as_user
        self._check_user(fields, user, path)
        if fields.proc_mount not in (None, "Default", "Unmasked"):
            message = f"unknown value {quote(fields.proc_mount)}"
            self.refusals.error(f"{path}.procMount", message, "write Default or Unmasked")
        capabilities = fields.capabilities or CapabilityFields()
        return Security(
            user=user,
            group=self._group(fields, user, path),
            added=_capabilities(capabilities.add),
            dropped=_capabilities(capabilities.drop),
            read_only_root=bool(fields.read_only_root_filesystem),
            is_privileged=bool(fields.privileged),
            no_new_privileges=fields.allow_privilege_escalation is False,
            unmasked=fields.proc_mount == "Unmasked",
            seccomp=self._profile(
                fields.seccomp_profile,
                self.pod.seccomp_profile,
                f"{SECCOMP_ROOT}/",
                f"{path}.seccompProfile",
            ),
            apparmor=self._profile(
                fields.app_armor_profile,
                self.pod.app_armor_profile,
                "",
                f"{path}.appArmorProfile",
            ),
            selinux=_labels(fields.se_linux_options or self.pod.se_linux_options),
        )

    def _group(self, fields: SecurityFields, user: int | None, path: str) -> int | None:
        own = fields.run_as_group
        group = self.pod.run_as_group if own is None else own
        if group is not None and user is None:
            at = self.pod_path if own is None else path
            reason = "a unit has no group without a user"
            self.refusals.refuse(f"{at}.runAsGroup", reason, "set runAsUser as well")
            return None
        return group

    def _check_user(self, fields: SecurityFields, user: int | None, path: str) -> None:
        own = fields.run_as_non_root
        at = f"{self.pod_path if own is None else path}.runAsNonRoot"
        if not (self.pod.run_as_non_root if own is None else own):
            return
        if user is None:
            reason = "podman does not check the user of an image"
            self.refusals.refuse(at, reason, "set runAsUser as well")
        elif user == 0:
            self.refusals.error(at, "the user is root", "set another runAsUser")

    def _profile(
        self, own: ProfileFields | None, pod: ProfileFields | None, root: str, path: str
    ) -> str | None:
        """Return a profile; None for that of the runtime, which is also podman's default."""
        fields = own or pod
        if fields is None or fields.type in (None, "RuntimeDefault"):
            return None
        if fields.type == "Unconfined":
            return _UNCONFINED
        if fields.type == "Localhost" and fields.localhost_profile:
            return f"{root}{fields.localhost_profile}"
        at = path if own else f"{self.pod_path}.{path.rpartition('.')[2]}"
        if fields.type == "Localhost":
            self.refusals.error(
                f"{at}.localhostProfile", "a profile of type Localhost needs a name"
            )
        else:
            hint = "write RuntimeDefault, Unconfined or Localhost"
            self.refusals.error(f"{at}.type", f"unknown type {quote(fields.type or '')}", hint)
        return None


def _labels(fields: SELinuxFields | None) -> SELinux:
    if fields is None:
        return SELinux()
    return SELinux(
        user=fields.user or "",
        role=fields.role or "",
        type=fields.type or "",
        level=fields.level or "",
    )


def _capabilities(names: list[str] | None) -> tuple[str, ...]:
    """Return names as podman takes them, in any case and with or without CAP_."""
    return tuple(name.upper().removeprefix("CAP_") for name in names or ())
