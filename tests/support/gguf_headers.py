"""GGUF files that hold a header and nothing else. They refuse to be converted; that is what they are for."""

from __future__ import annotations

from pathlib import Path

import gguf


def write_header(file: Path, architecture: str, *, sizes: bool) -> None:
    """A file of `architecture` without tensors and tokenizer, with or without the sizes a configuration needs."""
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_block_count(1)
    if sizes:
        writer.add_embedding_length(64)
        writer.add_head_count(4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
