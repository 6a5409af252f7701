"""Memory that replicas on a CPU keep from one step to the next.

Making a generator dataset, TensorFlow 2.21 tells the C library to map every block of 128 KiB or
more anew and to give it back when it is freed (2.19.1 and 2.20 do not); its own feeding of
replicas makes such datasets. Each step then asks the kernel for all of its activations, page by
page: a quarter of the step of a small convolutional network.
"""

from __future__ import annotations

import ctypes
import platform

# Source: malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# How far glibc goes by itself when a program frees larger and larger blocks, on 64 bits, and twice
# that for what it keeps at the end of its heap. Source: mallopt(3), M_MMAP_THRESHOLD.
_LARGEST_KEPT = 32 * 1024 * 1024


def keep_between_steps() -> None:
    """Lets the C library keep what steps free, as it does in programs without such a dataset.

    Call it after the iterator was made. Elsewhere than on glibc nothing is to be done.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT)
        libc.mallopt(_M_TRIM_THRESHOLD, 2 * _LARGEST_KEPT)
