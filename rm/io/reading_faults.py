"""Messages about unreadable files, which distinguish lack of memory, permissions and damage."""


def reading_fault(error: BaseException, damaged: str, remedy: str = "fetch it again") -> str:
    """Return the cause of a file reader's error, and the remedy. Errors of unknown cause are reported as damage.

    >>> reading_fault(EOFError("no end marker"), "not a complete Parquet file")
    'not a complete Parquet file (no end marker); fetch it again'
    >>> reading_fault(PermissionError(13, "Permission denied"), "not a complete Parquet file")
    'this user may not read it ([Errno 13] Permission denied); change its permissions'
    """
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if isinstance(error, PermissionError):
        return f"this user may not read it ({reason}); change its permissions"
    if isinstance(error, MemoryError):
        return f"it does not fit into memory ({reason}); split it, or stream it where that is possible"
    if isinstance(error, NotImplementedError):  # pyarrow's, for a codec or a type that it does not read
        return f"it needs a feature that its reader lacks ({reason}); write it again without that feature"
    return f"{damaged} ({reason}); {remedy}"
