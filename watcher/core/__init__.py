"""Pure rules: what can happen in a session, what follows, and why. Standard library only."""
