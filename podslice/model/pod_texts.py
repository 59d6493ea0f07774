"""The texts of a manifest that units have: one table of their fields, grammars and places.

A text is checked when its manifest is read, and again when it is written: no unit has a text that
does not match. Of texts in quotes, arguments for instance, every character is an escape or itself.

Source: Kubernetes v1.36, pkg/apis/core/validation/validation.go, where a row names a function.
"""

from __future__ import annotations

from dataclasses import dataclass

from podslice.errors import InputError, Problem
from podslice.model import grammar
from podslice.model.grammar import Grammar


@dataclass(frozen=True, slots=True, kw_only=True)
class PodText:
    """A row of the table."""

    field: str
    """Its path in a pod; `containers` stands for `initContainers`, too."""
    grammar: Grammar
    unit: str
    """The section, and the key or the option of podman that has the text; empty if none has it.

    `Section.add_text` writes this key.
    """
    source: str
    is_required: bool = False
    """Whether an empty text is invalid; otherwise it means that the field is not stated."""

    def check(self, text: str) -> str:
        """Return the text.

        Raises:
            InputError: it does not match the grammar.
        """
        if self.grammar.matches(text):
            return text
        message, hint = f"is not {self.grammar.name}", self.grammar.form
        raise InputError(Problem(where=self.field, message=message, hint=hint))


def _row(field: str, of: Grammar, unit: str, source: str, *, is_required: bool = False) -> PodText:
    return PodText(field=field, grammar=of, unit=unit, source=source, is_required=is_required)


_REFERENCE = "distribution/reference, regexp.go"
_QUOTED = "podman, pkg/systemd/parser/split.go, extractFirstWord"
_LINE = "podman, pkg/systemd/parser/unitfile.go, Parse"
_VOLUME = "podman-run(1), --volume: split at ':'"
_WORDS = "podman-systemd.unit(5): words separated by space"
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")

