"""Arrow schemas of everything that is written to disk, and the closed list of reasons."""

from __future__ import annotations

import pyarrow as pa

DOC_ID = pa.binary(16)

# What a reader yields for each record it can deliver. `origin` is "path#position": the byte offset in the
# uncompressed stream (JSONL), the row in the file (Parquet), 0 for a file that is one document.
# `meta` holds the input fields that are not text, as one JSON object.
RAW_DOCUMENT = pa.schema(
    [
        pa.field("doc_id", DOC_ID, nullable=False),
        pa.field("text", pa.large_string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("origin", pa.string(), nullable=False),
        pa.field("meta", pa.large_string(), nullable=False),
    ]
)

# A document part (one input task) and a document shard (output) have the same columns.
DOCUMENT = pa.schema(
    [
        pa.field("doc_id", DOC_ID, nullable=False),
        pa.field("text", pa.large_string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("origin", pa.string(), nullable=False),
        pa.field("lang", pa.string()),
        pa.field("lang_score", pa.float32()),
        pa.field("meta", pa.large_string(), nullable=False),
    ]
)

# A record (position >= 0) or a whole file (position = -1) that could not be delivered.
QUARANTINE = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
        pa.field("head", pa.binary(), nullable=False),
    ]
)

# One row a delivered document, laid out by part and row so that applying it needs no join of text.
DECISION = pa.schema(
    [
        pa.field("key", pa.int64(), nullable=False),  # part << 32 | row
        pa.field("doc_id", DOC_ID, nullable=False),
        pa.field("kept", pa.bool_(), nullable=False),
        pa.field("reason", pa.string()),  # null where kept
        pa.field("value", pa.float64()),  # the signal's value, or the similarity to the kept document
        pa.field("kept_doc_id", DOC_ID),  # duplicates: the document that stays
        pa.field("cluster_id", DOC_ID),  # near-duplicates: doc_id of the representative of the component
        pa.field("cluster_size", pa.int64()),
    ]
)


def token_shard(dtype: str) -> pa.Schema:
    """Schema of a token shard; `dtype` is "uint16" or "uint32", the narrowest that holds the vocabulary.

    Each row is one document; its tokens end with the end-of-document id.
    """
    value = {"uint16": pa.uint16(), "uint32": pa.uint32()}[dtype]
    return pa.schema(
        [
            pa.field("tokens", pa.large_list(value), nullable=False),
            pa.field("doc_id", DOC_ID, nullable=False),
            pa.field("source", pa.string(), nullable=False),
        ]
    )


# Why a record or file is set aside. Closed: a new reason is added here and in docs/reasons.md.
QUARANTINE_REASONS: dict[str, str] = {
    "invalid_json": "the line is not one JSON value",
    "not_an_object": "the line is JSON, but not an object",
    "missing_text": "the text field is absent",
    "null_text": "the text field is null",
    "empty_text": "the text has no characters, or only blanks",
    "text_not_string": "the text field is not a string",
    "invalid_utf8": "the bytes are not UTF-8",
    "lone_surrogate": "a \\uD800-\\uDFFF escape without its pair",
    "nul_byte": "U+0000 in the record",
    "record_too_large": "the record exceeds max_document_bytes",
    "too_deep": "JSON nested deeper than the limit",
    "empty_file": "the file has no bytes",
    "truncated_stream": "the compressed stream ends early; records before the cut were delivered",
    "corrupt_stream": "the compressed stream is damaged; what was decoded until then was delivered, and may be altered",
    "trailing_garbage": "bytes after the last compressed member",
    "not_compressed": "the name says compressed, the bytes do not",
    "unexpected_binary": "the name says text, the bytes are compressed or binary",
    "corrupt_file": "the file's structure cannot be read",
    "corrupt_row_group": "one row group of a Parquet file cannot be read",
    "no_text_column": "the file has no text column of that name",
    "text_column_not_string": "the text column does not hold strings",
    "html_unparsable": "no text could be extracted from the page",
    "unreadable_file": "the file cannot be opened or read",
}

# Why a delivered document is dropped, besides the reasons that rule files bring (see pipeline/rules).
DROP_REASONS: dict[str, str] = {
    "empty_after_normalization": "nothing but blanks is left after normalisation",
    "language": "the language is not among those kept, or its score is below the threshold",
    "exact_duplicate": "the normalised text equals that of a kept document",
    "near_duplicate": "its own similarity to a kept document reaches the threshold",
    "sampled_out": "left out by the source's sampling weight",
}
