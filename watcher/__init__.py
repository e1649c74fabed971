"""Titles and away recaps for Qwen Code sessions, written from outside."""

__version__ = "0.1.0"
