"""The configuration: options from files and flags to one value."""
