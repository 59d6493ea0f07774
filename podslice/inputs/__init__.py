"""Text → model: manifests and configuration. The only package that knows YAML, TOML and pydantic."""
