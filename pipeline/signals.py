"""The table of quality signals: one row a signal. Docs, `prep signals`, the recipe's checker and the steps read it.

Signals are float64: a rule is strict, and a tenth stored as float32 would be greater than 0.1.
"""

from __future__ import annotations

from dataclasses import dataclass

GOPHER = "Rae et al. 2021, arXiv 2112.11446, A.1.1"

# The words of Gopher's stop-word rule.
STOP_WORDS_EN = ("the", "be", "to", "of", "and", "that", "have", "with")


@dataclass(frozen=True)
class Signal:
    """A number computed for each document, next to its text."""

    name: str
    unit: str
    definition: str
    source: str


SIGNALS: tuple[Signal, ...] = (
    Signal("byte_count", "bytes", "UTF-8 bytes of the normalised text", "-"),
    Signal("char_count", "characters", "code points of the normalised text", "-"),
    Signal("word_count", "words", "words; punctuation is no word, a CJK character is one", GOPHER),
    Signal("mean_word_length", "characters", "characters in words, divided by words; 0 without words", GOPHER),
    Signal("hash_word_ratio", "ratio", 'number signs "#" per word', GOPHER),
    Signal("ellipsis_word_ratio", "ratio", 'ellipses "..." and "…" per word', GOPHER),
    Signal("line_count", "lines", "lines, blank ones included", "-"),
    Signal("bullet_line_fraction", "fraction", 'share of lines whose first character is "•" or "-"', GOPHER),
    Signal("ellipsis_line_fraction", "fraction", 'share of lines that end with "..." or "…"', GOPHER),
    Signal("alpha_word_fraction", "fraction", "share of words with a letter", GOPHER),
    Signal("stop_word_count", "words", f"different words of {{{', '.join(STOP_WORDS_EN)}}}, in any case", GOPHER),
)

SIGNAL_NAMES: tuple[str, ...] = tuple(signal.name for signal in SIGNALS)
