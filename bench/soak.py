"""`python -m bench.soak`: months of use in minutes. Sessions come, grow, are renamed, archived and deleted, the model
fails, the configuration is read again; memory, descriptors, threads, database and queue are printed over time.

The service is made to wait shorter where it waits for minutes or hours (`ACCELERATED`); nothing else is changed.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.load import Session
from bench.process import MIB, Running, probed_service
from bench.stage import TEXT
from bench.tree import Tree, make_uuid
from tests.support.chat_server import ChatRequest, ChatServer, Kind, Reply
from watcher.qwen.contract import ARCHIVE_DIR

RESULTS = Path(__file__).with_name("soak.md")
ACCELERATED = {
    "watcher.pipeline.FORGET_SECONDS": 3.0,
    "watcher.lookout.RECONCILE_SECONDS": 5.0,
    "watcher.daemon.DAY_SECONDS": 20.0,
    "watcher.calls.HELD_SECONDS": 1.0,
    "watcher.edge.text_model.gate.OUTAGE_FIRST_SECONDS": 0.2,
    "watcher.edge.text_model.gate.OUTAGE_LONGEST_SECONDS": 1.0,
    "watcher.edge.text_model.gate.BUSY_FIRST_SECONDS": 0.2,
    "watcher.edge.text_model.gate.BUSY_LONGEST_SECONDS": 1.0,
    "watcher.edge.text_model.gate.RECHECK_SECONDS": 5.0,
}
OPEN_SESSIONS = 60
"""So many sessions grow at the same time."""
INTERACTIVE = 0.03
"""The share of sessions in which somebody sits, and which so get a title: each costs a call of the model."""
RECORDS_A_SECOND = 1500.0
TITLE = "Repair the login form"
MAX_RSS_RATIO = 1.05
QUIET_SECONDS = 4.0
"""A moment counts as quiet after so long without work."""
FAILURES = (
    Reply(status=500, text="no"),
    Reply(status=429, text="slowly", headers={"Retry-After": "1"}),
    Reply(raw=b"{not json"),
    Reply(drop=True),
    Reply(text=""),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """The service at one moment at which nothing was going on."""

    records: int
    sessions: int
    rss: int
    descriptors: int
    threads: int
    database: int
    waiting: int
    known: int
    titles: int
    failures: int

    def row(self) -> str:
        """As a row of the table."""
        cells = (
            f"{self.records}",
            f"{self.sessions}",
            f"{self.rss / MIB:.1f} MiB",
            f"{self.descriptors}",
            f"{self.threads}",
            f"{self.database / MIB:.2f} MiB",
            f"{self.waiting}",
            f"{self.known}",
            f"{self.titles}",
            f"{self.failures}",
        )
        return f"| {' | '.join(cells)} |"


HEADER = (
    "| records | sessions | RSS | descriptors | threads | database | queue, most | known sessions | titles | failed |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


class Soak:
    """One run of the service under a simulated user."""

    def __init__(
        self,
        folder: Path,
        *,
        records: int,
        sessions: int,
        samples: int,
        interactive: float = INTERACTIVE,
        quiet_seconds: float = QUIET_SECONDS,
        seed: int = 11,
    ) -> None:
        self._folder = folder
        self._interactive = interactive
        self._quiet_seconds = quiet_seconds
        self._records = records
        self._sessions = sessions
        self._every = max(1, records // samples)
        self._rng = random.Random(seed)
        self._tree = Tree(folder / "home", sessions, max(4, min(200, sessions // 20)), 0)
        self._open: deque[tuple[Session, int]] = deque()
        self._begun = 0
        self._written = 0
        self._most_waiting = 0
        self._gauge = folder / "gauge.json"

    def run(self) -> Iterator[Sample]:
        """Live through it; yields a sample at the start of quiet and after each part."""
        for number in range(self._tree.projects):
            self._tree.chats(number).mkdir(parents=True)
        with ChatServer(title=TITLE) as server:
            server.respond = self._respond
            settings: dict[str, object] = {
                "model.source": "explicit",
                "model.name": "soak-model",
                "model.base_url": server.base_url,
                "title.settle_seconds": 0.2,
                "budget.calls_per_day": 1_000_000,
            }
            state = self._folder / "state"
            with probed_service(
                self._tree.home,
                state,
                self._folder / "probe.json",
                settings,
                constants=ACCELERATED,
                gauge=str(self._gauge),
            ) as running:
                while self._written < self._records:
                    self._live(min(self._written + self._every, self._records))
                    running.hang_up()
                    yield self._sample(running, state)
                running.stop()
        for session, _ in self._open:
            session.close()

    def _respond(self, request: ChatRequest) -> Reply | None:
        if self._rng.random() < 0.2:
            return self._rng.choice(FAILURES)
        # After a failure the title may be asked for in plain words.
        return None if request.kind is Kind.TITLE else Reply(text=TITLE)

    def _live(self, until: int) -> None:
        begun, before = time.monotonic(), self._written
        length = max(3, self._records // self._sessions)
        while self._written < until:
            while len(self._open) < min(OPEN_SESSIONS, self._sessions) and self._begun < self._sessions:
                self._open.append((self._begin(), self._rng.randint(length // 2, length * 3 // 2)))
            session, left = self._open.popleft()
            self._grow(session)
            if left > 1 or self._begun >= self._sessions:
                self._open.append((session, left - 1))
            else:
                self._end(session)
            ahead = (self._written - before) / RECORDS_A_SECOND - (time.monotonic() - begun)
            if ahead > 0.01:
                time.sleep(ahead)
                self._look_at_gauge()

    def _begin(self) -> Session:
        project = self._rng.randrange(self._tree.projects)
        session_id = make_uuid(self._rng)
        path = self._tree.chats(project) / f"{session_id}.jsonl"
        self._begun += 1
        session = Session(self._rng, path, session_id, f"/home/user/proj{project:03d}")
        if self._rng.random() < self._interactive:
            session.turn(TEXT[:500])
            self._written += 3
        return session

    def _grow(self, session: Session) -> None:
        kind = self._rng.choice(("user", "assistant", "tool_result", "telemetry"))
        session.append(session.line(TEXT[: self._rng.randrange(50, len(TEXT))], kind))
        self._written += 1

    def _end(self, session: Session) -> None:
        """The session's fate: renamed by its user, archived, deleted, its file moved there and back, or left alone."""
        session.append(session.line("Done.", "assistant"))
        self._written += 1
        fate = self._rng.random()
        if fate < 0.2:
            session.append(session.line(f"My own name {self._begun}", "title"))
            self._written += 1
        session.close()
        if fate < 0.4:
            return
        if fate < 0.6:
            archive = session.path.parent / ARCHIVE_DIR
            archive.mkdir(exist_ok=True)
            session.path.rename(archive / session.path.name)
        elif fate < 0.9:
            session.path.unlink()
        else:
            aside = session.path.with_suffix(".bak")
            session.path.rename(aside)
            aside.rename(session.path)

    def _look_at_gauge(self) -> dict[str, int]:
        found: dict[str, int] = json.loads(self._gauge.read_text()) if self._gauge.exists() else {}
        self._most_waiting = max(self._most_waiting, found.get("waiting", 0))
        return found

    def _sample(self, running: Running, state: Path) -> Sample:
        """Wait until nothing is going on, then look."""
        now = time.monotonic()
        busy_at, deadline = now, now + 30.0
        while now < min(busy_at + self._quiet_seconds, deadline):
            before = running.cpu()
            time.sleep(0.25)
            now = time.monotonic()
            if running.cpu() - before > 0.01:
                busy_at = now
        gauge = self._look_at_gauge()
        most, self._most_waiting = self._most_waiting, 0
        return Sample(
            records=self._written,
            sessions=self._begun,
            rss=running.rss(),
            descriptors=running.descriptors(),
            threads=running.threads(),
            database=sum(path.stat().st_size for path in state.glob("*.db*")),
            waiting=most,
            known=gauge.get("known", 0),
            titles=running.count('"title_written"'),
            failures=running.count('"title_failed"'),
        )


