"""Training data: an order that is arithmetic, sequences cut from memory-mapped shards, a stream of micro-batches."""
