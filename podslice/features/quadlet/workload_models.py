"""The fields of a pod's workload, as pydantic models: types only, no other rules.

Only verbs that start containers read them. `workload_fields` reports fields that no model has.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PlainValidator
from pydantic.alias_generators import to_camel

from podslice.inputs.budget import POD_CONTAINERS_MAX, POD_VOLUMES_MAX, WORKLOAD_ENTRIES_MAX
from podslice.inputs.manifest.schema import Amount, Int, Seconds, Text, bound
from podslice.inputs.scalars import read_flag, read_mode, read_port

ENTRIES = bound(WORKLOAD_ENTRIES_MAX)
Flag = Annotated[bool, PlainValidator(read_flag)]
Mode = Annotated[int, PlainValidator(read_mode)]
PortNumber = Annotated[int | str, PlainValidator(read_port)]
Texts = Annotated[list[Text], ENTRIES]


class Fields(BaseModel):
    """A mapping of a manifest; names are in camel case there."""

    # built when a workload is read, which most verbs do not do: 20 ms
    model_config = ConfigDict(
        extra="ignore", strict=True, alias_generator=to_camel, defer_build=True
    )


class ObjectRef(Fields):
    """A ConfigMap or Secret: `configMapRef`, `secretRef`."""

    name: Text | None = None
    optional: Flag | None = None


class KeyRef(ObjectRef):
    """A key in a ConfigMap or Secret."""

    key: Text | None = None


class FieldRef(Fields):
    """A field of the pod."""

    field_path: Text | None = None
    api_version: Text | None = None


class ResourceFieldRef(Fields):
    """An amount of a container, in units of a divisor."""

    container_name: Text | None = None
    resource: Text | None = None
    divisor: Amount | None = None


class ValueFrom(Fields):
    """The source of a variable."""

    config_map_key_ref: KeyRef | None = None
    secret_key_ref: KeyRef | None = None
    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None


class NameValue(Fields):
    """A variable, a header of a request, a kernel parameter or an option of the resolver."""

    name: Text | None = None
    value: Text | None = None


class EnvVar(NameValue):
    """One variable."""

    value_from: ValueFrom | None = None


class EnvFrom(Fields):
    """All keys of a ConfigMap or Secret as variables."""

    prefix: Text | None = None
    config_map_ref: ObjectRef | None = None
    secret_ref: ObjectRef | None = None


class PortFields(Fields):
    """One port."""

    name: Text | None = None
    container_port: Int | None = None
    host_port: Int | None = None
    host_ip: Text | None = Field(default=None, alias="hostIP")
    protocol: Text | None = None


class MountFields(Fields):
    """One entry of `volumeMounts`."""

    name: Text | None = None
    mount_path: Text | None = None
    read_only: Flag | None = None
    sub_path: Text | None = None
    mount_propagation: Text | None = None


class ExecFields(Fields):
    """`exec`."""

    command: Texts | None = None


class HttpGetFields(Fields):
    """`httpGet`."""

    port: PortNumber | None = None
    path: Text | None = None
    scheme: Text | None = None
    host: Text | None = None
    http_headers: Annotated[list[NameValue], ENTRIES] | None = None


class TcpSocketFields(Fields):
    """`tcpSocket`."""

    port: PortNumber | None = None
    host: Text | None = None


class SleepFields(Fields):
    """`sleep`."""

    seconds: Seconds | None = None


class HandlerFields(Fields):
    """An action of a lifecycle."""

    exec: ExecFields | None = None
    sleep: SleepFields | None = None


class LifecycleFields(Fields):
    """`lifecycle`."""

    post_start: HandlerFields | None = None
    pre_stop: HandlerFields | None = None
    stop_signal: Text | None = None


class ProbeFields(Fields):
    """One probe."""

    exec: ExecFields | None = None
    http_get: HttpGetFields | None = None
    tcp_socket: TcpSocketFields | None = None
    initial_delay_seconds: Seconds | None = None
    period_seconds: Seconds | None = None
    timeout_seconds: Seconds | None = None
    success_threshold: Seconds | None = None
    failure_threshold: Seconds | None = None


class CapabilityFields(Fields):
    """`capabilities`."""

    add: Texts | None = None
    drop: Texts | None = None


class ProfileFields(Fields):
    """A profile of seccomp or AppArmor."""

    type: Text | None = None
    localhost_profile: Text | None = None


class SELinuxFields(Fields):
    """`seLinuxOptions`."""

    user: Text | None = None
    role: Text | None = None
    type: Text | None = None
    level: Text | None = None


class _CommonSecurity(Fields):
    run_as_user: Int | None = None
    run_as_group: Int | None = None
    run_as_non_root: Flag | None = None
    seccomp_profile: ProfileFields | None = None
    app_armor_profile: ProfileFields | None = None
    se_linux_options: SELinuxFields | None = None


class SecurityFields(_CommonSecurity):
    """`securityContext` of a container."""

    capabilities: CapabilityFields | None = None
    privileged: Flag | None = None
    read_only_root_filesystem: Flag | None = None
    allow_privilege_escalation: Flag | None = None
    proc_mount: Text | None = None


class PodSecurityFields(_CommonSecurity):
    """`securityContext` of a pod."""

    supplemental_groups: Annotated[list[Int], ENTRIES] | None = None
    sysctls: Annotated[list[NameValue], ENTRIES] | None = None


class ContainerWorkloadFields(Fields):
    """One container of any kind."""

    name: Text | None = None
    image: Text | None = None
    image_pull_policy: Text | None = None
    command: Texts | None = None
    args: Texts | None = None
    working_dir: Text | None = None
    env: Annotated[list[EnvVar], ENTRIES] | None = None
    env_from: Annotated[list[EnvFrom], ENTRIES] | None = None
    ports: Annotated[list[PortFields], ENTRIES] | None = None
    volume_mounts: Annotated[list[MountFields], ENTRIES] | None = None
    liveness_probe: ProbeFields | None = None
    readiness_probe: ProbeFields | None = None
    startup_probe: ProbeFields | None = None
    lifecycle: LifecycleFields | None = None
    security_context: SecurityFields | None = None
    restart_policy: Text | None = None
    tty: Flag | None = None


class ItemFields(Fields):
    """A key of a ConfigMap or Secret, and the path of its file."""

    key: Text | None = None
    path: Text | None = None
    mode: Mode | None = None


Items = Annotated[list[ItemFields], ENTRIES]


class DataVolumeFields(Fields):
    """A ConfigMap as a volume, or in a projected one."""

    name: Text | None = None
    items: Items | None = None
    default_mode: Mode | None = None
    optional: Flag | None = None


class SecretVolumeFields(Fields):
    """A Secret as a volume."""

    secret_name: Text | None = None
    items: Items | None = None
    default_mode: Mode | None = None
    optional: Flag | None = None


class ProjectionFields(Fields):
    """One source of a projected volume."""

    config_map: DataVolumeFields | None = None
    secret: DataVolumeFields | None = None


class ProjectedFields(Fields):
    """A projected volume."""

    sources: Annotated[list[ProjectionFields], ENTRIES] | None = None
    default_mode: Mode | None = None


class EmptyDirSourceFields(Fields):
    """`emptyDir`; the size of a volume in memory is read with the resources."""

    medium: Text | None = None
    size_limit: object = None


class HostPathFields(Fields):
    """`hostPath`."""

    path: Text | None = None
    type: Text | None = None


class ClaimFields(Fields):
    """`persistentVolumeClaim`."""

    claim_name: Text | None = None
    read_only: Flag | None = None


class VolumeSourceFields(Fields):
    """One volume."""

    name: Text | None = None
    empty_dir: EmptyDirSourceFields | None = None
    host_path: HostPathFields | None = None
    persistent_volume_claim: ClaimFields | None = None
    config_map: DataVolumeFields | None = None
    secret: SecretVolumeFields | None = None
    projected: ProjectedFields | None = None


class DnsFields(Fields):
    """`dnsConfig`."""

    nameservers: Texts | None = None
    searches: Texts | None = None
    options: Annotated[list[NameValue], ENTRIES] | None = None


class HostAliasFields(Fields):
    """One entry of `hostAliases`."""

    ip: Text | None = None
    hostnames: Texts | None = None


Containers = Annotated[list[ContainerWorkloadFields], bound(POD_CONTAINERS_MAX)]


class WorkloadFields(Fields):
    """`spec` of a pod."""

    containers: Containers | None = None
    init_containers: Containers | None = None
    volumes: Annotated[list[VolumeSourceFields], bound(POD_VOLUMES_MAX)] | None = None
    restart_policy: Text | None = None
    host_network: Flag | None = None
    host_pid: Flag | None = Field(default=None, alias="hostPID")
    host_users: Flag | None = None
    share_process_namespace: Flag | None = None
    hostname: Text | None = None
    dns_policy: Text | None = None
    dns_config: DnsFields | None = None
    host_aliases: Annotated[list[HostAliasFields], ENTRIES] | None = None
    security_context: PodSecurityFields | None = None


class DataFields(Fields):
    """A ConfigMap or a Secret."""

    data: dict[str, Text | None] | None = None
    string_data: dict[str, Text | None] | None = None
    binary_data: dict[str, Text | None] | None = None
