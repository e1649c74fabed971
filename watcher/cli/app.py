"""The commands, their options and their help. What each does stands in the module named after it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from watcher import __version__
from watcher.cli.ending import INTERRUPTED, exit_code_of
from watcher.errors import UsageError

PROGRAM = "qwen-watcher"

app = typer.Typer(
    name=PROGRAM,
    help="Titles and away recaps for Qwen Code sessions, written from outside.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _complete_session(incomplete: str) -> list[tuple[str, str]]:
    from watcher.cli.completion import complete_session  # noqa: PLC0415

    return complete_session(incomplete)


def _complete_kind(incomplete: str) -> list[str]:
    return [kind for kind in ("title", "recap") if kind.startswith(incomplete)]


Session = Annotated[
    str,
    typer.Argument(
        metavar="S",
        help="A session id, a unique id prefix, a file path or `latest`.",
        autocompletion=_complete_session,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout, for scripts.")]


ShowRequest = Annotated[
    bool, typer.Option("--show-request", help="Print what would be sent to the model, key hidden; send nothing.")
]


def main(arguments: Sequence[str]) -> int:
    """Run one command. Returns the exit code: 0 done, 1 failed, 2 wrong usage or configuration, 130 interrupted."""
    return exit_code_of(lambda: _run(arguments))


def _run(arguments: Sequence[str]) -> object:
    try:
        return app(list(arguments) or ["--help"], prog_name=PROGRAM, standalone_mode=False)
    except typer.Abort:
        return INTERRUPTED
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else PROGRAM
        raise UsageError(f"{error.format_message()} (see `{command} --help`)") from error


def _version(value: bool) -> None:
    if value:
        typer.echo(f"qwen-watcher {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Titles and away recaps for Qwen Code sessions, written from outside."""


def _example(text: str) -> dict[str, Any]:
    return {"epilog": f"Example: {text}"}


@app.command(**_example("qwen-watcher run --dry-run"))
def run(
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Another configuration file.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide and log; call nothing, write nothing.")] = False,
    log_format: Annotated[str | None, typer.Option(metavar="console|json|auto", help="How log lines look.")] = None,
    log_level: Annotated[str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")] = None,
) -> int:
    """Watch the sessions, in the foreground. This is what the services start."""
    from watcher.cli.run import run_watcher  # noqa: PLC0415

    return run_watcher(config=config, dry_run=dry_run, log_format=log_format, log_level=log_level)


@app.command(**_example("qwen-watcher demo"))
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Keep the throw-away home and say where it is.")] = False,
) -> int:
    """See the main job in half a minute. A scripted session in a throw-away home gets its title and recap."""
    from watcher.cli.demo import demo as show  # noqa: PLC0415

    return show(keep=keep)


@app.command(**_example("qwen-watcher sessions --limit 10"))
def sessions(
    as_json: AsJson = False,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="At most so many (50).")] = None,
    project: Annotated[Path | None, typer.Option(metavar="PATH", help="Only sessions of this directory.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All sessions, `-p` runs included.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every two seconds.")] = False,
) -> int:
    """List the sessions, newest first. Title, project, state, last activity and recap of each."""
    from watcher.cli.sessions import show_sessions  # noqa: PLC0415

    return show_sessions(as_json=as_json, limit=limit, project=project, every=every, watch=watch)


@app.command(**_example("qwen-watcher tail -f --kind recap"))
def tail(
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with what is written from now on.")] = False,
    as_json: AsJson = False,
    kind: Annotated[
        str | None,
        typer.Option(metavar="title|recap", help="Only titles or only recaps.", autocompletion=_complete_kind),
    ] = None,
    session: Annotated[
        str | None, typer.Option(metavar="S", help="Only this session.", autocompletion=_complete_session)
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="2h", help="Only what is younger: 30m, 2h, 7d.")] = None,
) -> int:
    """Show what was written, newest last."""
    from watcher.cli.tail import show_tail  # noqa: PLC0415

    return show_tail(follow=follow, as_json=as_json, kind=kind, session=session, since=since)


