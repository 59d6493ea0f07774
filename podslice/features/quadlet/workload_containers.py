"""Containers of manifests → their workloads, and the report of each field that no service keeps.

`inputs.manifest.fields` has every field, and whether a service keeps it. A field that none keeps is
refused with its place and the reason, never dropped silently. The caller may ignore refused fields by
name; they are then warnings.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from podslice.errors import quote, warning
from podslice.features.quadlet.data import DataObject, DataObjects, explain_absence
from podslice.features.quadlet.unit_text import later
from podslice.features.quadlet.workload import (
    SECCOMP_ROOT,
    Action,
    ContainerWorkload,
    Exec,
    Grpc,
    HttpGet,
    Port,
    Probe,
    ProbeKind,
    Protocol,
    Pull,
    Restart,
    Security,
    Sleep,
    TcpSocket,
    Variable,
    Volume,
    VolumeMount,
    is_podmans,
)
from podslice.inputs.manifest.podspec import container_kind
from podslice.inputs.manifest.reading import Fields, Problems, Refused, entries_of, unstated
from podslice.model.grammar import ARGUMENT, VARIABLE
from podslice.model.pod import ContainerKind, Pod
from podslice.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, is_hugepages

_INDEX = re.compile(r"\[[^]]*\]")

_NOT_ON_LINUX = ("containers run on Linux", "")
_NO_CLUSTER = ("there is no cluster domain", "write the name into hostname")
_OF_CONTROLLER = ("it belongs to a controller of a cluster", "")
REASONS = {
    **dict.fromkeys(("DeploymentSpec", "JobSpec", "StatefulSetSpec"), _OF_CONTROLLER),
    "Probe.terminationGracePeriodSeconds": (
        "a probe has no grace period of its own",
        "set it for the pod",
    ),
    "LifecycleHandler.httpGet": ("requests to a container are made by probes only", "use exec"),
    "PodSpec.activeDeadlineSeconds": ("podman has no deadline for a pod", ""),
    "PodSpec.ephemeralContainers": ("they are only added to running pods", ""),
    "PodSpec.imagePullSecrets": ("podman reads credentials from its own file", "use podman login"),
    "PodSpec.runtimeClassName": (
        "podman has one runtime for all pods",
        "set it in containers.conf",
    ),
    "PodSpec.setHostnameAsFQDN": _NO_CLUSTER,
    "PodSpec.subdomain": _NO_CLUSTER,
    "PodSpec.resourceClaims": ("there is no driver for them", ""),
    "PodSecurityContext.windowsOptions": _NOT_ON_LINUX,
    "SecurityContext.windowsOptions": _NOT_ON_LINUX,
    "Volume": ("podslice mounts no storage", "mount it on the host, and use a hostPath"),
    "Volume.downwardAPI": ("files with fields of the pod are not written", "use variables"),
    "Volume.ephemeral": ("a claim does not end with its pod", "use an emptyDir"),
    "Volume.gitRepo": (
        "the kubelet, too, has no driver for it since 1.33",
        "clone it in an init container, into an emptyDir",
    ),
    "Volume.image": ("images are not mounted", "copy its files in an init container"),
    "VolumeMount.subPathExpr": ("variables in paths are not expanded", "use subPath"),
    "VolumeMount.recursiveReadOnly": ("podman has no such mounts in units", ""),
    "Container.volumeDevices": (
        "block devices are not passed on",
        "mount a hostPath of type BlockDevice",
    ),
    "Container.stdin": ("a service has no input", ""),
    "Container.restartPolicyRules": (
        "systemd has no rules for single exit codes of a container",
        "",
    ),
    "PersistentVolumeClaimSpec.dataSource": ("a volume of podman begins empty", ""),
    "PersistentVolumeClaimSpec.dataSourceRef": ("a volume of podman begins empty", ""),
}
"""Row of the table of fields, or its type → why it cannot be kept, and what to write instead."""


def reason_of(field: str) -> tuple[str, str]:
    """Return why a field, as `Probe.grpc`, cannot be kept, and what to write instead."""
    of_type = REASONS.get(field.partition(".")[0], ("quadlets cannot keep it", ""))
    return REASONS.get(field, of_type)


@dataclass
class Refusals(Problems):
    """The problems of one pod's workload, as they are found."""

    ignored: frozenset[str] = frozenset()
    """Fields that the caller gives up: `subdomain`, `preStop.httpGet`, or a whole place."""
    known: frozenset[str] = frozenset()
    """The places of the pod's own problems."""
    used: set[str] = field(default_factory=set)
    """Those of `ignored` that a field has matched."""

    def refuse(self, path: str, reason: str, hint: str = "") -> None:
        """Add the refusal of a field that cannot be kept; a warning if it is to be ignored."""
        name = _INDEX.sub("", path)
        matched = {each for each in self.ignored if each == path or f".{name}".endswith(f".{each}")}
        if matched:
            self.used |= matched
            self.found.append(warning(self.at(path), f"is ignored, as requested: {reason}"))
            return
        more = f"continue without it: --ignore {_short(name)}"
        self.error(path, f"cannot be kept: {reason}", f"{hint}, or {more}" if hint else more)

    def refuse_all(self, refused: Iterable[Refused]) -> None:
        """Add the refusals of fields."""
        for each in refused:
            self.refuse(each.path, *reason_of(each.field))

    def choose(self, choices: type[Choice], value: str, path: str) -> Choice:
        """Return one of the choices; the first one with an error."""
        known = tuple(choices)
        return choices(value) if self.check(path, value, known) else known[0]

    def has_error(self, *paths: str) -> bool:
        """Return whether one of the paths has a problem, of the pod or of its workload."""
        places = {self.at(path) for path in paths}
        return not places.isdisjoint((*self.known, *(each.where for each in self.found)))


