"""The library functions of the service, called as another user: reads a JSON request on stdin, prints a JSON answer."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))

from watcher.errors import ServiceError  # the copy beside this file comes first
from watcher.service import InstallRequest, carried_variables, find_manager


def main() -> None:
    """One action: `install`, `uninstall` or `status`."""
    request = json.load(sys.stdin)
    try:
        manager = find_manager(os.environ)
        if request["action"] == "install":
            carried = carried_variables(os.environ)
            install = InstallRequest(tuple(request["command"]), carried, request.get("stored", {}))
            answer: object = manager.install(install)
        else:
            answer = manager.uninstall() if request["action"] == "uninstall" else manager.status()
    except ServiceError as error:
        json.dump({"error": str(error)}, sys.stdout)
        return
    assert dataclasses.is_dataclass(answer)
    assert not isinstance(answer, type)
    json.dump(dataclasses.asdict(answer), sys.stdout, default=str)


if __name__ == "__main__":
    main()