def faults(samples: list[Sample]) -> list[str]:
    """What is not as it should be; empty when nothing is. The first sample is the one after the first tenth."""
    first, rest = samples[0], samples[1:]
    found = []
    if rest[-1].rss > MAX_RSS_RATIO * first.rss:
        found.append(f"RSS grew to {rest[-1].rss / first.rss:.3f} of what it was after the first tenth")
    for name in ("descriptors", "threads"):
        values = {getattr(sample, name) for sample in samples}
        if len(values) > 1:
            found.append(f"the number of {name} was not constant: {sorted(values)}")
    return found


def main() -> int:
    """Exit code 0 when memory, descriptors and threads stayed what they were, 1 when not."""
    options = _options()
    if sys.platform != "linux":
        raise SystemExit("only on Linux: processes are measured through /proc")
    folder = Path(tempfile.mkdtemp(prefix="qwen-watcher-soak-"))
    begun = time.monotonic()
    samples: list[Sample] = []
    print(HEADER, flush=True)
    try:
        soak = Soak(folder, records=options.records, sessions=options.sessions, samples=options.samples)
        for sample in soak.run():
            samples.append(sample)
            print(sample.row(), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    problems = faults(samples)
    minutes = (time.monotonic() - begun) / 60
    now = datetime.now(UTC).strftime("%Y-%m-%d")
    ratio = samples[-1].rss / samples[0].rss
    verdict = "; ".join(problems) if problems else "descriptors and threads were constant"
    summary = (
        f"RSS at the end: {ratio:.3f} of that after the first {100 // options.samples} % (goal ≤ {MAX_RSS_RATIO:g}); "
        f"{verdict}."
    )
    print(f"\n{summary}")
    if not options.dry:
        rows = "\n".join(sample.row() for sample in samples)
        head = f"Made by `make soak` on {now} in {minutes:.0f} min. {summary}"
        RESULTS.write_text(f"# Endurance run\n\n{head}\n\n{HEADER}\n{rows}\n")
    return int(bool(problems))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=10, help="so many parts, a sample after each")
    parser.add_argument("--dry", action="store_true", help="write no result file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
