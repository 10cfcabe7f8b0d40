"""What a damaged archive raises: a ValueError, as any damaged file, and also the error of Python's own reader."""
import tarfile
import zipfile


class TarError(ValueError, tarfile.ReadError):
    """Not a tar file, a damaged one, or one of a kind that is not read."""


class ZipError(ValueError, zipfile.BadZipFile):
    """Not a zip file, a damaged one, or one of a kind that is not read."""
