"""Measures what this program costs, each figure beside a reference that is measured in the same run."""
