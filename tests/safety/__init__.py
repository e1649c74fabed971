"""Proof that no session is harmed: a model check of two writers, faults on the real write path, and mutants.

`python -m tests.safety` (`make safety`) runs all of it and prints what was checked; the tests here run a bounded form.
"""
