import errno
import os
import zlib

import pytest

from isoscope.embedding import direct
from isoscope.embedding.direct import DirectFile


@pytest.mark.parametrize("length", [0, 1, 4095, 4096, 4097, 100_000])
@pytest.mark.parametrize("refusal", [None, "opening", "writing"])
def test_what_is_written_is_what_was_given(tmp_path, monkeypatch, length, refusal):
    monkeypatch.setattr(direct, "_BUFFER", 8192)
    opened, written = os.open, os.write
    plain = set()

    def picky_open(path, flags, *rest):
        if refusal == "opening" and flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no")
        handle = opened(path, flags, *rest)
        if not flags & os.O_DIRECT:
            plain.add(handle)
        return handle

    def picky_write(handle, data):
        if refusal == "writing" and handle not in plain:
            raise OSError(errno.EINVAL, "no")
        return written(handle, data)

    monkeypatch.setattr(os, "open", picky_open)
    monkeypatch.setattr(os, "write", picky_write)
    data = os.urandom(length)
    with DirectFile(tmp_path / "file") as file:
        for start in range(0, length, 777):
            file.write(data[start : start + 777])
        assert file.tell() == length
        checksum = file.checksum
    assert (tmp_path / "file").read_bytes() == data
    assert checksum == zlib.crc32(data)


def test_a_full_disk_is_no_reason_to_begin_anew(tmp_path, monkeypatch):
    def full(handle, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"), DirectFile(tmp_path / "file") as file:
        file.write(bytes(direct._BUFFER))
