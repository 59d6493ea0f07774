"""Checks of a host: facts are read at the edge, findings follow from them alone."""
