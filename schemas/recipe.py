"""The recipe: everything that decides which documents `prep clean` writes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from schemas.arrow import DROP_REASONS
from schemas.config import StrictModel

Format = Literal["jsonl", "parquet", "text", "html"]
Comparison = Literal[">", "<", ">=", "<=", "=="]


class RuleSpec(StrictModel):
    """Drop a document when `signal comparison threshold` holds; the first rule that holds gives the reason."""

    signal: str = Field(description="name of a signal, see `prep signals`")
    drop_if: str = Field(description='comparison and threshold, for example "> 0.1"')
    reason: str = Field(
        description="recorded with the document and the value: small letters, digits and _; rules may share one",
        pattern=r"^[a-z0-9_]+$",
    )
    languages: list[str] | None = Field(default=None, description="apply only to these languages (ISO 639-1)")
    except_languages: list[str] | None = Field(default=None, description="never apply to these languages")

    @field_validator("drop_if")
    @classmethod
    def _check_drop_if(cls, value: str) -> str:
        parse_condition(value)
        return value

    @field_validator("reason")
    @classmethod
    def _check_reason(cls, value: str) -> str:
        if value in DROP_REASONS:
            raise ValueError(f"{value!r} is a reason of the program itself; choose another name")
        return value

    def condition(self) -> tuple[Comparison, float]:
        """The comparison and the threshold of `drop_if`."""
        return parse_condition(self.drop_if)


def parse_condition(text: str) -> tuple[Comparison, float]:
    """Read "> 0.1" as (">", 0.1). Raises ValueError with the accepted form."""
    words = text.split()
    comparisons: dict[str, Comparison] = {">": ">", "<": "<", ">=": ">=", "<=": "<=", "==": "=="}
    try:
        comparison, threshold = comparisons[words[0]], float(words[1])
        if len(words) != 2 or threshold != threshold:
            raise ValueError
    except (KeyError, IndexError, ValueError):
        raise ValueError(f'{text!r} is not a condition; write a comparison and a number, for example "> 0.1"') from None
    return comparison, threshold


class RuleOverride(StrictModel):
    """Change one rule of the sets named before it."""

    reason: str = Field(description="reason of the rule to change")
    drop_if: str | None = Field(default=None, description="new condition; null removes the rule")

    @field_validator("drop_if")
    @classmethod
    def _check_drop_if(cls, value: str | None) -> str | None:
        if value is not None:
            parse_condition(value)
        return value


def _kind_of_rule(value: Any) -> str:
    """A text names a set, a mapping with `signal` is a rule, one without changes a rule."""
    if isinstance(value, str):
        return "set"
    return "rule" if isinstance(value, RuleSpec) or (isinstance(value, dict) and "signal" in value) else "change"


RuleItem = Annotated[
    Annotated[str, Tag("set")] | Annotated[RuleSpec, Tag("rule")] | Annotated[RuleOverride, Tag("change")],
    Discriminator(_kind_of_rule),
]


class Source(StrictModel):
    """One named collection of input files."""

    name: str = Field(description="short name; part of every document id", pattern=r"^[A-Za-z0-9_.-]+$")
    paths: list[str] = Field(description="files, folders or globs; local or any URL pyarrow.fs knows", min_length=1)
    format: Format | None = Field(default=None, description="input format; null: inferred from each file's name")
    text_field: str = Field(
        default="text",
        min_length=1,
        description="member (JSONL) or column (Parquet, dots reach into structs) that holds the text",
    )
    origin_field: str | None = Field(
        default=None, description="field recorded as origin (a URL, say); null: path#position"
    )
    lang: str | None = Field(
        default=None, description="language stated for the whole source; null: identified per document"
    )
    rules: list[RuleItem] | None = Field(default=None, description="rules for this source; null: those of the recipe")
    weight: float = Field(
        default=1.0, description="share of the documents left after deduplication that is written, 0 to 1", ge=0, le=1
    )
    priority: int = Field(default=0, description="of two duplicates, the one with the higher priority stays")


class Normalize(StrictModel):
    """Switches of the normalisation step; they act in this order."""

    line_ends: bool = Field(default=True, description="CR LF and CR become LF")
    control_characters: bool = Field(
        default=True, description="remove C0 and C1 control characters other than tab and line feed, and U+FEFF"
    )
    nfc: bool = Field(default=True, description="Unicode normalisation form C")
    trailing_blanks: bool = Field(default=True, description="remove blanks at line ends, and blank lines at both ends")


class Language(StrictModel):
    """Language identification with fastText lid.176."""

    enabled: bool = Field(default=True, description="identify the language of each document")
    keep: list[str] | None = Field(default=None, description="languages to keep (ISO 639-1); null: all", min_length=1)
    min_score: float = Field(default=0.0, description="lowest score of a kept language, 0 to 1", ge=0, le=1)

    @model_validator(mode="after")
    def _check_enabled(self) -> Language:
        if not self.enabled and (self.keep is not None or self.min_score > 0):
            raise ValueError("keep and min_score need language identification: remove them, or set enabled: true")
        return self


class ExactDuplicates(StrictModel):
    """Removal of documents whose normalised text is equal."""

    enabled: bool = Field(default=True, description="remove exact duplicates")


class NearDuplicates(StrictModel):
    """Removal of near-duplicates: MinHash candidates, each verified on exact shingle sets."""

    enabled: bool = Field(default=True, description="remove near-duplicates")
    ngram: int = Field(default=5, description="words in a shingle (CJK: characters)", ge=1, le=64)
    num_perm: int = Field(default=112, description="MinHash permutations", ge=1, le=4096)
    bands: int = Field(default=14, description="bands of the signature", ge=1, le=4096)
    rows: int = Field(default=8, description="signature values in a band", ge=1, le=4096)
    seed: int = Field(default=1, description="seed of the permutations", ge=0, lt=2**32)
    threshold: float = Field(default=0.8, description="lowest Jaccard similarity of a removed document", gt=0, le=1)
    bucket_report: int = Field(default=1000, description="report band buckets with more documents than this", ge=2)
    max_rounds: int = Field(default=12, description="rounds of clustering before the rest is kept and reported", ge=1)

    @model_validator(mode="after")
    def _check_bands(self) -> NearDuplicates:
        used = self.bands * self.rows
        if used != self.num_perm:
            fit = self.num_perm // self.bands
            remedy = f"set num_perm: {used}" + (f" or rows: {fit}" if fit and fit * self.bands == self.num_perm else "")
            raise ValueError(
                f"bands x rows = {self.bands} x {self.rows} = {used}, but num_perm is {self.num_perm}: {remedy}"
            )
        return self


class Quarantine(StrictModel):
    """How much unreadable input a run may meet."""

    max_fraction: float = Field(
        default=0.05, description="the run fails if a larger share of the records is set aside", ge=0, le=1
    )


class Shards(StrictModel):
    """The document shards that are written."""

    target_bytes: int = Field(default=256 << 20, description="text bytes in a shard, about", ge=1 << 10)
    compression: Literal["zstd", "none"] = Field(default="zstd", description="compression of the Arrow bodies")


class Tasks(StrictModel):
    """How input is cut into tasks."""

    target_bytes: int = Field(default=32 << 20, description="input bytes in a task, about", ge=1 << 10)
    max_document_bytes: int = Field(
        default=256 << 20, description="a longer record is set aside", ge=1 << 10, le=1 << 30
    )


class Recipe(StrictModel):
    """What `prep clean` does. Output is a function of this, of the input and of the seed."""

    name: str = Field(description="name of the corpus")
    output: str = Field(description="folder for parts, decisions and shards; local or a URL", min_length=1)
    seed: int = Field(default=0, description="seed of sampling and of the order of documents", ge=0, lt=2**63)
    sources: list[Source] = Field(description="the inputs", min_length=1)
    normalize: Normalize = Field(default=Normalize(), description="text normalisation")
    language: Language = Field(default=Language(), description="language identification")
    rules: list[RuleItem] = Field(
        default=["gopher"],
        description="rule sets by name, single rules, or changes to a rule of a set named before; in order",
    )
    exact_dup: ExactDuplicates = Field(default=ExactDuplicates(), description="exact duplicates")
    near_dup: NearDuplicates = Field(default=NearDuplicates(), description="near-duplicates")
    quarantine: Quarantine = Field(default=Quarantine(), description="limits on unreadable input")
    tasks: Tasks = Field(default=Tasks(), description="cutting of input")
    shards: Shards = Field(default=Shards(), description="output shards")

    @field_validator("name", "output")
    @classmethod
    def _check_text(cls, value: str) -> str:
        if not value.isprintable():
            raise ValueError("holds characters that cannot be printed")
        return value

    @field_validator("sources")
    @classmethod
    def _check_names(cls, sources: list[Source]) -> list[Source]:
        names = [source.name for source in sources]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two sources are named {name!r}; names are part of document ids and must differ")
        return sources
