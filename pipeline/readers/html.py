"""HTML: one page, one document: its main text, with paragraphs kept."""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterator

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5
from resiliparse.parse.html import DOMException, HTMLParserException, HTMLTree

from pipeline.readers import batches
from pipeline.readers.bytes_kernel import OK, REASONS
from pipeline.readers.contract import Batch, FileProblem, InputSource, ReadOptions, Slice
from pipeline.readers.streams import binary_kind, read_whole
from pipeline.readers.text import check_text
from schemas.arrow import QUARANTINE_REASONS

BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

MAX_NESTING = 2000
TAG = re.compile(r"<(/?)([A-Za-z][^\s/>]*)")
# fmt: off
SELF_CLOSING = frozenset((
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
    "p", "li", "dt", "dd", "option", "optgroup", "tr", "td", "th", "thead", "tbody", "tfoot", "colgroup", "rt", "rp",
    "html", "head", "body",
))
# fmt: on


def read(piece: Slice, source: InputSource, options: ReadOptions) -> Iterator[Batch]:
    """The page's main text, with its title and charset in `meta`, or a quarantine row at position 0.

    Raises FileProblem, OSError.
    """
    data = read_whole(piece.file, options.max_document_bytes)
    kind = binary_kind(data[:512])
    if kind:
        raise FileProblem("unexpected_binary", f"the name says HTML, the bytes are {kind}", data)
    yield page(data, source, piece.file.name)


def page(data: bytes, source: InputSource, name: str) -> Batch:
    """One page as a batch of one document or one quarantine row."""
    charset = charset_of(data)
    try:
        markup = data.decode(charset)
    except (UnicodeDecodeError, LookupError) as error:
        return batches.set_aside(source, name, 0, "invalid_utf8", f"the page is not valid {charset}: {error}", data)
    if "\0" in markup:  # the parser would drop it
        return batches.set_aside(source, name, 0, "nul_byte", QUARANTINE_REASONS["nul_byte"], data)
    if nests_deeper(markup, MAX_NESTING):
        detail = f"elements nested more than {MAX_NESTING} deep"
        return batches.set_aside(source, name, 0, "html_unparsable", detail, data)
    try:
        text, title = main_text(markup)
    except (HTMLParserException, DOMException, ValueError) as error:
        return batches.set_aside(source, name, 0, "html_unparsable", str(error), data)
    code = check_text(text.encode("utf-8", "surrogatepass"))
    if code != OK:
        reason = "html_unparsable" if REASONS[code] == "empty_text" else REASONS[code]
        return batches.set_aside(source, name, 0, reason, "no main text could be extracted", data)
    meta = {"title": title, "charset": charset} if title else {"charset": charset}
    return batches.single_document(source, name, text, json.dumps(meta, ensure_ascii=False))


def nests_deeper(markup: str, limit: int) -> bool:
    """Whether more than `limit` elements seem open at once. An estimate in linear time, for extraction takes time
    quadratic in the depth: elements that close by themselves are left out, an end tag closes one of its own name."""
    if markup.count("<") <= limit:
        return False
    opened: Counter[str] = Counter()
    depth = 0
    for ending, name in TAG.findall(markup):
        name = name.lower()
        if name in SELF_CLOSING:
            continue
        if not ending:
            opened[name] += 1
            depth += 1
            if depth > limit:
                return True
        elif opened[name]:
            opened[name] -= 1
            depth -= 1
    return False


def charset_of(data: bytes) -> str:
    """Python's name of the page's encoding: a BOM, else the meta element, else a guess from the bytes.

    Labels mean what the WHATWG encoding standard says (ISO-8859-1 is windows-1252, GB2312 is GBK).
    """
    for bom, name in BOMS:
        if data.startswith(bom):
            return name
    charset = map_encoding_to_html5(detect_encoding(data, from_html_meta=True) or "utf-8") or "utf-8"
    return "gb18030" if charset == "gbk" else charset  # the standard decodes GBK with its superset


def main_text(markup: str) -> tuple[str, str]:
    """(main text, title). Without main content by resiliparse's heuristics, the whole body's text."""
    tree = HTMLTree.parse(markup)
    title = (tree.title or "").strip()
    text = extract_plain_text(tree, main_content=True, preserve_formatting=True, alt_texts=False)
    if not text.strip():
        text = extract_plain_text(tree, main_content=False, preserve_formatting=True, alt_texts=False)
    return text.strip(), title
