"""Input formats. Each reader turns a slice of a file into batches of raw documents and quarantine rows.

    read_task(task, options) -> Iterator[Batch]

A new format is one module with a `read(slice, source, options) -> Iterator[Batch]` and a line in `dispatch.READERS`.
"""
