"""Which launch of a kernel takes what of a pack. Refuses to know Triton. Trap: what no launch takes has no answer."""

from __future__ import annotations

from itertools import product

from decider.ops.launches import delta_scans


def test_one_launch_takes_each_sequence() -> None:
    for n_tokens, is_trunks, is_wide, room in product((256, 8192), (False, True), (False, True), (166_912, 232_448)):
        scans = delta_scans(n_tokens, is_trunks=is_trunks, is_wide=is_wide, most_shared_bytes=room)
        edges = [0, *(scan.most_tokens for scan in scans)]
        assert [scan.above_tokens for scan in scans] == edges[:-1]
        assert edges[-1] >= n_tokens
        assert (len(scans) > 1) == (n_tokens > 1024 and not is_wide and room > 183_000)
