"""Containers of a pod → their workloads, with their variables and security contexts."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeVar

from podslice.errors import quote
from podslice.features.quadlet.workload import (
    SECCOMP_ROOT,
    Action,
    Claim,
    ContainerWorkload,
    EmptyDir,
    Exec,
    HttpGet,
    Port,
    Probe,
    Protocol,
    Pull,
    Security,
    SELinux,
    Sleep,
    TcpSocket,
    Variable,
    Volume,
    VolumeMount,
)
from podslice.features.quadlet.workload_fields import Refusals
from podslice.features.quadlet.workload_models import (
    CapabilityFields,
    ContainerWorkloadFields,
    EnvFrom,
    EnvVar,
    FieldRef,
    HandlerFields,
    HttpGetFields,
    LifecycleFields,
    MountFields,
    ObjectRef,
    PodSecurityFields,
    PortFields,
    ProbeFields,
    ProfileFields,
    ResourceFieldRef,
    SecurityFields,
    SELinuxFields,
    ValueFrom,
)
from podslice.features.quadlet.workload_volumes import DataObject, DataObjects
from podslice.model.grammar import ARGUMENT, VARIABLE
from podslice.model.pod import ContainerKind, Pod
from podslice.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, is_hugepages

Choice = TypeVar("Choice", bound=StrEnum)
_PROPAGATIONS = ("None", "HostToContainer", "Bidirectional")


class ContainerReader(NamedTuple):
    """Reads the containers of one pod."""

    refusals: Refusals
    environment: EnvironmentReader
    security: SecurityReader
    volumes: Mapping[str, Volume | None]
    """Volumes by name; None for one with an error."""
    host_network: bool

    def read(
        self, entries: Sequence[ContainerWorkloadFields], path: str, *, init: bool
    ) -> Iterator[ContainerWorkload]:
        """Yield the containers of one list."""
        for index, entry in enumerate(entries):
            if entry.name:
                at = f"{path}[{index}]"
                yield self._read(entry, at, self._kind(entry, at, init=init))

    def _kind(self, entry: ContainerWorkloadFields, path: str, *, init: bool) -> ContainerKind:
        policy = entry.restart_policy
        if init and policy == "Always":
            return ContainerKind.SIDECAR
        if policy is not None:
            reason = "a container has the restart policy of its pod"
            self.refusals.refuse(f"{path}.restartPolicy", reason)
        return ContainerKind.INIT if init else ContainerKind.APP

    def _read(
        self, entry: ContainerWorkloadFields, path: str, kind: ContainerKind
    ) -> ContainerWorkload:
        if not entry.image and not self.refusals.has_error(f"{path}.image"):
            self.refusals.error(f"{path}.image", "a container needs an image")
        ports = tuple(self._ports(entry.ports or (), f"{path}.ports"))
        if kind is ContainerKind.INIT:
            self._refuse_for_init(entry, path)
        lifecycle = entry.lifecycle or LifecycleFields()
        return ContainerWorkload(
            name=entry.name or "",
            kind=kind,
            image=entry.image or "",
            command=tuple(entry.command or ()),
            args=tuple(entry.args or ()),
            working_dir=entry.working_dir or "",
            environment=tuple(self.environment.read(entry, path)),
            pull=self._pull(entry, path),
            ports=ports,
            mounts=tuple(self._mounts(entry.volume_mounts or (), f"{path}.volumeMounts")),
            liveness=self._probe(entry.liveness_probe, ports, f"{path}.livenessProbe"),
            readiness=self._probe(entry.readiness_probe, ports, f"{path}.readinessProbe"),
            startup=self._probe(entry.startup_probe, ports, f"{path}.startupProbe"),
            post_start=self._handler(lifecycle.post_start, f"{path}.lifecycle.postStart"),
            pre_stop=self._handler(lifecycle.pre_stop, f"{path}.lifecycle.preStop"),
            stop_signal=lifecycle.stop_signal or "",
            has_terminal=bool(entry.tty),
            security=self.security.read(entry.security_context, f"{path}.securityContext"),
        )

    def _refuse_for_init(self, entry: ContainerWorkloadFields, path: str) -> None:
        """Report what an init container cannot have.

        Source: Kubernetes, pkg/apis/core/validation/validation.go, validateInitContainers.
        """
        for name, value in (
            ("livenessProbe", entry.liveness_probe),
            ("readinessProbe", entry.readiness_probe),
            ("startupProbe", entry.startup_probe),
            ("lifecycle", entry.lifecycle),
        ):
            if value is not None:
                message = "an init container without restartPolicy Always has none"
                self.refusals.error(f"{path}.{name}", message)

    def _pull(self, entry: ContainerWorkloadFields, path: str) -> Pull:
        """Return when to pull: with the tag latest, or without one, always.

        Source: Kubernetes, pkg/apis/core/v1/defaults.go, SetDefaults_Container.
        """
        if entry.image_pull_policy is not None:
            return self._choose(Pull, entry.image_pull_policy, f"{path}.imagePullPolicy")
        name = (entry.image or "").rpartition("/")[2]
        is_latest = "@" not in name and name.partition(":")[2] in ("", "latest")
        return Pull.ALWAYS if is_latest else Pull.IF_NOT_PRESENT

    def _choose(self, choices: type[Choice], value: str, path: str) -> Choice:
        for each in choices:
            if each.value == value:
                return each
        hint = f"write one of {', '.join(choices)}"
        self.refusals.error(path, f"unknown value {quote(value)}", hint)
        return next(iter(choices))

    def _ports(self, entries: Sequence[PortFields], path: str) -> Iterator[Port]:
        for index, entry in enumerate(entries):
            at = f"{path}[{index}]"
            number = entry.container_port or 0
            host = entry.host_port or None
            if self.host_network and host not in (None, number):
                message = "in the host's network it must be the containerPort"
                self.refusals.error(f"{at}.hostPort", message)
            protocol = self._choose(Protocol, entry.protocol or "TCP", f"{at}.protocol")
            yield Port(
                container_port=number,
                name=entry.name or "",
                host_port=host,
                host_ip=entry.host_ip or "",
                protocol=protocol,
            )

    def _mounts(self, entries: Sequence[MountFields], path: str) -> Iterator[VolumeMount]:
        for index, entry in enumerate(entries):
            at = f"{path}[{index}]"
            name = entry.name or ""
            if name not in self.volumes:
                message = f"the pod has no volume {quote(name)}"
                self.refusals.error(f"{at}.name", message)
                continue
            normal = posixpath.normpath(entry.sub_path or "")
            sub_path = "" if normal == "." else normal  # empty for the whole volume
            propagation = entry.mount_propagation or "None"
            if propagation not in _PROPAGATIONS:
                hint = f"write one of {', '.join(_PROPAGATIONS)}"
                message = f"unknown value {quote(propagation)}"
                self.refusals.error(f"{at}.mountPropagation", message, hint)
            elif propagation != "None" and sub_path and _is_podmans(self.volumes[name]):
                reason = "podman has no propagation for a part of a volume"
                self.refusals.refuse(f"{at}.mountPropagation", reason)
            yield VolumeMount(
                volume=name,
                path=entry.mount_path or "",
                read_only=bool(entry.read_only),
                sub_path=sub_path,
                propagation=propagation,
            )

    def _probe(self, fields: ProbeFields | None, ports: Sequence[Port], path: str) -> Probe | None:
        """Read a probe; a value of 0 stands for the default.

        Source: Kubernetes, pkg/apis/core/v1/defaults.go, SetDefaults_Probe.
        """
        action = self._action(fields, ports, path) if fields else None
        if fields is None or action is None:
            return None
        return Probe(
            action=action,
            initial_delay_sec=fields.initial_delay_seconds or 0,
            period_sec=fields.period_seconds or 10,
            timeout_sec=fields.timeout_seconds or 1,
            success_threshold=fields.success_threshold or 1,
            failure_threshold=fields.failure_threshold or 3,
        )

    def _action(self, fields: ProbeFields, ports: Sequence[Port], path: str) -> Action | None:
        if fields.exec is not None and fields.exec.command:
            return Exec(command=tuple(fields.exec.command))
        if fields.http_get is not None:
            return self._http_get(fields.http_get, ports, f"{path}.httpGet")
        if fields.tcp_socket is not None:
            port = self._resolve(fields.tcp_socket.port, ports, f"{path}.tcpSocket.port")
            return TcpSocket(port=port, host=fields.tcp_socket.host or "")
        # another action is refused with its name
        if fields.exec is not None or not _has_other_action(self.refusals, path):
            self.refusals.error(path, "a probe needs an action", "add exec, httpGet or tcpSocket")
        return None

    def _http_get(self, fields: HttpGetFields, ports: Sequence[Port], path: str) -> HttpGet:
        where, scheme = fields.path or "/", (fields.scheme or "HTTP").upper()
        if scheme not in ("HTTP", "HTTPS"):
            message = f"unknown scheme {quote(fields.scheme or '')}"
            self.refusals.error(f"{path}.scheme", message, "write HTTP or HTTPS")
        return HttpGet(
            port=self._resolve(fields.port, ports, f"{path}.port"),
            path=where if where.startswith("/") else f"/{where}",
            scheme=scheme,
            host=fields.host or "",
            headers=tuple(
                (each.name or "", each.value or "") for each in fields.http_headers or ()
            ),
        )

    def _resolve(self, port: int | str | None, ports: Sequence[Port], path: str) -> int:
        if isinstance(port, str):
            for each in ports:
                if each.name == port:
                    return each.container_port
            self.refusals.error(path, f"the container has no port {quote(port)}")
            return 0
        return port or 0

    def _handler(self, fields: HandlerFields | None, path: str) -> Exec | Sleep | None:
        if fields is None:
            return None
        if fields.exec is not None and fields.exec.command:
            return Exec(command=tuple(fields.exec.command))
        if fields.sleep is not None:
            return Sleep(seconds=fields.sleep.seconds or 0)
        if not _has_other_action(self.refusals, path):
            self.refusals.error(path, "it needs an action", "add exec or sleep")
        return None


def _is_podmans(volume: Volume | None) -> bool:
    """Return whether podman holds a volume."""
    return isinstance(volume, Claim) or (isinstance(volume, EmptyDir) and not volume.in_memory)


def _has_other_action(refusals: Refusals, path: str) -> bool:
    """Return whether an action below a path has been refused."""
    return any(each.where.startswith(f"{refusals.where}: {path}.") for each in refusals.found)


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
                fields.seccomp_profile, self.pod.seccomp_profile, f"{SECCOMP_ROOT}/", path
            ),
            apparmor=self._profile(fields.app_armor_profile, self.pod.app_armor_profile, "", path),
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
        name = "seccompProfile" if root else "appArmorProfile"
        at = f"{path if own else self.pod_path}.{name}"
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


_ONE = 1000
"""The divisor where none is stated, in thousandths."""
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")
"""Source: Kubernetes, pkg/fieldpath/fieldpath.go, SplitMaybeSubscriptedPath."""
_KNOWN = "metadata.name, namespace and uid, and single labels and annotations"


class EnvironmentReader(NamedTuple):
    """Reads the variables of the containers of one pod."""

    refusals: Refusals
    objects: DataObjects
    pod: Pod
    metadata: object
    """The mapping with the pod's labels and annotations."""

    def read(self, container: ContainerWorkloadFields, path: str) -> Iterator[Variable]:
        """Yield the variables: those of whole objects first.

        Source: Kubernetes, pkg/kubelet/kubelet_pods.go, makeEnvironmentVariables.
        """
        for index, each in enumerate(container.env_from or ()):
            yield from self._read_all(each, f"{path}.envFrom[{index}]")
        for index, variable in enumerate(container.env or ()):
            yield from self._read_one(variable, container.name or "", f"{path}.env[{index}]")

    def _read_all(self, fields: EnvFrom, path: str) -> Iterator[Variable]:
        for kind, ref, name in (
            ("ConfigMap", fields.config_map_ref, "configMapRef"),
            ("Secret", fields.secret_ref, "secretRef"),
        ):
            found = None if ref is None else self._find(kind, ref, f"{path}.{name}")
            for key in sorted(found.values) if found else ():
                full = f"{fields.prefix or ''}{key}"
                if VARIABLE.matches(full) and found:
                    yield from self._from(found, key, full, path)

    def _read_one(self, fields: EnvVar, container: str, path: str) -> Iterator[Variable]:
        name = fields.name or ""
        if fields.value_from is not None:
            value = self._reference(fields.value_from, container, f"{path}.valueFrom")
            if value is not None and not ARGUMENT.matches(value):
                message = f"the value is not {ARGUMENT.name}"
                self.refusals.error(f"{path}.valueFrom", message, ARGUMENT.form)
            elif value is not None:
                yield Variable(name=name, value=value, is_literal=True)
            yield from self._read_key(name, fields.value_from, f"{path}.valueFrom")
        else:
            yield Variable(name=name, value=fields.value or "")

    def _reference(self, fields: ValueFrom, container: str, path: str) -> str | None:
        """Return what a reference to the pod itself states; None if there is none."""
        if fields.field_ref is not None:
            return self._read_field(fields.field_ref, f"{path}.fieldRef")
        if fields.resource_field_ref is not None:
            ref, at = fields.resource_field_ref, f"{path}.resourceFieldRef"
            return self._read_resource(ref, container, at)
        return None

    def _read_key(self, name: str, fields: ValueFrom, path: str) -> Iterator[Variable]:
        for kind, ref, of in (
            ("ConfigMap", fields.config_map_key_ref, "configMapKeyRef"),
            ("Secret", fields.secret_key_ref, "secretKeyRef"),
        ):
            found = None if ref is None else self._find(kind, ref, f"{path}.{of}")
            if found is None or ref is None:
                continue
            if ref.key in found.values:
                yield from self._from(found, ref.key or "", name, path)
            elif not ref.optional:
                message = f"there is no key {quote(ref.key or '')} in {found.where}"
                self.refusals.error(f"{path}.{of}.key", message)

    def _find(self, kind: str, ref: ObjectRef, path: str) -> DataObject | None:
        found = self.objects.get((kind, self.pod.namespace, ref.name or ""))
        if found is None and not ref.optional:
            message = f"there is no {kind} {quote(ref.name or '')} in the files"
            self.refusals.error(path, message, "add it with another -f")
        return found

    def _from(self, found: DataObject, key: str, name: str, path: str) -> Iterator[Variable]:
        value = found.values[key].decode(errors="surrogateescape")
        if not ARGUMENT.matches(value):
            self.refusals.error(
                path, f"the value of {quote(key)} is not {ARGUMENT.name}", "mount it as a file"
            )
            return
        if found.is_secret and "\n" in value:
            reason = f"a secret variable has one line only, and {quote(key)} has several"
            self.refusals.refuse(path, reason, "mount it as a file")
            return
        yield Variable(name=name, value=value, is_literal=True, is_secret=found.is_secret)

    def _read_field(self, ref: FieldRef, path: str) -> str | None:
        """Return the value of a field of the pod; None with a refusal.

        A label that the pod does not have is empty.

        Source: Kubernetes, pkg/fieldpath/fieldpath.go, ExtractFieldPathAsString.
        """
        pod, stated = self.pod, ref.field_path or ""
        own = {
            "metadata.name": pod.name,
            "metadata.namespace": pod.namespace,
            "metadata.uid": pod.uid,
        }
        if stated in own:
            return own[stated]
        if found := _SUBSCRIPT.fullmatch(stated):
            of_kind = self.metadata.get(found[1]) if isinstance(self.metadata, Mapping) else None
            value = of_kind.get(found[2]) if isinstance(of_kind, Mapping) else None
            return value if isinstance(value, str) else ""
        reason = f"{quote(stated)} is not known before the pod runs"
        self.refusals.refuse(path, reason, f"podslice knows {_KNOWN}")
        return None

    def _read_resource(self, ref: ResourceFieldRef, container: str, path: str) -> str | None:
        """Return an amount of a container, divided and rounded up; None with a problem.

        Source: Kubernetes, pkg/api/v1/resource/helpers.go, ExtractContainerResourceValue.
        """
        name = ref.container_name or container
        holder = next((each for each in self.pod.containers if each.name == name), None)
        if holder is None:
            message = f"the pod has no container {quote(name)}"
            self.refusals.error(f"{path}.containerName", message)
            return None
        part, _, resource = (ref.resource or "").partition(".")
        is_known = resource in (CPU, MEMORY, EPHEMERAL_STORAGE) or is_hugepages(resource)
        if part not in ("limits", "requests") or not is_known:
            message = f"unknown resource {quote(ref.resource or '')}"
            self.refusals.error(f"{path}.resource", message, "write limits.memory, for example")
            return None
        # a request is the limit where none is stated, and otherwise 0
        amount = limit = holder.resources.limits.get(resource)
        if part == "requests":
            amount = holder.resources.requests.get(resource, limit or 0)
        if amount is None:
            reason = f"container {name} has no limit of {resource}, and the node's is not known"
            self.refusals.refuse(path, reason, "state a limit")
            return None
        return str(-(-amount // (ref.divisor or _ONE)))
