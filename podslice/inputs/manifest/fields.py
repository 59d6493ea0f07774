"""The description of manifests: the kinds of objects, and the fields of each.

Whatever reads manifests uses this one table: the check for unknown fields, the pods of the policy,
and the services of containers. A line has a type and its fields:

    name:text         a scalar: the name of a row of `_SCALARS`, or of a grammar of `model.grammar`
    name:Type         an object
    name:[Type]       a list of objects or scalars
    name:{text}       a mapping whose keys the author chooses
    name              a field that nothing reads
    !                 the API server requires it
    *                 the policy uses it: a value of another type is an error for every verb

Texts with a grammar and ports are checked for every verb, other fields only for services. A service
does without the fields after IGNORED, which mean nothing on a single host. It cannot keep those
that nothing reads, or after REFUSED: where a pod states one, it is refused by name.

`status`, and the items of a List, are not described. The table is the union of both versions.

Source: Kubernetes v1.36 and v1.37, api/openapi-spec; pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple

from podslice.errors import invalid
from podslice.inputs.budget import (
    POD_CONTAINERS_MAX,
    POD_VOLUMES_MAX,
    RESOURCES_MAX,
    VALUES_MAX,
    WORKLOAD_ENTRIES_MAX,
)
from podslice.inputs.scalars import (
    read_flag,
    read_int,
    read_mode,
    read_port,
    read_seconds,
    read_stated_amount,
    read_text,
)
from podslice.model import grammar
from podslice.model.grammar import Grammar


class Workload(NamedTuple):
    """A kind that holds a pod, or the template of pods."""

    api_version: str = "v1"
    template: tuple[str, ...] = ()
    """The path of the mapping with the pod's `spec`."""
    replicas: str = ""
    """The field of `spec` with the number of pods; empty if a node has one."""


_TEMPLATE = ("spec", "template")
_REPLICATED = Workload("apps/v1", _TEMPLATE, "replicas")

WORKLOADS = {
    "Pod": Workload(),
    "PodTemplate": Workload(template=("template",)),
    "Deployment": _REPLICATED,
    "ReplicaSet": _REPLICATED,
    "ReplicationController": Workload(template=_TEMPLATE, replicas="replicas"),
    "StatefulSet": _REPLICATED,
    "DaemonSet": Workload("apps/v1", _TEMPLATE),
    "Job": Workload("batch/v1", _TEMPLATE, "parallelism"),
    "CronJob": Workload("batch/v1", ("spec", "jobTemplate", "spec", "template")),
}
"""Every kind with pods. Source: Kubernetes v1.36, staging/src/k8s.io/api: core, apps, batch."""

SERVICE = "Service"
DATA_KINDS = frozenset({"ConfigMap", "Secret", SERVICE})
"""Kinds without pods that containers use."""
LIST = "List"
API_VERSIONS = {
    **{kind: workload.api_version for kind, workload in WORKLOADS.items()},
    **dict.fromkeys(DATA_KINDS, "v1"),
    LIST: "v1",
}
"""The kinds whose fields are known, and the version that Kubernetes has each in."""

RESOURCE_REQUIREMENTS = "ResourceRequirements"
"""The type of the pod level, and of the resources of a container."""

_IGNORED = """
APIService Certificate CertificateSigningRequest ClusterRole ClusterRoleBinding ConfigMap
CSIDriver CustomResourceDefinition Endpoints EndpointSlice Event Gateway HorizontalPodAutoscaler
HTTPRoute Ingress IngressClass Lease LimitRange MutatingWebhookConfiguration Namespace
NetworkPolicy Node PersistentVolume PersistentVolumeClaim PodDisruptionBudget PriorityClass
ResourceQuota Role RoleBinding RuntimeClass Secret Service ServiceAccount StorageClass
ValidatingWebhookConfiguration VerticalPodAutoscaler VolumeAttachment
"""
IGNORED_KINDS = frozenset(re.findall(r"\w+", _IGNORED))
"""Kinds that often accompany pods and mean nothing to a node."""

