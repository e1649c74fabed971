"""The kinds of evidence by which `core.redact` finds secrets."""
