"""Output of code, cut to a limit: the beginning and the end are kept."""

from codecs import getincrementaldecoder


class CappedOutput:
    """Takes bytes, keeps the first and the last of them, and counts the others."""

    def __init__(self, kib: int) -> None:
        self._kib = kib
        self._first = kib * 512
        self._head = bytearray()
        self._tail = bytearray()
        self.size = 0
        """How many bytes there were."""

    def add(self, data: bytes) -> None:
        """Take what was written next."""
        self.size += len(data)
        room = self._first - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._first:
            del self._tail[: -self._first]

    def text(self) -> str:
        """Give what is kept, and say where and how much was left out.

        Bytes that are no UTF-8 are replaced; no character is cut in two.
        """
        if self.size <= 2 * self._first:
            return (self._head + self._tail).decode(errors="replace")
        decoder = getincrementaldecoder("utf-8")("replace")
        head = decoder.decode(self._head)
        cut, _ = decoder.getstate()
        tail = bytes(self._tail[-self._first :])
        while tail and tail[0] & 0xC0 == 0x80 and len(tail) > self._first - 3:
            tail = tail[1:]
        left_out = self.size - len(self._head) + len(cut) - len(tail)
        said = f"[{left_out} bytes of output were left out here: at most {self._kib} KiB are kept]"
        return f"{head}\n{said}\n{tail.decode(errors='replace')}"
