"""Large pages: the memory says what it said before, and what cannot be moved is left alone."""

import ctypes
import mmap
import platform
from pathlib import Path

import pytest
import torch

from pot_agent.policy.huge_pages import on_huge_pages

LENGTH = 16 * 2**20


def huge_bytes() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("AnonHugePages"))


@pytest.mark.skipif(platform.system() != "Linux", reason="large pages are asked for on Linux")
def test_memory_that_moves_keeps_its_numbers() -> None:
    numbers = torch.arange(LENGTH // 4, dtype=torch.int32)
    before = huge_bytes()
    moved = on_huge_pages(numbers.data_ptr(), LENGTH)
    assert torch.equal(numbers, torch.arange(LENGTH // 4, dtype=torch.int32))
    assert not moved or huge_bytes() > before  # the kernel may decline: a container, an old one


def test_memory_that_nobody_has_is_no_harm() -> None:
    with mmap.mmap(-1, LENGTH) as region:
        address = ctypes.addressof(ctypes.c_char.from_buffer(region))
    assert not on_huge_pages(address, LENGTH)
    assert not on_huge_pages(0, 2**12)
