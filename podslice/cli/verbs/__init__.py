"""The verbs: one module per verb."""
