"""Files to pages: PDFs, images, text, office documents, web pages, books, e-mail, and folders."""

from glie.documents.find import SUFFIXES, FoundDocument, find_documents, has_picture
from glie.documents.images import (
    OCR_PIXELS,
    PAGE_PIXELS,
    Word,
    check_picture,
    ocr_available,
    open_picture,
    picture_kind,
    picture_text,
    read_image,
)
from glie.documents.read import (
    DocumentPage,
    ReadDocument,
    count_pages,
    page_text,
    read_document,
    scanned_text,
    small_picture,
)

__all__ = [
    "OCR_PIXELS",
    "PAGE_PIXELS",
    "SUFFIXES",
    "DocumentPage",
    "FoundDocument",
    "ReadDocument",
    "Word",
    "check_picture",
    "count_pages",
    "find_documents",
    "has_picture",
    "ocr_available",
    "open_picture",
    "page_text",
    "picture_kind",
    "picture_text",
    "read_document",
    "read_image",
    "scanned_text",
    "small_picture",
]
