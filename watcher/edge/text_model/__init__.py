"""The text model over HTTP: asks the user's endpoint for a title or a recap, and never more often than needed.

Importing this package loads neither httpx nor asyncio; the first call does.
"""

from watcher.edge.text_model.abort import Abort
from watcher.edge.text_model.apart import in_another_process
from watcher.edge.text_model.client import Budget, LearnedStore, TextModelClient, probe
from watcher.edge.text_model.endpoint import DEFAULT_BASE_URLS, Endpoint, WireApi, setup_problem
from watcher.edge.text_model.exchange import Connect, in_this_process
from watcher.edge.text_model.gate import Gate, NotAsked
from watcher.edge.text_model.learned import Learned
from watcher.edge.text_model.network import network_problems

__all__ = [
    "DEFAULT_BASE_URLS",
    "Abort",
    "Budget",
    "Connect",
    "Endpoint",
    "Gate",
    "Learned",
    "LearnedStore",
    "NotAsked",
    "TextModelClient",
    "WireApi",
    "in_another_process",
    "in_this_process",
    "network_problems",
    "probe",
    "setup_problem",
]