_TABLE = """
CronJob: apiVersion kind metadata:ObjectMeta spec:CronJobSpec status
DaemonSet: apiVersion kind metadata:ObjectMeta spec:DaemonSetSpec status
Deployment: apiVersion kind metadata:ObjectMeta spec:DeploymentSpec status
Job: apiVersion kind metadata:ObjectMeta spec:JobSpec status
List: apiVersion items kind metadata:ListMeta
Pod: apiVersion kind metadata:ObjectMeta spec:PodSpec status
PodTemplate: apiVersion kind metadata:ObjectMeta template:PodTemplateSpec
ReplicaSet: apiVersion kind metadata:ObjectMeta spec:ReplicaSetSpec status
ReplicationController: apiVersion kind metadata:ObjectMeta spec:ReplicationControllerSpec status
StatefulSet: apiVersion kind metadata:ObjectMeta spec:StatefulSetSpec status

ObjectMeta: name:subdomain* namespace:label* uid:uid* generateName:text*
    IGNORED annotations creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers
        generation labels managedFields:[ManagedFieldsEntry] ownerReferences:[OwnerReference]
        resourceVersion selfLink
NamedMeta: name:label! namespace:label
    IGNORED annotations creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers
        generateName generation labels managedFields:[ManagedFieldsEntry]
        ownerReferences:[OwnerReference] resourceVersion selfLink uid
PodSpec: containers:[Container]* initContainers:[Container]* resources:ResourceRequirements*
    overhead:{amount}* priority:int* priorityClassName:text* terminationGracePeriodSeconds:seconds*
    volumes:[Volume]* restartPolicy:text hostNetwork:flag hostPID:flag hostIPC:flag hostUsers:flag
    shareProcessNamespace:flag hostname:label dnsPolicy:text dnsConfig:PodDNSConfig
    hostAliases:[HostAlias] securityContext:PodSecurityContext serviceAccountName:subdomain
    serviceAccount:subdomain
    IGNORED affinity:Affinity automountServiceAccountToken enableServiceLinks nodeName nodeSelector
        os:PodOS preemptionPolicy readinessGates:[PodReadinessGate] schedulerName
        schedulingGates:[PodSchedulingGate] schedulingGroup:PodSchedulingGroup tolerations:[Toleration]
        topologySpreadConstraints:[TopologySpreadConstraint]
    REFUSED subdomain:label activeDeadlineSeconds ephemeralContainers:[EphemeralContainer]
        evictionResponders:[EvictionResponder] hostnameOverride
        imagePullSecrets:[LocalObjectReference] resourceClaims:[PodResourceClaim] runtimeClassName
        setHostnameAsFQDN
Container: name:label* resources:ResourceRequirements* image:image imagePullPolicy:text
    command:[argument] args:[argument] workingDir:directory env:[EnvVar] envFrom:[EnvFromSource]
    ports:[ContainerPort] volumeMounts:[VolumeMount] livenessProbe:Probe readinessProbe:Probe
    startupProbe:Probe lifecycle:Lifecycle securityContext:SecurityContext restartPolicy:text*
    tty:flag
    IGNORED resizePolicy:[ContainerResizePolicy] stdinOnce terminationMessagePath
        terminationMessagePolicy
    REFUSED restartPolicyRules:[ContainerRestartRule] stdin volumeDevices:[VolumeDevice]
ResourceRequirements: requests:{amount}* limits:{amount}*
    IGNORED claims:[ResourceClaim]
Volume: name:label* emptyDir:EmptyDirVolumeSource* hostPath:HostPathVolumeSource
    persistentVolumeClaim:PersistentVolumeClaimVolumeSource configMap:ConfigMapVolumeSource
    secret:SecretVolumeSource projected:ProjectedVolumeSource
    REFUSED awsElasticBlockStore:AWSElasticBlockStoreVolumeSource azureDisk:AzureDiskVolumeSource
        azureFile:AzureFileVolumeSource cephfs:CephFSVolumeSource cinder:CinderVolumeSource
        csi:CSIVolumeSource downwardAPI:DownwardAPIVolumeSource ephemeral:EphemeralVolumeSource
        fc:FCVolumeSource flexVolume:FlexVolumeSource flocker:FlockerVolumeSource
        gcePersistentDisk:GCEPersistentDiskVolumeSource gitRepo:GitRepoVolumeSource
        glusterfs:GlusterfsVolumeSource image:ImageVolumeSource iscsi:ISCSIVolumeSource
        nfs:NFSVolumeSource photonPersistentDisk:PhotonPersistentDiskVolumeSource
        portworxVolume:PortworxVolumeSource quobyte:QuobyteVolumeSource rbd:RBDVolumeSource
        scaleIO:ScaleIOVolumeSource storageos:StorageOSVolumeSource
        vsphereVolume:VsphereVirtualDiskVolumeSource
EmptyDirVolumeSource: medium:text* sizeLimit:amount*
    REFUSED mode
HostPathVolumeSource: path:host-path! type:text
PersistentVolumeClaimVolumeSource: claimName:subdomain! readOnly:flag
ConfigMapVolumeSource: name:subdomain items:[KeyToPath] defaultMode:mode optional:flag
    REFUSED defaultUser
SecretVolumeSource: secretName:subdomain items:[KeyToPath] defaultMode:mode optional:flag
    REFUSED defaultUser
ProjectedVolumeSource: sources:[VolumeProjection] defaultMode:mode
    REFUSED defaultUser
VolumeProjection: configMap:ConfigMapProjection secret:SecretProjection
    REFUSED clusterTrustBundle:ClusterTrustBundleProjection downwardAPI:DownwardAPIProjection
        podCertificate:PodCertificateProjection serviceAccountToken:ServiceAccountTokenProjection
ConfigMapProjection: name:subdomain items:[KeyToPath] optional:flag
SecretProjection: name:subdomain items:[KeyToPath] optional:flag
KeyToPath: key:text path:text mode:mode
    REFUSED user
PodSecurityContext: runAsUser:int runAsGroup:int runAsNonRoot:flag seccompProfile:SeccompProfile
    appArmorProfile:AppArmorProfile seLinuxOptions:SELinuxOptions supplementalGroups:[int]
    sysctls:[Sysctl] fsGroup:int fsGroupChangePolicy:text
    IGNORED seLinuxChangePolicy
    REFUSED supplementalGroupsPolicy windowsOptions:WindowsSecurityContextOptions
SecurityContext: runAsUser:int runAsGroup:int runAsNonRoot:flag seccompProfile:SeccompProfile
    appArmorProfile:AppArmorProfile seLinuxOptions:SELinuxOptions capabilities:Capabilities
    privileged:flag readOnlyRootFilesystem:flag allowPrivilegeEscalation:flag procMount:text
    REFUSED windowsOptions:WindowsSecurityContextOptions
SeccompProfile: type:text localhostProfile:profile-path
AppArmorProfile: type:text localhostProfile:line
SELinuxOptions: user:selinux role:selinux type:selinux level:selinux-level
Capabilities: add:[capability] drop:[capability]
Sysctl: name:sysctl! value:line!
PodDNSConfig: nameservers:[address] searches:[search-domain] options:[PodDNSConfigOption]
PodDNSConfigOption: name:resolver-option! value:resolver-option
HostAlias: ip:address! hostnames:[subdomain]
EnvVar: name:variable! value:argument valueFrom:EnvVarSource
EnvVarSource: configMapKeyRef:ConfigMapKeySelector secretKeyRef:SecretKeySelector
    fieldRef:ObjectFieldSelector resourceFieldRef:ResourceFieldSelector
    REFUSED fileKeyRef:FileKeySelector
ConfigMapKeySelector: name:subdomain optional:flag key:text
SecretKeySelector: name:subdomain optional:flag key:text
ObjectFieldSelector: fieldPath:text apiVersion:text
ResourceFieldSelector: containerName:text resource:text divisor:amount
EnvFromSource: prefix:variable configMapRef:ConfigMapEnvSource secretRef:SecretEnvSource
ConfigMapEnvSource: name:subdomain optional:flag
SecretEnvSource: name:subdomain optional:flag
ContainerPort: name:port-name containerPort:port! hostPort:port hostIP:address protocol:text
VolumeMount: name:text mountPath:mount-path! readOnly:flag subPath:sub-path mountPropagation:text
    REFUSED bindMountOptions recursiveReadOnly subPathExpr
Probe: exec:ExecAction httpGet:HTTPGetAction tcpSocket:TCPSocketAction grpc:GRPCAction
    initialDelaySeconds:seconds periodSeconds:seconds timeoutSeconds:seconds
    successThreshold:seconds failureThreshold:seconds
    REFUSED terminationGracePeriodSeconds
ExecAction: command:[argument]
HTTPGetAction: port:port-or-name! path:argument scheme:text host:host httpHeaders:[HTTPHeader]
    REFUSED protocol
HTTPHeader: name:header! value:argument
TCPSocketAction: port:port-or-name! host:host
GRPCAction: port:port! service:argument
    REFUSED mode
Lifecycle: postStart:LifecycleHandler preStop:LifecycleHandler stopSignal:signal
LifecycleHandler: exec:ExecAction sleep:SleepAction
    REFUSED httpGet:HTTPGetAction tcpSocket:TCPSocketAction
SleepAction: seconds:seconds
PersistentVolumeClaim: metadata:NamedMeta spec:PersistentVolumeClaimSpec
    IGNORED apiVersion kind status
PersistentVolumeClaimSpec: volumeMode:text
    IGNORED accessModes resources:VolumeResourceRequirements selector:LabelSelector storageClassName
        volumeAttributesClassName volumeName
    REFUSED dataSource:TypedLocalObjectReference dataSourceRef:TypedObjectReference
DeploymentSpec:
    IGNORED minReadySeconds progressDeadlineSeconds replicas revisionHistoryLimit
        selector:LabelSelector strategy:DeploymentStrategy template:PodTemplateSpec
    REFUSED paused
ReplicaSetSpec:
    IGNORED minReadySeconds replicas selector:LabelSelector template:PodTemplateSpec
ReplicationControllerSpec:
    IGNORED minReadySeconds replicas selector template:PodTemplateSpec
DaemonSetSpec:
    IGNORED minReadySeconds revisionHistoryLimit selector:LabelSelector template:PodTemplateSpec
        updateStrategy:DaemonSetUpdateStrategy
StatefulSetSpec: volumeClaimTemplates:[PersistentVolumeClaim] serviceName:label
    IGNORED minReadySeconds
        persistentVolumeClaimRetentionPolicy:StatefulSetPersistentVolumeClaimRetentionPolicy
        podManagementPolicy replicas revisionHistoryLimit selector:LabelSelector
        template:PodTemplateSpec updateStrategy:StatefulSetUpdateStrategy
    REFUSED ordinals:StatefulSetOrdinals
JobTemplateSpec: spec:JobSpec
    IGNORED metadata:ObjectMeta
JobSpec: activeDeadlineSeconds:seconds backoffLimit:seconds completionMode:text completions:seconds
    parallelism:int suspend:flag
    IGNORED manualSelector selector:LabelSelector template:PodTemplateSpec ttlSecondsAfterFinished
    REFUSED backoffLimitPerIndex managedBy maxFailedIndexes podFailurePolicy:PodFailurePolicy
        podReplacementPolicy scheduling:JobSchedulingConfiguration successPolicy:SuccessPolicy
CronJobSpec: jobTemplate:JobTemplateSpec concurrencyPolicy:text schedule:text
    startingDeadlineSeconds:seconds suspend:flag timeZone:text
    IGNORED failedJobsHistoryLimit successfulJobsHistoryLimit
ConfigMap: data:{text} binaryData:{text}
    IGNORED apiVersion immutable kind metadata:ObjectMeta
Secret: data:{text} stringData:{text}
    IGNORED apiVersion immutable kind metadata:ObjectMeta type
Service: metadata:NamedMeta spec:ServiceSpec
    IGNORED apiVersion kind status
ServiceSpec: type:text clusterIP:text selector:{text} ports:[ServicePort] externalName:text
    externalIPs:[text] sessionAffinity:text loadBalancerSourceRanges:[text]
    IGNORED allocateLoadBalancerNodePorts clusterIPs externalTrafficPolicy healthCheckNodePort
        internalTrafficPolicy ipFamilies ipFamilyPolicy loadBalancerClass loadBalancerIP
        publishNotReadyAddresses sessionAffinityConfig:SessionAffinityConfig trafficDistribution
ServicePort: port:port! targetPort:port-or-name nodePort:port protocol:text
    IGNORED appProtocol name

AWSElasticBlockStoreVolumeSource: fsType partition readOnly volumeID
Affinity: nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAntiAffinity
AzureDiskVolumeSource: cachingMode diskName diskURI fsType kind readOnly
AzureFileVolumeSource: readOnly secretName shareName
CSIVolumeSource: driver fsType nodePublishSecretRef:LocalObjectReference readOnly volumeAttributes
CephFSVolumeSource: monitors path readOnly secretFile secretRef:LocalObjectReference user
CinderVolumeSource: fsType readOnly secretRef:LocalObjectReference volumeID
ClientIPConfig: timeoutSeconds
ClusterTrustBundleProjection: labelSelector:LabelSelector name optional path signerName user
ContainerResizePolicy: resourceName restartPolicy
ContainerRestartRule: action exitCodes:ContainerRestartRuleOnExitCodes
ContainerRestartRuleOnExitCodes: operator values
DaemonSetUpdateStrategy: rollingUpdate:RollingUpdateDaemonSet type
DeploymentStrategy: rollingUpdate:RollingUpdateDeployment type
DownwardAPIProjection: items:[DownwardAPIVolumeFile]
DownwardAPIVolumeFile: fieldRef:ObjectFieldSelector mode path resourceFieldRef:ResourceFieldSelector
    user
DownwardAPIVolumeSource: defaultMode defaultUser items:[DownwardAPIVolumeFile]
EphemeralContainer: args command env:[EnvVar] envFrom:[EnvFromSource] image imagePullPolicy
    lifecycle:Lifecycle livenessProbe:Probe name ports:[ContainerPort] readinessProbe:Probe
    resizePolicy:[ContainerResizePolicy] resources:ResourceRequirements restartPolicy
    restartPolicyRules:[ContainerRestartRule] securityContext:SecurityContext startupProbe:Probe
    stdin stdinOnce targetContainerName terminationMessagePath terminationMessagePolicy tty
    volumeDevices:[VolumeDevice] volumeMounts:[VolumeMount] workingDir
EphemeralVolumeSource: volumeClaimTemplate:PersistentVolumeClaimTemplate
EvictionResponder: name priority
FCVolumeSource: fsType lun readOnly targetWWNs wwids
FileKeySelector: key optional path volumeName
FlexVolumeSource: driver fsType options readOnly secretRef:LocalObjectReference
FlockerVolumeSource: datasetName datasetUUID
GCEPersistentDiskVolumeSource: fsType partition pdName readOnly
GitRepoVolumeSource: directory repository revision
GlusterfsVolumeSource: endpoints path readOnly
ISCSIVolumeSource: chapAuthDiscovery chapAuthSession fsType initiatorName iqn iscsiInterface lun
    portals readOnly secretRef:LocalObjectReference targetPortal
ImageVolumeSource: pullPolicy reference
JobSchedulingConfiguration: disruptionMode:WorkloadPodGroupDisruptionMode
    resourceClaims:[WorkloadPodGroupResourceClaim]
    schedulingConstraints:WorkloadPodGroupSchedulingConstraints
    schedulingPolicy:WorkloadPodGroupSchedulingPolicy
LabelSelector: matchExpressions:[LabelSelectorRequirement] matchLabels
LabelSelectorRequirement: key operator values
ListMeta: continue remainingItemCount resourceVersion selfLink shardInfo:ShardInfo
LocalObjectReference: name
ManagedFieldsEntry: apiVersion fieldsType fieldsV1 manager operation subresource time
NFSVolumeSource: path readOnly server
NodeAffinity: preferredDuringSchedulingIgnoredDuringExecution:[PreferredSchedulingTerm]
    requiredDuringSchedulingIgnoredDuringExecution:NodeSelector
NodeSelector: nodeSelectorTerms:[NodeSelectorTerm]
NodeSelectorRequirement: key operator values
NodeSelectorTerm: matchExpressions:[NodeSelectorRequirement] matchFields:[NodeSelectorRequirement]
OwnerReference: apiVersion blockOwnerDeletion controller kind name uid
PersistentVolumeClaimTemplate: metadata:ObjectMeta spec:PersistentVolumeClaimSpec
PhotonPersistentDiskVolumeSource: fsType pdID
PodAffinity: preferredDuringSchedulingIgnoredDuringExecution:[WeightedPodAffinityTerm]
    requiredDuringSchedulingIgnoredDuringExecution:[PodAffinityTerm]
PodAffinityTerm: labelSelector:LabelSelector matchLabelKeys mismatchLabelKeys namespaces
    namespaceSelector:LabelSelector topologyKey
PodAntiAffinity: preferredDuringSchedulingIgnoredDuringExecution:[WeightedPodAffinityTerm]
    requiredDuringSchedulingIgnoredDuringExecution:[PodAffinityTerm]
PodCertificateProjection: certificateChainPath credentialBundlePath keyPath keyType
    maxExpirationSeconds signerName user userAnnotations
PodFailurePolicy: rules:[PodFailurePolicyRule]
PodFailurePolicyOnExitCodesRequirement: containerName operator values
PodFailurePolicyOnPodConditionsPattern: status type
PodFailurePolicyRule: action onExitCodes:PodFailurePolicyOnExitCodesRequirement
    onPodConditions:[PodFailurePolicyOnPodConditionsPattern]
PodOS: name
PodReadinessGate: conditionType
PodResourceClaim: name resourceClaimName resourceClaimTemplateName
PodSchedulingGate: name
PodSchedulingGroup: podGroupName
PodTemplateSpec: metadata:ObjectMeta spec:PodSpec
PortworxVolumeSource: fsType readOnly volumeID
PreferredSchedulingTerm: preference:NodeSelectorTerm weight
QuobyteVolumeSource: group readOnly registry tenant user volume
RBDVolumeSource: fsType image keyring monitors pool readOnly secretRef:LocalObjectReference user
ResourceClaim: name request
RollingUpdateDaemonSet: maxSurge maxUnavailable
RollingUpdateDeployment: maxSurge maxUnavailable
RollingUpdateStatefulSetStrategy: maxUnavailable partition
ScaleIOVolumeSource: fsType gateway protectionDomain readOnly secretRef:LocalObjectReference
    sslEnabled storageMode storagePool system volumeName
ServiceAccountTokenProjection: audience expirationSeconds path user
SessionAffinityConfig: clientIP:ClientIPConfig
ShardInfo: selector
StatefulSetOrdinals: start
StatefulSetPersistentVolumeClaimRetentionPolicy: whenDeleted whenScaled
StatefulSetUpdateStrategy: rollingUpdate:RollingUpdateStatefulSetStrategy type
StorageOSVolumeSource: fsType readOnly secretRef:LocalObjectReference volumeName volumeNamespace
SuccessPolicy: rules:[SuccessPolicyRule]
SuccessPolicyRule: succeededCount succeededIndexes
Toleration: effect key operator tolerationSeconds value
TopologyConstraint: key
TopologySpreadConstraint: labelSelector:LabelSelector matchLabelKeys maxSkew minDomains
    nodeAffinityPolicy nodeTaintsPolicy topologyKey whenUnsatisfiable
TypedLocalObjectReference: apiGroup kind name
TypedObjectReference: apiGroup kind name namespace
VolumeDevice: devicePath name
VolumeResourceRequirements: limits requests
VsphereVirtualDiskVolumeSource: fsType storagePolicyID storagePolicyName volumePath
WeightedPodAffinityTerm: podAffinityTerm:PodAffinityTerm weight
WindowsSecurityContextOptions: gmsaCredentialSpec gmsaCredentialSpecName hostProcess runAsUserName
WorkloadPodGroupDisruptionMode: all single
WorkloadPodGroupGangSchedulingPolicy: minCount
WorkloadPodGroupResourceClaim: name resourceClaimName resourceClaimTemplateName
WorkloadPodGroupSchedulingConstraints: topology:[TopologyConstraint]
WorkloadPodGroupSchedulingPolicy: basic gang:WorkloadPodGroupGangSchedulingPolicy
"""


