"""Units for podman's generator, from the workloads of pods and the decisions of policy."""
