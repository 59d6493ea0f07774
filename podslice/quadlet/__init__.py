"""Units for podman's generator, from what runs in pods and what policy decides about them."""