@app.command(**_example("qwen-watcher status"))
def status(as_json: AsJson = False) -> int:
    """Is it running, and what did it do. What it watches, what it wrote, what is left of the budget."""
    from watcher.cli.status import show_status  # noqa: PLC0415

    return show_status(as_json=as_json)


@app.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    **_example('qwen-watcher title latest "Fix the login test"'),
)
def title(
    context: typer.Context,
    session: Session,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Your own name; `-- NAME` for one with a word that starts with a dash."),
    ] = None,
    auto: Annotated[bool, typer.Option("--auto", help="Let the model find one now, also over your own.")] = False,
    show_request: ShowRequest = False,
) -> int:
    """Name a session, or with --auto let the model name it now."""
    from watcher.cli.generate import AUTO, SHOW_REQUEST, title_session  # noqa: PLC0415

    if words and words[0] in context.help_option_names:
        typer.echo(context.get_help())
        return 0
    # What stands behind S arrives as it is, since `--` means something there; in front of it, as flags.
    flags = [flag for flag, given in ((AUTO, auto), (SHOW_REQUEST, show_request)) if given]
    return title_session([*flags, session, *(words or [])])


@app.command(**_example("qwen-watcher recap latest --write"))
def recap(
    session: Session,
    write: Annotated[bool, typer.Option("--write", help="Also record it in the session.")] = False,
    show_request: ShowRequest = False,
) -> int:
    """Print a recap of a session now."""
    from watcher.cli.generate import recap_session  # noqa: PLC0415

    return recap_session(session, write=write, show_request=show_request)


@app.command(**_example("qwen-watcher why latest"))
def why(session: Session, as_json: AsJson = False) -> int:
    """Why a session has, or has not, a title or recap. Every guard in order, and what would change it."""
    from watcher.cli.why import show_why  # noqa: PLC0415

    return show_why(session, as_json=as_json)


@app.command(**_example("qwen-watcher history latest"))
def history(session: Session, as_json: AsJson = False) -> int:
    """What was written to a session, oldest first."""
    from watcher.cli.history import show_history  # noqa: PLC0415

    return show_history(session, as_json=as_json)


@app.command(**_example("qwen-watcher undo latest"))
def undo(session: Session) -> int:
    """Put back the title that was there before ours. The session is never titled automatically again."""
    from watcher.cli.history import undo_session  # noqa: PLC0415

    return undo_session(session)


@app.command(**_example("qwen-watcher pause --for 2h"))
def pause(
    span: Annotated[
        str | None, typer.Option("--for", metavar="2h", help="End the pause by itself: 30m, 2h, 7d.")
    ] = None,
) -> int:
    """Stop all automatic writing. Also across restarts, until `resume` or the end of the span."""
    from watcher.cli.pause import pause_writing  # noqa: PLC0415

    return pause_writing(span)


@app.command(**_example("qwen-watcher resume"))
def resume() -> int:
    """End a pause."""
    from watcher.cli.pause import resume_writing  # noqa: PLC0415

    return resume_writing()


@app.command(**_example("qwen-watcher backfill --since 30d --dry-run"))
def backfill(
    since: Annotated[str, typer.Option(metavar="30d", help="Sessions with activity since then.")] = "30d",
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="At most so many.")] = None,
    project: Annotated[Path | None, typer.Option(metavar="PATH", help="Only sessions of this directory.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Also sessions whose attempts are used up.")] = False,
) -> int:
    """Title old sessions that have no title."""
    from watcher.cli.backfill import backfill_titles  # noqa: PLC0415

    return backfill_titles(since=since, limit=limit, project=project, dry_run=dry_run, yes=yes, retry=retry)


