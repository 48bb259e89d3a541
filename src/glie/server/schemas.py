"""Requests and responses of the API; the OpenAPI schema is made from them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

PAGE_ID = "reports/annual-report-2023.pdf#3"
QUESTION = "How much was invested at Skarrow Sound in 2023?"

# Not every reader of a schema knows prefixItems, as pydantic describes a tuple.
PAIR = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}
Mark = Annotated[tuple[int, int], WithJsonSchema(PAIR)]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Problem(Model):
    """What went wrong, in one line."""

    error: str = Field(examples=["page 'a.pdf#9' is not in the index"])


class SearchRequest(Model):
    """A question: `query` in words, for an index that names its encoder, or `vectors`, one unit
    vector a token, of any encoder; or `like`, a page to find others like it."""

    model_config = ConfigDict(strict=True)  # "10" and true are not numbers

    query: str | None = Field(None, description="The question, in words.", examples=[QUESTION])
    vectors: list[list[float]] | None = Field(
        None, description="The question as vectors, (m, D), of unit length.", examples=[None]
    )
    like: str | None = Field(
        None, description="The id of a page: find others like it.", examples=[None]
    )
    top: int = Field(10, ge=1, description="How many pages to find.")
    documents: list[str] | None = Field(
        None, description="Only pages of these documents.", examples=[None]
    )
    where: dict[str, Any] | None = Field(
        None,
        description="Only pages whose metadata matches this filter (docs/guide.md).",
        examples=[{"document": {"prefix": "reports/"}, "page": {"<=": 10}}],
    )
    shortlist: int | None = Field(
        None, ge=0, le=10_000, description="Pages to regenerate; 0: none.", examples=[None]
    )
    mode: Literal["hybrid", "late", "lexical"] | None = Field(
        None,
        description="Words and meaning together (`hybrid`), meaning alone, or words alone. By "
        'default hybrid, if the index has the words of its pages: then "quotes" ask for an exact '
        "word or phrase, and -word excludes.",
        examples=[None],
    )
    exact: bool | None = Field(
        None, description="Score every page, or only candidates; null: by the index's size."
    )
    normalize: bool = Field(False, description="Accept vectors that are not normalised.")


class EncodeRequest(Model):
    """A question in words."""

    query: str = Field(examples=[QUESTION])


class Encoded(Model):
    """The vectors of a question, and what made them."""

    encoder: dict[str, str | None] = Field(description="Its name and revision.")
    vectors: list[list[float]]


class Hit(Model):
    """A page that was found."""

    rank: int
    id: str = Field(examples=[PAGE_ID])
    score: float
    meaning: float | None = Field(
        None, description="What meaning added to the score, if words were searched too."
    )
    words: float | None = Field(None, description="What the question's words added to it.")
    strength: float | None = Field(
        None,
        description="How well it matches: 1 is what questions reach that have nothing to do with "
        "the index; null: not measured.",
    )
    document: str | None
    page: int | None
    snippet: str = Field(
        description="The best matching passage; empty if the page's text is not known."
    )
    marks: list[Mark] = Field(
        description="Where the question's words are in the snippet: characters from, to."
    )
    note: str | None = Field(description="Why there is no text.")
    picture: bool = Field(description="Whether /pages/{id}/image shows it.")


class Cost(Model):
    """The cost of a search."""

    pages_scanned: int
    pages_estimated: int
    pages_regenerated: int
    bytes_read: int
    milliseconds: float
    encode_milliseconds: float
    missing: list[str] = []  # shards that did not answer in time


class SearchResponse(Model):
    """The pages found, best first, and the cost of the search."""

    query: str | None
    hits: list[Hit]
    cost: Cost
    mode: Literal["hybrid", "late", "lexical"] = Field(
        "late", description="What was searched: words and meaning, meaning alone, or words alone."
    )
    reranked: bool = Field(
        False, description="Whether the best pages were scored by their reconstructed vectors."
    )
    weak: bool = Field(False, description="Whether nothing matches well.")
    language: str | None = Field(
        None, description="The language of the question, if the encoder does not read it."
    )


class Page(Model):
    """A page of the index, with its neighbours in the document."""

    id: str = Field(examples=[PAGE_ID])
    document: str | None
    page: int | None
    pages: int | None = Field(description="Pages of the document in the index.")
    previous: str | None
    next: str | None
    origin: str | None = Field(description="Where its text is from: text or ocr.")
    picture: bool
    original: bool = Field(False, description="Whether /pages/{id}/original sends its file.")
    text: str
    note: str | None = Field(description="Why there is no text.")
    metadata: dict[str, Any] = Field(description="Its other metadata.")


class PlacedWord(Model):
    """A word and its box, as fractions of the picture."""

    text: str
    box: tuple[float, float, float, float] = Field(description="Left, top, right, bottom.")


class PageWords(Model):
    """The words of a page and where they are on its picture."""

    id: str = Field(examples=[PAGE_ID])
    words: list[PlacedWord]
    reason: str | None = Field(description="Why there are none.")


class Snippet(Model):
    """The passage of a page that matches a question best."""

    id: str = Field(examples=[PAGE_ID])
    snippet: str
    marks: list[Mark] = Field(
        description="Where the question's words are in the snippet: characters from, to."
    )
    by: Literal["words", "meaning", "none"] = Field(description="What chose the passage.")
    note: str | None = Field(description="Why there is no text.")


class Warm(Model):
    """A place where a word of the question matches."""

    place: int = Field(description="Its number among `places`.")
    heat: float = Field(ge=0, le=1, description="1 at the word's best place.")
    similarity: float


class Word(Model):
    """A word of the question."""

    text: str
    common: bool = Field(description="Whether it is a stop word, like `the`.")
    start: int
    end: int
    score: float = Field(description="What its vectors add to the MaxSim of the page.")
    by_words: float = Field(
        0.0, description="Its part of the page's score by words (BM25), from 0 to 1."
    )
    warm: list[Warm]


class Heatmap(Model):
    """Where on a page each word of a question matches."""

    id: str = Field(examples=[PAGE_ID])
    query: str
    vectors: Literal["document", "index"]
    kind: Literal["boxes", "spans", "none"] = Field(
        description="What places are: boxes of the picture (left, top, right, bottom as fractions "
        "of it), or spans of the text (characters from, to)."
    )
    reason: str | None = Field(description="Why there is none.")
    places: list[list[float]]
    labels: list[str]
    words: list[Word]


class Document(Model):
    """A document of the index."""

    name: str = Field(examples=["reports/annual-report-2023.pdf"])
    pages: int
    first: str = Field(description="The id of its first page.")
    uploaded: bool


class DocumentPages(Model):
    """A document and the ids of its pages."""

    name: str = Field(examples=["reports/annual-report-2023.pdf"])
    uploaded: bool
    pages: list[str] = Field(examples=[[PAGE_ID]])


class Documents(Model):
    documents: list[Document]


class Added(Model):
    """The result of an upload."""

    documents: list[str] = Field(examples=[["report.pdf"]])
    pages: int
    unchanged: list[str]
    problems: list[str]


class Deleted(Model):
    deleted: int = Field(description="Pages.")
    pages: int = Field(description="Those left in the index.")


class Info(Model):
    """Counts and sizes of the index, and the limits of the server."""

    name: str
    version: str
    pages: int
    documents: int
    deleted: int
    generation: int
    encoder: str | None
    encoder_state: str
    k: int
    dim: int | None
    dtype: str
    codewords: int
    words: int = Field(description="The older name of `codewords`.")
    bytes: int = Field(description="Of the files, without kept pictures and uploads.")
    bytes_per_page: float | None = Field(description="`bytes` a page.")
    uncompressed_bytes: int
    compression: float | None
    budget: int | None
    candidate_bytes: int
    finder_bytes: int = Field(description="The older name of `candidate_bytes`.")
    image_bytes: int
    codec_bytes: int
    document_bytes: int
    text_bytes: int = Field(description="Of `bytes`, the words of the pages.")
    pages_with_text: int = Field(description="Pages whose words can be searched.")
    language: str | None = Field(description="The language of these words; null: none.")
    vectors: int
    read_only: bool
    limits: dict[str, int]


class Health(Model):
    status: Literal["ok"]
    encoder: Literal["none", "loading", "ready", "failed"]


class Token(Model):
    token: str = Field(max_length=1000)


class Budget(Model):
    """Bytes a page at a budget, and how well a search at that budget agrees with one over all
    vectors."""

    budget: int | None
    bytes_per_page: float
    k: int | None
    dtype: str
    codewords: int
    words: int = Field(description="The older name of `codewords`.")
    overlap: float
    same_best: float
    error: float
    text_bytes: float = Field(0, description="Of the bytes a page, those of its words.")
    families: dict[str, float] = Field(
        {}, description="What each kind of code keeps, where one was chosen by trying them."
    )


class Spread(Model):
    median: float | None
    low: float | None
    high: float | None


class PageShape(Model):
    id: str
    vectors: int
    twonn: float | None
    gaussian: float | None
    uniform: float | None


class Shape(Model):
    """Norms and intrinsic dimension of the sampled pages."""

    pages: int
    dims: list[int]
    vectors: Spread
    norm: Spread
    twonn: Spread
    gaussian: Spread
    uniform: Spread
    each: list[PageShape]


class Survey(Model):
    """Quality by budget and geometry of this corpus, measured in the background."""

    state: Literal["idle", "running", "done", "failed"]
    doing: str
    seconds: float | None = Field(
        None, description="About how long it takes, or still takes; null: not known."
    )
    share: Annotated[float, Field(ge=0, le=1)]
    stale: bool = Field(description="Whether the index has changed since.")
    sampled: int
    budgets: list[Budget]
    current: Budget | None = Field(description="The index as it is.")
    geometry: Shape | None


class Seen(Model):
    at: tuple[float, float]
    anchor: int
    label: str


class Anchor(Model):
    at: tuple[float, float]
    count: int
    length: float | None


class Child(Model):
    at: tuple[float, float]
    anchor: int


class PageMap(Model):
    """A page's vectors in a plane, with the stored and the reconstructed ones."""

    id: str = Field(examples=[PAGE_ID])
    reason: str | None = Field(description="Why the page's original vectors are missing.")
    explained: float
    vectors: list[Seen]
    anchors: list[Anchor]
    children: list[Child]
    norm_low: float
    norm_high: float
    twonn: float | None
    gaussian: float | None
    uniform: float | None