def _short(name: str) -> str:
    """Return the shortest name by which a field can be ignored; it is never that of another one."""
    *_, parent, last = ["", *name.split(".")]
    return f"{parent}.{last}" if parent in ("postStart", "preStop", "emptyDir") else last


Choice = TypeVar("Choice", bound=StrEnum)
_PROPAGATIONS = ("None", "HostToContainer", "Bidirectional")
_PROFILES = ("RuntimeDefault", "Unconfined", "Localhost")
_UNCONFINED = "unconfined"
_ONE = 1000
"""The divisor where none is stated, in thousandths."""
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")
"""Source: Kubernetes, pkg/fieldpath/fieldpath.go, SplitMaybeSubscriptedPath."""
_KNOWN = (
    "metadata.name, namespace or uid, a label or an annotation, spec.nodeName or serviceAccountName,"
    " status.hostIP or podIP"
)


class ContainerReader(NamedTuple):
    """Reads the containers of one pod."""

    refusals: Refusals
    objects: DataObjects
    pod: Pod
    metadata: Mapping[str, object]
    """The mapping with the pod's labels and annotations."""
    security: Fields
    """The security context of the pod."""
    volumes: Mapping[str, Volume | None]
    """Volumes by name; None for one with an error."""
    spec: Fields
    restart: Restart
    """The restart policy of the pod."""
    is_job: bool

    def read(
        self, containers: Iterable[Fields | None] | None, path: str, *, init: bool
    ) -> Iterator[ContainerWorkload]:
        """Yield the containers of one list."""
        for entry, at in entries_of(containers, path):
            if entry["name"]:
                yield self._read_container(entry, at, container_kind(entry, is_init=init))

    def _read_container(self, entry: Fields, path: str, kind: ContainerKind) -> ContainerWorkload:
        if not entry["image"] and not self.refusals.has_error(f"{path}.image"):
            self.refusals.error(f"{path}.image", "a container needs an image")
        ports = tuple(self._ports(entry["ports"], f"{path}.ports"))
        if kind is ContainerKind.INIT:
            # Source: Kubernetes, pkg/apis/core/validation/validation.go, validateInitContainers.
            for name in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"):
                if entry[name] is not None:
                    message = "an init container without restartPolicy Always has none"
                    self.refusals.error(f"{path}.{name}", message)
        lifecycle = entry["lifecycle"] or unstated("Lifecycle")
        return ContainerWorkload(
            name=entry["name"],
            kind=kind,
            image=entry["image"] or "",
            fields=entry,
            environment=tuple(self._variables(entry, path)),
            pull=self._pull(entry, path),
            ports=ports,
            mounts=tuple(self._mounts(entry["volumeMounts"], f"{path}.volumeMounts")),
            probes=self._probes(entry, ports, path),
            post_start=self._handler(lifecycle["postStart"], f"{path}.lifecycle.postStart"),
            pre_stop=self._handler(lifecycle["preStop"], f"{path}.lifecycle.preStop"),
            stop_signal=lifecycle["stopSignal"] or "",
            security=self._security(entry["securityContext"], f"{path}.securityContext"),
            restart=self._restart(entry, path, kind),
        )

    def _restart(self, entry: Fields, path: str, kind: ContainerKind) -> Restart:
        """Return the restart policy of a container, which defaults to the restart policy of the pod."""
        at, stated = f"{path}.restartPolicy", entry["restartPolicy"]
        if stated is None:
            return self.restart
        if self.is_job and kind is not ContainerKind.SIDECAR:
            self.refusals.refuse(at, "the containers of a Job have the restart policy of its pod")
            return self.restart
        return self.refusals.choose(Restart, stated, at)

    def _pull(self, entry: Fields, path: str) -> Pull:
        """Return when to pull: with the tag latest, or without one, always.

        Source: Kubernetes, pkg/apis/core/v1/defaults.go, SetDefaults_Container.
        """
        if entry["imagePullPolicy"] is not None:
            return self.refusals.choose(Pull, entry["imagePullPolicy"], f"{path}.imagePullPolicy")
        name = (entry["image"] or "").rpartition("/")[2]
        is_latest = "@" not in name and name.partition(":")[2] in ("", "latest")
        return Pull.ALWAYS if is_latest else Pull.IF_NOT_PRESENT

    def _ports(self, ports: Iterable[Fields | None] | None, path: str) -> Iterator[Port]:
        for entry, at in entries_of(ports, path):
            number, host = entry["containerPort"] or 0, entry["hostPort"] or None
            if self.spec["hostNetwork"] and host not in (None, number):
                message = "in the host's network it must be the containerPort"
                self.refusals.error(f"{at}.hostPort", message)
            protocol = self.refusals.choose(Protocol, entry["protocol"] or "TCP", f"{at}.protocol")
            yield Port(
                container_port=number,
                name=entry["name"] or "",
                host_port=host,
                host_ip=entry["hostIP"] or "",
                protocol=protocol,
            )

    def _mounts(self, mounts: Iterable[Fields | None] | None, path: str) -> Iterator[VolumeMount]:
        for entry, at in entries_of(mounts, path):
            name = entry["name"] or ""
            if name not in self.volumes:
                message = f"the pod has no volume {quote(name)}"
                self.refusals.error(f"{at}.name", message)
                continue
            normal = posixpath.normpath(entry["subPath"] or "")
            sub_path = "" if normal == "." else normal  # empty for the whole volume
            propagation = entry["mountPropagation"] or "None"
            is_known = self.refusals.check(f"{at}.mountPropagation", propagation, _PROPAGATIONS)
            if is_known and propagation != "None" and sub_path and is_podmans(self.volumes[name]):
                reason = "podman has no propagation for a part of a volume"
                self.refusals.refuse(f"{at}.mountPropagation", reason)
            yield VolumeMount(
                volume=name,
                path=entry["mountPath"] or "",
                read_only=bool(entry["readOnly"]),
                sub_path=sub_path,
                propagation=propagation,
            )

    def _probes(self, entry: Fields, ports: Sequence[Port], path: str) -> dict[ProbeKind, Probe]:
        """Read the probes of a container; a value of 0 stands for the default.

        Source: Kubernetes, pkg/apis/core/v1/defaults.go, SetDefaults_Probe.
        """
        probes = {}
        for kind in (ProbeKind.LIVENESS, ProbeKind.READINESS, ProbeKind.STARTUP):
            fields = entry[f"{kind}Probe"]
            action = self._action(fields, ports, f"{path}.{kind}Probe") if fields else None
            if action is not None:
                probes[kind] = Probe(
                    action=action,
                    initial_delay_sec=fields["initialDelaySeconds"] or 0,
                    period_sec=fields["periodSeconds"] or 10,
                    timeout_sec=fields["timeoutSeconds"] or 1,
                    success_threshold=fields["successThreshold"] or 1,
                    failure_threshold=fields["failureThreshold"] or 3,
                )
        return probes

    def _action(self, fields: Fields, ports: Sequence[Port], path: str) -> Action | None:
        if fields["exec"] is not None and fields["exec"]["command"]:
            return Exec(command=tuple(fields["exec"]["command"]))
        if fields["httpGet"] is not None:
            return self._http_get(fields["httpGet"], ports, f"{path}.httpGet")
        if fields["tcpSocket"] is not None:
            port = self._resolve(fields["tcpSocket"]["port"], ports, f"{path}.tcpSocket.port")
            return TcpSocket(port=port, host=fields["tcpSocket"]["host"] or "")
        if (grpc := fields["grpc"]) is not None:
            return Grpc(port=grpc["port"] or 0, service=grpc["service"] or "")
        # another action is refused with its name
        if fields["exec"] is not None or not self._has_other_action(path):
            self.refusals.error(
                path, "a probe needs an action", "add exec, httpGet, tcpSocket or grpc"
            )
        return None

    def _http_get(self, fields: Fields, ports: Sequence[Port], path: str) -> HttpGet:
        where, scheme = fields["path"] or "/", (fields["scheme"] or "HTTP").upper()
        self.refusals.check(f"{path}.scheme", scheme, ("HTTP", "HTTPS"))
        headers = entries_of(fields["httpHeaders"], path)
        return HttpGet(
            port=self._resolve(fields["port"], ports, f"{path}.port"),
            path=where if where.startswith("/") else f"/{where}",
            scheme=scheme,
            host=fields["host"] or "",
            headers=tuple((each["name"] or "", each["value"] or "") for each, _ in headers),
        )

    def _resolve(self, port: int | str | None, ports: Sequence[Port], path: str) -> int:
        if isinstance(port, str):
            for each in ports:
                if each.name == port:
                    return each.container_port
            self.refusals.error(path, f"the container has no port {quote(port)}")
            return 0
        return port or 0

    def _handler(self, fields: Fields | None, path: str) -> Exec | Sleep | None:
        if fields is None:
            return None
        if fields["exec"] is not None and fields["exec"]["command"]:
            return Exec(command=tuple(fields["exec"]["command"]))
        if fields["sleep"] is not None:
            return Sleep(seconds=fields["sleep"]["seconds"] or 0)
        if not self._has_other_action(path):
            self.refusals.error(path, "it needs an action", "add exec or sleep")
        return None

    def _has_other_action(self, path: str) -> bool:
        """Return whether an action below a path has been refused."""
        below = f"{self.refusals.at(path)}."
        return any(each.where.startswith(below) for each in self.refusals.found)

    def _security(self, own: Fields | None, path: str) -> Security:
        """Read the context of a container; what it does not state is that of the pod.

        Source: Kubernetes, pkg/securitycontext/util.go, DetermineEffectiveSecurityContext.
        """
        fields = own or unstated("SecurityContext")
        user, _ = self._effective(fields, "runAsUser", path)
        group, at_group = self._effective(fields, "runAsGroup", path)
        non_root, at_non_root = self._effective(fields, "runAsNonRoot", path)
        labels, _ = self._effective(fields, "seLinuxOptions", path)
        capabilities = fields["capabilities"] or unstated("Capabilities")
        self.refusals.check(f"{path}.procMount", fields["procMount"], ("Default", "Unmasked"))
        if group is not None and user is None:
            reason = "a unit has no group without a user"
            self.refusals.refuse(at_group, reason, "set runAsUser as well")
            group = None
        if non_root and user == 0:
            self.refusals.error(at_non_root, "the user is root", "set another runAsUser")
        return Security(
            user=user,
            group=group,
            is_image_checked=bool(non_root) and user is None,
            added=_capabilities(capabilities["add"]),
            dropped=_capabilities(capabilities["drop"]),
            read_only_root=bool(fields["readOnlyRootFilesystem"]),
            is_privileged=bool(fields["privileged"]),
            no_new_privileges=fields["allowPrivilegeEscalation"] is False,
            unmasked=fields["procMount"] == "Unmasked",
            seccomp=self._profile(fields, "seccompProfile", f"{SECCOMP_ROOT}/", path),
            apparmor=self._profile(fields, "appArmorProfile", "", path),
            selinux={part: label for part, label in (labels or {}).items() if label},
        )

    def _effective(self, own: Fields, name: str, path: str) -> tuple[Any, str]:
        """Return a field of the container's context, or else of the pod's, with its path."""
        if own[name] is None:
            return self.security[name], f"{self.pod.spec_where}.securityContext.{name}"
        return own[name], f"{path}.{name}"

    def _profile(self, own: Fields, name: str, root: str, path: str) -> str | None:
        """Return a profile; None for that of the runtime, which is also podman's default."""
        fields, at = self._effective(own, name, path)
        if fields is None or fields["type"] in (None, "RuntimeDefault"):
            return None
        if fields["type"] == "Unconfined":
            return _UNCONFINED
        if fields["type"] == "Localhost" and fields["localhostProfile"]:
            return f"{root}{fields['localhostProfile']}"
        if self.refusals.check(f"{at}.type", fields["type"], _PROFILES):
            message = "a profile of type Localhost needs a name"
            self.refusals.error(f"{at}.localhostProfile", message)
        return None

    def _variables(self, container: Fields, path: str) -> Iterator[Variable]:
        """Yield the variables: those of whole objects first.

        Source: Kubernetes, pkg/kubelet/kubelet_pods.go, makeEnvironmentVariables.
        """
        for source, at in entries_of(container["envFrom"], f"{path}.envFrom"):
            for kind, name in (("ConfigMap", "configMapRef"), ("Secret", "secretRef")):
                found = self._find(kind, source[name], f"{at}.{name}")
                for key in sorted(found.values) if found else ():
                    full = f"{source['prefix'] or ''}{key}"
                    if VARIABLE.matches(full) and found:
                        yield from self._value_of(found, key, full, at)
        for variable, at in entries_of(container["env"], f"{path}.env"):
            name, source = variable["name"] or "", variable["valueFrom"]
            if source is None:
                yield Variable(name=name, value=variable["value"] or "")
            else:
                yield from self._value_from(name, source, container["name"], f"{at}.valueFrom")

    def _value_from(
        self, name: str, source: Fields, container: str, path: str
    ) -> Iterator[Variable]:
        """Yield the variable that refers to the pod itself, or to a key of an object."""
        value = None
        if source["fieldRef"] is not None:
            value = self._read_field(source["fieldRef"], f"{path}.fieldRef")
        elif source["resourceFieldRef"] is not None:
            at = f"{path}.resourceFieldRef"
            value = self._read_resource(source["resourceFieldRef"], container, at)
        if value is not None:
            yield Variable(name=name, value=value, is_literal=True)
        for kind, of in (("ConfigMap", "configMapKeyRef"), ("Secret", "secretKeyRef")):
            found = self._find(kind, source[of], f"{path}.{of}")
            if found is None:
                continue
            key = source[of]["key"] or ""
            if key in found.values:
                yield from self._value_of(found, key, name, path)
            elif not source[of]["optional"]:
                message = f"there is no key {quote(key)} in {found.where}"
                self.refusals.error(f"{path}.{of}.key", message)

    def _find(self, kind: str, reference: Fields | None, path: str) -> DataObject | None:
        if reference is None:
            return None
        name = reference["name"] or ""
        found = self.objects.get((kind, self.pod.namespace, name))
        if found is None and not reference["optional"]:
            keys = [reference["key"] or ""] if "key" in reference else []
            self.refusals.error(path, *explain_absence(kind, self.pod.namespace, name, keys))
        return found

    def _value_of(self, found: DataObject, key: str, name: str, path: str) -> Iterator[Variable]:
        value = found.values[key].decode(errors="surrogateescape")
        if not ARGUMENT.matches(value):
            message = f"the value of {quote(key)} is not {ARGUMENT.name}"
            self.refusals.error(path, message, "mount it as a file")
        elif found.is_secret and "\n" in value:
            reason = f"a secret variable has one line only, and {quote(key)} has several"
            self.refusals.refuse(path, reason, "mount it as a file")
        else:
            yield Variable(name=name, value=value, is_literal=True, is_secret=found.is_secret)

    def _read_field(self, reference: Fields, path: str) -> str | None:
        """Return the value of a field of the pod; None with a refusal.

        A label that the pod does not have is empty.

        Source: Kubernetes, pkg/fieldpath/fieldpath.go, ExtractFieldPathAsString.
        """
        pod, spec, stated = self.pod, self.spec, reference["fieldPath"] or ""
        account = spec["serviceAccountName"] or spec["serviceAccount"]
        own = {
            "metadata.name": pod.name,
            "metadata.namespace": pod.namespace,
            "metadata.uid": pod.uid,
            "spec.serviceAccountName": account or "default",
            "spec.nodeName": later("PODSLICE_NODE_NAME"),
            "status.hostIP": later("PODSLICE_HOST_IP"),
            "status.podIP": later(f"PODSLICE_{'HOST' if spec['hostNetwork'] else 'POD'}_IP"),
        }
        if stated in own:
            return own[stated]
        if found := _SUBSCRIPT.fullmatch(stated):
            of_kind = self.metadata.get(found[1])
            value = of_kind.get(found[2]) if isinstance(of_kind, Mapping) else None
            text = value if isinstance(value, str) else ""
            if ARGUMENT.matches(text):
                return text
            self.refusals.error(path, f"the value is not {ARGUMENT.name}", ARGUMENT.form)
            return None
        reason = f"{quote(stated)} is unknown to podslice"
        self.refusals.refuse(path, reason, f"write {_KNOWN}")
        return None

    def _read_resource(self, reference: Fields, container: str, path: str) -> str | None:
        """Return an amount of a container, divided and rounded up; None with a problem.

        Source: Kubernetes, pkg/api/v1/resource/helpers.go, ExtractContainerResourceValue.
        """
        name, stated = reference["containerName"] or container, reference["resource"] or ""
        holder = next((each for each in self.pod.containers if each.name == name), None)
        if holder is None:
            message = f"the pod has no container {quote(name)}"
            self.refusals.error(f"{path}.containerName", message)
            return None
        part, _, resource = stated.partition(".")
        is_known = resource in (CPU, MEMORY, EPHEMERAL_STORAGE) or is_hugepages(resource)
        if part not in ("limits", "requests") or not is_known:
            message = f"unknown resource {quote(stated)}"
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
        divisor = reference["divisor"]
        return str(-(-amount // ((divisor.milli if divisor else None) or _ONE)))


def _capabilities(names: Iterable[str] | None) -> tuple[str, ...]:
    """Return names as podman takes them, in any case and with or without CAP_."""
    return tuple(name.upper().removeprefix("CAP_") for name in names or ())
