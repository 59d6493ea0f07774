"""The texts of a manifest that units have: one table of their fields, grammars and places.

A text is checked when its manifest is read, and again when it is written: no unit has a text that
does not match. Of texts in quotes, arguments for instance, every character is an escape or itself.

Source: Kubernetes v1.36, pkg/apis/core/validation/validation.go, where a row names a function.
"""

from __future__ import annotations

from typing import NamedTuple

from podslice.errors import InputError, Problem
from podslice.model import grammar
from podslice.model.grammar import Grammar


class PodText(NamedTuple):
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


_REFERENCE = "distribution/reference, regexp.go"
_QUOTED = "podman, pkg/systemd/parser/split.go, extractFirstWord"
_LINE = "podman, pkg/systemd/parser/unitfile.go, Parse"
_VOLUME = "podman-run(1), --volume: split at ':'"
_WORDS = "podman-systemd.unit(5): words separated by space"

# field, grammar, section and key of the unit, source; a field that ends with `!` is required
_ROWS = (
    ("metadata.name", grammar.SUBDOMAIN, "Pod PodName", "ValidatePodName"),
    ("metadata.namespace", grammar.LABEL, "Pod PodName", "ValidateNamespaceName"),
    ("metadata.uid", grammar.UID, "Service Slice", "podslice, names of slices"),
    ("containers[].name", grammar.LABEL, "Container ContainerName", "validateContainerCommon"),
    ("volumes[].name", grammar.LABEL, "Container Volume", "ValidateVolumes"),
    ("volumeClaimTemplates[].metadata.name!", grammar.LABEL, "Volume VolumeName",
     "apps/validation, ValidateStatefulSetSpec; the volume has the same name"),
    ("hostname", grammar.LABEL, "Pod --hostname", "ValidatePodSpec"),
    ("subdomain", grammar.LABEL, "", "ValidatePodSpec"),
    ("dnsConfig.nameservers[]", grammar.ADDRESS, "Pod DNS", "validatePodDNSConfig"),
    ("dnsConfig.searches[]", grammar.SEARCH_DOMAIN, "Pod DNSSearch", "validatePodDNSConfig"),
    ("dnsConfig.options[].name!", grammar.RESOLVER_OPTION, "Pod DNSOption",
     "validatePodDNSConfig; resolv.conf(5)"),
    ("dnsConfig.options[].value", grammar.RESOLVER_OPTION, "Pod DNSOption", "resolv.conf(5)"),
    ("hostAliases[].ip!", grammar.ADDRESS, "Pod AddHost", "ValidateHostAliases"),
    ("hostAliases[].hostnames[]", grammar.SUBDOMAIN, "Pod AddHost", "ValidateHostAliases"),
    ("securityContext.sysctls[].name!", grammar.SYSCTL, "Pod --sysctl", "validateSysctls"),
    ("securityContext.sysctls[].value!", grammar.LINE, "Pod --sysctl", "proc_sys(5)"),
    ("volumes[].hostPath.path!", grammar.HOST_PATH, "Container Volume",
     f"validateHostPathVolumeSource; {_VOLUME}"),
    ("volumes[].persistentVolumeClaim.claimName!", grammar.SUBDOMAIN, "Volume VolumeName",
     "ValidatePersistentVolumeName"),
    ("volumes[].configMap.name", grammar.SUBDOMAIN, "", "ValidateConfigMapName"),
    ("volumes[].secret.secretName", grammar.SUBDOMAIN, "", "ValidateSecretName"),
    ("volumes[].projected.sources[].configMap.name", grammar.SUBDOMAIN, "",
     "ValidateConfigMapName"),
    ("volumes[].projected.sources[].secret.name", grammar.SUBDOMAIN, "", "ValidateSecretName"),
    ("containers[].image", grammar.IMAGE, "Container Image", _REFERENCE),
    ("containers[].command[]", grammar.ARGUMENT, "Container Entrypoint", _QUOTED),
    ("containers[].args[]", grammar.ARGUMENT, "Container Exec", _QUOTED),
    ("containers[].workingDir", grammar.DIRECTORY, "Container WorkingDir", _LINE),
    ("containers[].env[].name!", grammar.VARIABLE, "Container Environment", "ValidateEnv"),
    ("containers[].env[].value", grammar.ARGUMENT, "Container Environment", _QUOTED),
    ("containers[].env[].valueFrom.configMapKeyRef.name", grammar.SUBDOMAIN, "",
     "ValidateConfigMapName"),
    ("containers[].env[].valueFrom.secretKeyRef.name", grammar.SUBDOMAIN, "", "ValidateSecretName"),
    ("containers[].envFrom[].prefix", grammar.VARIABLE, "Container Environment", "ValidateEnvFrom"),
    ("containers[].envFrom[].configMapRef.name", grammar.SUBDOMAIN, "", "ValidateConfigMapName"),
    ("containers[].envFrom[].secretRef.name", grammar.SUBDOMAIN, "", "ValidateSecretName"),
    ("containers[].ports[].name", grammar.PORT_NAME, "", "validateContainerPorts"),
    ("containers[].ports[].hostIP", grammar.ADDRESS, "Pod PublishPort", "validateContainerPorts"),
    ("containers[].volumeMounts[].mountPath!", grammar.MOUNT_PATH, "Container Volume",
     f"ValidateVolumeMounts; {_VOLUME}"),
    ("containers[].volumeMounts[].subPath", grammar.SUB_PATH, "Container Volume",
     f"validateLocalDescendingPath; {_VOLUME}"),
    ("containers[].lifecycle.stopSignal", grammar.SIGNAL, "Container StopSignal",
     "validateStopSignal"),
    ("containers[].lifecycle.postStart.exec.command[]", grammar.ARGUMENT, "Service ExecStartPost",
     _QUOTED),
    ("containers[].lifecycle.preStop.exec.command[]", grammar.ARGUMENT, "Service ExecStop",
     _QUOTED),
    ("containers[].securityContext.capabilities.add[]", grammar.CAPABILITY,
     "Container AddCapability", _WORDS),
    ("containers[].securityContext.capabilities.drop[]", grammar.CAPABILITY,
     "Container DropCapability", _WORDS),
    *(
        (f"containers[].{probe}Probe.{field}", of, "Service ExecStart", source)
        for probe in ("liveness", "readiness", "startup")
        for field, of, source in (
            ("exec.command[]", grammar.ARGUMENT, _QUOTED),
            ("httpGet.path", grammar.ARGUMENT, _QUOTED),
            ("httpGet.host", grammar.HOST, "RFC 3986, reg-name"),
            ("httpGet.httpHeaders[].name!", grammar.HEADER, "validateHTTPGetAction"),
            ("httpGet.httpHeaders[].value", grammar.ARGUMENT, _QUOTED),
            ("tcpSocket.host", grammar.HOST, "RFC 3986, reg-name"),
        )
    ),
    *(
        (f"{place}securityContext.{field}", of, f"Container {key}", source)
        for place in ("", "containers[].")
        for field, of, key, source in (
            ("seccompProfile.localhostProfile", grammar.PROFILE_PATH, "SeccompProfile",
             "validateSeccompProfileField"),
            ("appArmorProfile.localhostProfile", grammar.LINE, "--security-opt",
             "ValidateAppArmorProfileField"),
            ("seLinuxOptions.user", grammar.SELINUX, "--security-opt", "selinux(8)"),
            ("seLinuxOptions.role", grammar.SELINUX, "--security-opt", "selinux(8)"),
            ("seLinuxOptions.type", grammar.SELINUX, "--security-opt", "selinux(8)"),
            ("seLinuxOptions.level", grammar.SELINUX_LEVEL, "--security-opt", "selinux(8)"),
        )
    ),
)  # fmt: skip

POD_TEXTS = {
    field.rstrip("!"): PodText(field.rstrip("!"), of, unit, source, field.endswith("!"))
    for field, of, unit, source in _ROWS
}
"""Field → its row."""


def checked(field: str, text: str) -> str:
    """Return a text of a field, which is written without quotes.

    Raises:
        InputError: it does not match the grammar of the field.
    """
    return POD_TEXTS[field].check(text)
