"""Whether a host is able: facts are read at the edge, findings follow from them alone."""
