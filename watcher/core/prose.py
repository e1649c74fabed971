"""What somebody wrote by hand in a message, apart from the code, logs, traces and diffs that were pasted into it."""

from __future__ import annotations

import re

_FENCED = re.compile(r"(?:```|~~~).*?(?:```|~~~|\Z)", re.DOTALL)
_DIFF_START = re.compile(r"diff --git |--- a/|\+\+\+ b/|@@ -\d|Index: \S+$")
_DIFF_LINE = re.compile(r"[-+ @\\]|index |new file|deleted file|similarity|rename ")
_TRACE_START = re.compile(
    r"\s*(?:Traceback \(most recent call last\)|Exception in thread |panic: |goroutine \d+ \[|thread '.{1,80}' panick)"
)
_TRACE_LINE = re.compile(
    r"\s+\S|\s*at \S+|\s*File \"|During handling of|The above exception|Caused by:|\s*\.\.\. \d+ more"
)
ERROR_LINE = re.compile(
    r"\s*(?:[\w.$/]{1,80}\.)?([A-Z]\w{0,60}(?:Error|Exception|Warning|Failure))\b\s*:?\s*(.{0,300})"
)
"""The line in which a trace says what went wrong: name (last dotted part) and message."""
_NOISE_LINE = re.compile(
    r"\s*(?:"
    r"[$%>] \S|>>> |\.\.\. |-->|\|\s"  # prompts and continuations
    r"|at \S+ ?\(|File \"[^\"]+\", line \d"
    r"|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\d\d:\d\d:\d\d\b"  # time stamps
    r"|(?:fatal|error|warning|warn|info|debug|trace|failure|e\d{3,4}|npm err!|caused by)\b ?(?:\[[^\]]*\] ?|ts\d+)?:"
    r"|(?:symbol|location|required|found|note|help|hint): {2,}"
    r"|\d+ (?:error|warning|failed|passed|problem)s?\b"
    r"|[{}\[\]();,<>/*|=+-]+$"
    r"|(?:import|from|package|using|const|let|var|private|public|return)\b.*[;{]$"
    r"|(?:def \w+\(|class \w+[:({]|func \w+\(|fn \w+\(|#include )"
    r"|(?-i:SELECT|INSERT|UPDATE|CREATE|DELETE) .*;$"
    r")",
    re.IGNORECASE,
)
FAILURE_LINE = re.compile(
    r"\s*(?:"
    r"(?:fatal|error|failure|npm err!)\b[^:\n]{0,40}:"
    r"|\[?\d[\d:.,TZ/ +-]{5,30}\]?\s{1,4}(?:\[[^\]\n]{1,40}\]\s{1,4}){0,3}\[?(?:error|fatal|critical|severe)\]?:?"
    r"(?:\s{1,4}\[[^\]\n]{1,40}\])*(?:\s{1,4}[\w.$-]{1,80}\s?[-:](?=\s))?"
    r")\s*(.{1,300})",
    re.IGNORECASE,
)
"""A log line that says that something failed: its message."""
_SYMBOLS = re.compile(r"[{}();=<>|\\\[\]$&*+^~]")
_MOST_SYMBOLS = 0.12
_SYMBOLS_COUNT_FROM = 12


def without_code(text: str) -> str:
    """`text` without fenced code, diffs, stack traces, shell and log lines; what was cut out leaves a line break.

    Lines are stripped; blank ones stay as borders. Linear in the length of the text.
    """
    kept: list[str] = []
    in_diff = in_trace = False
    for line in _FENCED.sub("\n\n", text).split("\n"):
        if not line.strip():
            in_diff = in_trace = False
            kept.append("")
            continue
        if _DIFF_START.match(line):
            in_diff = True
        elif in_diff and not _DIFF_LINE.match(line):
            in_diff = False
        if _TRACE_START.match(line):
            in_trace = True
            continue
        if in_trace and not _TRACE_LINE.match(line):
            in_trace = ERROR_LINE.match(line) is not None
        if in_diff or in_trace or ERROR_LINE.fullmatch(line) or _NOISE_LINE.match(line.rstrip()) or _is_code(line):
            kept.append("")
        else:
            kept.append(line.strip())
    return "\n".join(kept).strip()


def _is_code(line: str) -> bool:
    return len(line) >= _SYMBOLS_COUNT_FROM and len(_SYMBOLS.findall(line)) > len(line) * _MOST_SYMBOLS