@app.command(**_example("qwen-watcher statusline --cwd ."))
def statusline(
    cwd: Annotated[Path | None, typer.Option(metavar="PATH", help="The project (the current directory).")] = None,
    shown_in: Annotated[
        Literal["plain", "tmux", "zsh"],
        typer.Option("--format", help="Who shows it: tmux and zsh would read commands in it."),
    ] = "plain",
) -> int:
    """One short line for tmux or a prompt. Title, state and recap of the newest session there."""
    from watcher.cli.statusline import main as show  # noqa: PLC0415

    return show([f"--format={shown_in}", *([] if cwd is None else [f"--cwd={cwd}"])])


@app.command(**_example("qwen-watcher doctor"))
def doctor(
    probe: Annotated[bool, typer.Option("--probe", help="Also make one tiny model call.")] = False,
    as_json: AsJson = False,
) -> int:
    """Check all that could keep it from working. Each with its fix."""
    from watcher.cli.doctor import show_doctor  # noqa: PLC0415

    return show_doctor(probe=probe, as_json=as_json)


service_app = typer.Typer(
    help="The user service, on systemd or launchd.", rich_markup_mode=None, **_example("qwen-watcher service status")
)
app.add_typer(service_app, name="service", context_settings={"help_option_names": ["-h", "--help"]})


@service_app.command(**_example("qwen-watcher service install --enable-recaps"))
def install(
    enable_recaps: Annotated[
        bool, typer.Option("--enable-recaps", help="Turn recaps on in the configuration.")
    ] = False,
    store_key: Annotated[
        bool, typer.Option("--store-key", help="Store the model's key for the service, in a file only you can read.")
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(metavar="extractive|NAME", help="Without a fast model: the offline one, or this explicit one."),
    ] = None,
    base_url: Annotated[str | None, typer.Option(metavar="URL", help="Where the explicit model answers.")] = None,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="Variable that holds the explicit model's key.")
    ] = None,
) -> int:
    """Install, enable and start the service; run it again to repair or upgrade."""
    from watcher.cli.service import install_service  # noqa: PLC0415

    return install_service(
        enable_recaps=enable_recaps, store_key=store_key, model=model, base_url=base_url, api_key_env=api_key_env
    )


@service_app.command(**_example("qwen-watcher service uninstall"))
def uninstall() -> int:
    """Stop the service and remove exactly what `install` made."""
    from watcher.cli.service import uninstall_service  # noqa: PLC0415

    return uninstall_service()


@service_app.command("status", **_example("qwen-watcher service status"))
def service_status() -> int:
    """Is the service installed, enabled and running."""
    from watcher.cli.service import show_service  # noqa: PLC0415

    return show_service()


@service_app.command(**_example("qwen-watcher service logs -f"))
def logs(
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with what comes.")] = False,
    lines: Annotated[int, typer.Option("-n", "--lines", metavar="N", min=0, help="So many lines back.")] = 50,
) -> int:
    """Show the service's log."""
    from watcher.cli.service import show_logs  # noqa: PLC0415

    return show_logs(follow=follow, lines=lines)


config_app = typer.Typer(help="The configuration.", rich_markup_mode=None, **_example("qwen-watcher config show"))
app.add_typer(config_app, name="config", context_settings={"help_option_names": ["-h", "--help"]})


@config_app.command("show", **_example("qwen-watcher config show"))
def config_show(as_json: AsJson = False) -> int:
    """The configuration in force, and where each value came from; secrets hidden."""
    from watcher.cli.config import show_config  # noqa: PLC0415

    return show_config(as_json=as_json)


@config_app.command("path", **_example("qwen-watcher config path"))
def config_path() -> int:
    """Where the configuration file is, or would be."""
    from watcher.cli.config import show_path  # noqa: PLC0415

    return show_path()


@config_app.command("init", **_example("qwen-watcher config init"))
def config_init(
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> int:
    """Write a commented configuration file with every key."""
    from watcher.cli.config import init_config  # noqa: PLC0415

    return init_config(force=force)
