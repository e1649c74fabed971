"""The configuration (design 5): its model, its sources and their order, and where each value came from."""

from watcher.config.apart import load_config_apart
from watcher.config.editing import save_values
from watcher.config.model import (
    BudgetConfig,
    Config,
    HooksConfig,
    LoadedConfig,
    LogConfig,
    ModelConfig,
    PrivacyConfig,
    RecapConfig,
    TitleConfig,
    WatchConfig,
    config_fields,
    env_variable,
)
from watcher.config.sources import load_config
from watcher.config.text import config_table_markdown, default_config_text, display_value
from watcher.paths import config_dir, config_path, runtime_dir, socket_path, state_dir

__all__ = [
    "BudgetConfig",
    "Config",
    "HooksConfig",
    "LoadedConfig",
    "LogConfig",
    "ModelConfig",
    "PrivacyConfig",
    "RecapConfig",
    "TitleConfig",
    "WatchConfig",
    "config_dir",
    "config_fields",
    "config_path",
    "config_table_markdown",
    "default_config_text",
    "display_value",
    "env_variable",
    "load_config",
    "load_config_apart",
    "runtime_dir",
    "save_values",
    "socket_path",
    "state_dir",
]
