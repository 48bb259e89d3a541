"""The exception family: everything that `glie` raises on purpose.

    GlieError
    ├── InputError              what was given cannot be used
    │   ├── VectorError         page or query vectors: shape, type, norm, not finite
    │   ├── IdError             duplicate, unknown or malformed page ids
    │   ├── DocumentError       a file that cannot be read as pages
    │   ├── DatasetError        an evaluation set that is incomplete or malformed
    │   └── CodecError          a codec that is damaged, or fitted for something else
    ├── IndexFolderError        the folder is not an index, or cannot be made one
    │   ├── CorruptIndexError   a file is damaged, missing or from a newer version
    │   └── LockedError         another process is writing
    ├── EncoderError            an unknown encoder, damaged weights, or the wrong one
    ├── EngineError             a database that cannot be reached, or holds something else
    ├── ClusterError            a Ray cluster that cannot be used, or shards that do not answer
    │   └── BusyError           too many searches are waiting: ask again later
    └── MissingExtraError       an optional part is not installed (says which to install)

A message says what was found, what was expected and what to do. The command line prints it as
one line and exits non-zero.
"""


class GlieError(Exception):
    """The root: `except glie.GlieError` catches all that the library raises on purpose."""


class InputError(GlieError, ValueError):
    """What was given cannot be used as it is."""


class VectorError(InputError):
    """Page or query vectors of the wrong shape, type or norm, or not finite."""


class IdError(InputError):
    """Duplicate, unknown or malformed page ids."""


class DocumentError(InputError):
    """A file that cannot be read as pages: encrypted, damaged, empty or of an unknown kind."""


class DatasetError(InputError):
    """An evaluation set that is incomplete or malformed."""


class CodecError(InputError):
    """A saved codec that is damaged, missing or of a newer version, or one for other vectors."""


class IndexFolderError(GlieError):
    """The folder is not an index, or cannot become one."""


class CorruptIndexError(IndexFolderError):
    """A file of the index is damaged, missing, or written by a newer version."""

    def __init__(self, message: str, fault: str | None = None) -> None:
        super().__init__(message)
        self.fault = fault or message  # what is wrong, without the file and what to do


class LockedError(IndexFolderError):
    """Another process is writing to the index."""


class EncoderError(GlieError):
    """An unknown encoder, damaged weights, or vectors of another encoder."""


class EngineError(GlieError):
    """A vector database that cannot be reached or used, or a collection of something else."""


class ClusterError(GlieError):
    """A Ray cluster that cannot be used, or shards that do not answer."""


class BusyError(ClusterError):
    """Too many searches are waiting already. Ask again later."""


class MissingExtraError(GlieError, ImportError):
    """An optional part is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f'{what} needs an optional part: pip install "glie[{extra}]"')
        self.extra = extra