class Use(StrEnum):
    """What a service does with a field."""

    KEPT = ""
    IGNORED = "IGNORED"
    REFUSED = "REFUSED"


class Scalar(NamedTuple):
    """A type of texts, numbers or booleans."""

    read: Callable[[object], Any]
    """Returns the value, or raises `InputError`."""
    grammar: Grammar | None = None
    """The valid texts or numbers."""


class Field(NamedTuple):
    """A row of the table."""

    name: str
    type: str
    """The type of the object, or of the objects of a list; empty for scalars."""
    scalar: Scalar | None
    bracket: str
    """`[` of a list, `{` of a mapping with any keys, empty for one value."""
    is_required: bool
    is_for_policy: bool
    use: Use
    is_checked: bool
    """Whether it is checked for every verb, or anything in it."""
    position: int
    """The position in its type."""
    longest: int
    """The maximum number of entries of a list or mapping."""


class Type(NamedTuple):
    """The fields of an object."""

    name: str
    fields: Mapping[str, Field]
    checked: Mapping[str, Field]
    for_policy: Mapping[str, Field]
    required: tuple[Field, ...]
    unstated: dict[str, Any]
    """The value of each field that is read, where none is stated: None."""


_SCALARS = {
    **{
        name.lower().replace("_", "-"): Scalar(read_text, each)
        for name, each in vars(grammar).items()
        if isinstance(each, Grammar)
    },
    "text": Scalar(read_text),
    "flag": Scalar(read_flag),
    "int": Scalar(read_int),
    "seconds": Scalar(read_seconds),
    "mode": Scalar(read_mode),
    "amount": Scalar(read_stated_amount),
    "port": Scalar(read_int, grammar.PORT),
    "port-or-name": Scalar(read_port, grammar.PORT),
}
_LONGEST = {"Container": POD_CONTAINERS_MAX, "Volume": POD_VOLUMES_MAX, "amount": RESOURCES_MAX}
_LINE = re.compile(r"^(\w+):(.*(?:\n .*)*)", re.MULTILINE)
_ROW = re.compile(r"(\w+)(?::([\[{]?)([\w-]+)[\]}]?)?(!?)(\*?)", re.ASCII)