_NAMES = (
    _row("metadata.name", grammar.SUBDOMAIN, "Pod PodName", "ValidatePodName"),
    _row("metadata.namespace", grammar.LABEL, "Pod PodName", "ValidateNamespaceName"),
    _row("metadata.uid", grammar.UID, "Service Slice", "podslice, names of slices"),
    _row("containers[].name", grammar.LABEL, "Container ContainerName", "validateContainerCommon"),
    _row("volumes[].name", grammar.LABEL, "Container Volume", "ValidateVolumes"),
    _row(
        "volumeClaimTemplates[].metadata.name",
        grammar.LABEL,
        "Volume VolumeName",
        "apps/validation, ValidateStatefulSetSpec; the volume has the same name",
        is_required=True,
    ),
)
_POD = (
    _row("hostname", grammar.LABEL, "Pod --hostname", "ValidatePodSpec"),
    _row("subdomain", grammar.LABEL, "", "ValidatePodSpec"),
    _row("dnsConfig.nameservers[]", grammar.ADDRESS, "Pod DNS", "validatePodDNSConfig"),
    _row("dnsConfig.searches[]", grammar.SEARCH_DOMAIN, "Pod DNSSearch", "validatePodDNSConfig"),
    _row(
        "dnsConfig.options[].name",
        grammar.RESOLVER_OPTION,
        "Pod DNSOption",
        "validatePodDNSConfig; resolv.conf(5)",
        is_required=True,
    ),
    _row("dnsConfig.options[].value", grammar.RESOLVER_OPTION, "Pod DNSOption", "resolv.conf(5)"),
    _row(
        "hostAliases[].ip", grammar.ADDRESS, "Pod AddHost", "ValidateHostAliases", is_required=True
    ),
    _row("hostAliases[].hostnames[]", grammar.SUBDOMAIN, "Pod AddHost", "ValidateHostAliases"),
    _row(
        "securityContext.sysctls[].name",
        grammar.SYSCTL,
        "Pod --sysctl",
        "validateSysctls",
        is_required=True,
    ),
    _row(
        "securityContext.sysctls[].value",
        grammar.LINE,
        "Pod --sysctl",
        "proc_sys(5)",
        is_required=True,
    ),
)
_VOLUMES = (
    _row(
        "volumes[].hostPath.path",
        grammar.HOST_PATH,
        "Container Volume",
        f"validateHostPathVolumeSource; {_VOLUME}",
        is_required=True,
    ),
    _row(
        "volumes[].persistentVolumeClaim.claimName",
        grammar.SUBDOMAIN,
        "Volume VolumeName",
        "ValidatePersistentVolumeName",
        is_required=True,
    ),
    _row("volumes[].configMap.name", grammar.SUBDOMAIN, "", "ValidateConfigMapName"),
    _row("volumes[].secret.secretName", grammar.SUBDOMAIN, "", "ValidateSecretName"),
    _row(
        "volumes[].projected.sources[].configMap.name",
        grammar.SUBDOMAIN,
        "",
        "ValidateConfigMapName",
    ),
    _row("volumes[].projected.sources[].secret.name", grammar.SUBDOMAIN, "", "ValidateSecretName"),
)
_CONTAINERS = (
    _row("containers[].image", grammar.IMAGE, "Container Image", _REFERENCE),
    _row("containers[].command[]", grammar.ARGUMENT, "Container Entrypoint", _QUOTED),
    _row("containers[].args[]", grammar.ARGUMENT, "Container Exec", _QUOTED),
    _row("containers[].workingDir", grammar.DIRECTORY, "Container WorkingDir", _LINE),
    _row(
        "containers[].env[].name",
        grammar.VARIABLE,
        "Container Environment",
        "ValidateEnv",
        is_required=True,
    ),
    _row("containers[].env[].value", grammar.ARGUMENT, "Container Environment", _QUOTED),
    _row(
        "containers[].env[].valueFrom.configMapKeyRef.name",
        grammar.SUBDOMAIN,
        "",
        "ValidateConfigMapName",
    ),
    _row(
        "containers[].env[].valueFrom.secretKeyRef.name",
        grammar.SUBDOMAIN,
        "",
        "ValidateSecretName",
    ),
    _row(
        "containers[].envFrom[].prefix",
        grammar.VARIABLE,
        "Container Environment",
        "ValidateEnvFrom",
    ),
    _row(
        "containers[].envFrom[].configMapRef.name", grammar.SUBDOMAIN, "", "ValidateConfigMapName"
    ),
    _row("containers[].envFrom[].secretRef.name", grammar.SUBDOMAIN, "", "ValidateSecretName"),
    _row("containers[].ports[].name", grammar.PORT_NAME, "", "validateContainerPorts"),
    _row(
        "containers[].ports[].hostIP", grammar.ADDRESS, "Pod PublishPort", "validateContainerPorts"
    ),
    _row(
        "containers[].volumeMounts[].mountPath",
        grammar.MOUNT_PATH,
        "Container Volume",
        f"ValidateVolumeMounts; {_VOLUME}",
        is_required=True,
    ),
    _row(
        "containers[].volumeMounts[].subPath",
        grammar.SUB_PATH,
        "Container Volume",
        f"validateLocalDescendingPath; {_VOLUME}",
    ),
    _row(
        "containers[].lifecycle.stopSignal",
        grammar.SIGNAL,
        "Container StopSignal",
        "validateStopSignal",
    ),
    _row(
        "containers[].lifecycle.postStart.exec.command[]",
        grammar.ARGUMENT,
        "Service ExecStartPost",
        _QUOTED,
    ),
    _row(
        "containers[].lifecycle.preStop.exec.command[]",
        grammar.ARGUMENT,
        "Service ExecStop",
        _QUOTED,
    ),
    _row(
        "containers[].securityContext.capabilities.add[]",
        grammar.CAPABILITY,
        "Container AddCapability",
        _WORDS,
    ),
    _row(
        "containers[].securityContext.capabilities.drop[]",
        grammar.CAPABILITY,
        "Container DropCapability",
        _WORDS,
    ),
)
_PROBED = tuple(
    _row(
        f"containers[].{probe}.{field}",
        of,
        "Service ExecStart",
        source,
        is_required=of is grammar.HEADER,
    )
    for probe in _PROBES
    for field, of, source in (
        ("exec.command[]", grammar.ARGUMENT, _QUOTED),
        ("httpGet.path", grammar.ARGUMENT, _QUOTED),
        ("httpGet.host", grammar.HOST, "RFC 3986, reg-name"),
        ("httpGet.httpHeaders[].name", grammar.HEADER, "validateHTTPGetAction"),
        ("httpGet.httpHeaders[].value", grammar.ARGUMENT, _QUOTED),
        ("tcpSocket.host", grammar.HOST, "RFC 3986, reg-name"),
    )
)
_SECURITY = tuple(
    _row(f"{place}securityContext.{field}", of, unit, source)
    for place in ("", "containers[].")
    for field, of, unit, source in (
        (
            "seccompProfile.localhostProfile",
            grammar.PROFILE_PATH,
            "Container SeccompProfile",
            "validateSeccompProfileField",
        ),
        (
            "appArmorProfile.localhostProfile",
            grammar.LINE,
            "Container --security-opt",
            "ValidateAppArmorProfileField",
        ),
        ("seLinuxOptions.user", grammar.SELINUX, "Container --security-opt", "selinux(8)"),
        ("seLinuxOptions.role", grammar.SELINUX, "Container --security-opt", "selinux(8)"),
        ("seLinuxOptions.type", grammar.SELINUX, "Container --security-opt", "selinux(8)"),
        ("seLinuxOptions.level", grammar.SELINUX_LEVEL, "Container --security-opt", "selinux(8)"),
    )
)

POD_TEXTS = {
    row.field: row for row in (*_NAMES, *_POD, *_VOLUMES, *_CONTAINERS, *_PROBED, *_SECURITY)
}
"""Field → its row."""


def checked(field: str, text: str) -> str:
    """Return a text of a field, which is written without quotes.

    Raises:
        InputError: it does not match the grammar of the field.
    """
    return POD_TEXTS[field].check(text)
