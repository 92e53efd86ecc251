"""How many rows of a state file each bin has: they stand in the order of their hash, so a search
tells, which reads a few pages of the file."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from godwit.model.routing import SEGMENTS
from godwit.state.run import segment_offsets
from godwit.state.table import HASH
from godwit.state.timed import KEY_HASH
from godwit.storage.store import Store

Counts = npt.NDArray[np.int64]


def rows_by_bin(files: Store, name: str, bins: int, segments: Sequence[int]) -> Counts:
    """The rows of each bin in these segments, in ascending order; bins are not larger than they.

    Of a table in the order of time, which is not that of bins, the whole column of hashes is read.
    """
    wide, shift = bins // SEGMENTS, np.uint64(65 - bins.bit_length())
    batch = pa.ipc.open_file(files.map(name)).get_batch(0)
    low, high = wide * segments[0], wide * (segments[-1] + 1)
    found = np.zeros(bins, np.int64)
    if KEY_HASH in batch.schema.names:
        hashes = batch.column(KEY_HASH).to_numpy().view(np.uint64)
        found += np.bincount((hashes >> shift).view(np.int64), minlength=bins)
    else:
        hashes = batch.column(HASH).to_numpy()
        offsets = segment_offsets(hashes)
        hashes = hashes[offsets[segments[0]] : offsets[segments[-1] + 1]]
        starts = np.searchsorted(hashes, np.arange(low, high, dtype=np.uint64) << shift)
        found[low:high] = np.diff(starts, append=len(hashes))
    named = np.zeros(SEGMENTS, np.bool_)
    named[list(segments)] = True
    return np.where(np.repeat(named, wide), found, 0)
