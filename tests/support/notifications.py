"""A stand-in for a desktop: the session bus and the notification service on it, in one thread, for one `notify-send`.

Speaks as much of D-Bus as that needs (specification, "Message Protocol" and "Authentication Protocol"): every call is
answered, and what `Notify` was called with is kept.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

_CALL, _REPLY, _ERROR = 1, 2, 3
_MEMBER, _ERROR_NAME, _REPLY_SERIAL, _SIGNATURE = 3, 4, 5, 8
_NUMBERS = {"y": "B", "n": "h", "q": "H", "i": "i", "u": "I", "b": "I", "x": "q", "t": "Q", "d": "d"}
_ANSWERS: dict[str, tuple[str, tuple[object, ...]]] = {
    "Hello": ("s", (":1.1",)),
    "GetNameOwner": ("s", (":1.0",)),
    "StartServiceByName": ("u", (2,)),
    "GetServerInformation": ("ssss", ("stand-in", "tests", "1", "1.2")),
    "Notify": ("u", (1,)),
    "AddMatch": ("", ()),
    "RemoveMatch": ("", ()),
}


@dataclass(frozen=True)
class Notification:
    """What a program asked to be shown. `body` may hold markup, for the service to interpret."""

    app_name: str
    summary: str
    body: str


class Desktop:
    """Listens at `address`, to be given as `DBUS_SESSION_BUS_ADDRESS`, until the block is left."""

    def __init__(self, folder: Path) -> None:
        path = folder / "bus"
        self.address = f"unix:path={path}"
        self.shown: list[Notification] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, name="desktop", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10.0)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with contextlib.suppress(OSError), client:  # one that has gone has been told what it wanted to know
                    self._talk_to(client)

    def _talk_to(self, client: socket.socket) -> None:
        with client.makefile("rb") as stream:
            _authenticate(client, stream)
            while head := stream.read(16):
                client.sendall(self._answer(stream, head))

    def _answer(self, stream: BinaryIO, head: bytes) -> bytes:
        _, kind, flags, _, length, serial, fields_length = struct.unpack("<cBBBIII", head)
        fields = _Reader(head[8:] + stream.read(-(-fields_length // 8) * 8), 4).read("a(yv)")
        body = _Reader(stream.read(length))
        member = dict(fields).get(_MEMBER, "")
        if kind == _CALL and member == "Notify":
            app_name, _, _, summary, text = (body.read(each) for each in "susss")
            self.shown.append(Notification(app_name, summary, text))
        if kind != _CALL or flags & 1:  # no answer is expected
            return b""
        signature, values = _ANSWERS.get(member, ("s", ("not here",)))
        return _message(_REPLY if member in _ANSWERS else _ERROR, serial, signature, values)


def _authenticate(client: socket.socket, stream: BinaryIO) -> None:
    stream.read(1)
    while (line := stream.readline()) and line != b"BEGIN\r\n":
        if line == b"AUTH EXTERNAL\r\n":
            client.sendall(b"DATA\r\n")
        elif line.startswith((b"AUTH EXTERNAL ", b"DATA")):
            client.sendall(b"OK 0123456789abcdef0123456789abcdef\r\n")
        else:
            client.sendall(b"REJECTED EXTERNAL\r\n" if line.startswith(b"AUTH") else b"ERROR\r\n")


class _Reader:
    """Takes values out of little-endian bytes, which begin at a multiple of 8 in their message."""

    def __init__(self, data: bytes, start: int = 0) -> None:
        self._data = data
        self._at = start

    def read(self, signature: str) -> Any:
        """One value of a complete type."""
        code = signature[0]
        if code == "a":
            return self._array(signature[1:])
        if code in "({":
            self._align(8)
            return tuple(self.read(each) for each in signature[1:-1])  # of basic types, as header fields are
        if code == "v":
            return self.read(self.read("g"))
        if code in "sog":
            length = self.read("y" if code == "g" else "u")
            text = self._data[self._at : self._at + length]
            self._at += length + 1
            return text.decode()
        form = "<" + _NUMBERS[code]
        self._align(struct.calcsize(form))
        [value] = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return value

    def _array(self, element: str) -> list[Any]:
        length = self.read("u")
        self._align(8 if element[0] in "({xtd" else 4)
        end = self._at + length
        found = []
        while self._at < end:
            found.append(self.read(element))
        return found

    def _align(self, size: int) -> None:
        self._at += -self._at % size


def _message(kind: int, serial: int, signature: str, values: tuple[object, ...]) -> bytes:
    body = b""
    for code, value in zip(signature, values, strict=True):
        body += bytes(-len(body) % 4)
        if code == "u":
            body += struct.pack("<I", value)
        else:
            text = str(value).encode()
            body += struct.pack("<I", len(text)) + text + b"\0"
    fields = _field(_REPLY_SERIAL, b"u", struct.pack("<I", serial))
    if kind == _ERROR:
        fields = _padded(fields) + _field(_ERROR_NAME, b"s", _text(b"org.freedesktop.DBus.Error.UnknownMethod"))
    if signature:
        fields = _padded(fields) + _field(_SIGNATURE, b"g", bytes([len(signature)]) + signature.encode() + b"\0")
    head = struct.pack("<cBBBIII", b"l", kind, 1, 1, len(body), serial, len(fields))
    return _padded(head + fields) + body


def _field(number: int, signature: bytes, value: bytes) -> bytes:
    start = bytes([number, len(signature)]) + signature + b"\0"
    return start + (b"" if signature == b"g" else bytes(-len(start) % 4)) + value


def _text(text: bytes) -> bytes:
    return struct.pack("<I", len(text)) + text + b"\0"


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)