@cache
def type_names() -> Mapping[str, str]:
    """Return the rows of every type, by its name."""
    return dict(_LINE.findall(_TABLE))


@cache
def type_of(name: str) -> Type:
    """Return a type by its name."""
    use, fields = Use.KEPT, dict[str, Field]()
    for word in re.findall(r"\S+", type_names()[name]):
        if word in (Use.IGNORED, Use.REFUSED):
            use = Use(word)
        else:
            row = _read_row(word, use, len(fields))
            fields[row.name] = row
    return Type(
        name=name,
        fields=fields,
        checked={key: row for key, row in fields.items() if row.is_checked},
        for_policy={key: row for key, row in fields.items() if row.is_for_policy},
        required=tuple(row for row in fields.values() if row.is_required),
        unstated=dict.fromkeys(key for key, row in fields.items() if row.use is Use.KEPT),
    )


def _read_row(word: str, use: Use, position: int) -> Field:
    row = _ROW.fullmatch(word)
    assert row is not None, word  # noqa: S101 (a mistake in the table)
    name, bracket, of, required, policy = row.groups("")
    scalar = _SCALARS.get(of)
    # A field without a type is one that nothing reads.
    use = use if of or use is Use.IGNORED else Use.REFUSED
    if scalar is not None:
        is_checked = bool(policy) or scalar.grammar is not None
    else:
        is_checked = use is Use.KEPT and any(row.is_checked for row in type_of(of).fields.values())
    return Field(
        name=name,
        type="" if scalar else of,
        scalar=scalar,
        bracket=bracket,
        is_required=bool(required),
        is_for_policy=bool(policy),
        use=use,
        is_checked=is_checked,
        position=position,
        longest=_LONGEST.get(of, VALUES_MAX if bracket == "{" else WORKLOAD_ENTRIES_MAX),
    )


@cache
def grammar_of(field: str) -> Grammar:
    """Return the grammar of a field: `Container.image`."""
    type_, _, name = field.partition(".")
    scalar = type_of(type_).fields[name].scalar
    assert scalar is not None  # noqa: S101 (a text that is written has a grammar)
    assert scalar.grammar is not None  # noqa: S101
    return scalar.grammar


def checked(field: str, text: str) -> str:
    """Return a text of a field, to be written without quotes.

    A text is checked when its manifest is read, and again here: no unit has a text that does not
    match. Of texts in quotes, arguments for instance, every character is an escape or itself.

    Raises:
        InputError: it does not match the grammar of the field.
    """
    found = grammar_of(field)
    if found.matches(text):
        return text
    raise invalid(f"is not {found.name}", found.form, where=field)
