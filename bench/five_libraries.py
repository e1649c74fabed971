"""Reference: Python with only the five required libraries imported, as small as an import of them can be."""

import signal
import sys

import httpx  # noqa: F401
import psutil  # noqa: F401
import pydantic  # noqa: F401
import structlog  # noqa: F401
import watchdog  # noqa: F401

sys.stderr.write("ready\n")
sys.stderr.flush()
signal.pause()
