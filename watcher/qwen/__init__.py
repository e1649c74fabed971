"""Everything that spells a field, path or rule of Qwen Code's own files."""
