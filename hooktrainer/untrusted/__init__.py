"""Reading what someone else may have made: first size, place and structure are checked.

One reader for each format that hooktrainer opens: JSON and YAML here, NumPy's files in
`array_file`, torch's in `torch_file` (apart, so that this does not import them). Each raises
`MalformedError`, in one line, for whatever is not as it should be; who reads a checkpoint, a run or
a data set makes it the error that is documented there. None executes anything, follows a link out
of its directory, waits for a pipe, or takes more memory than the file is large, but for a small
factor.
"""

from __future__ import annotations

from .fields import check_fields
from .files import MAX_STRUCTURE, check_name, open_file, read_file
from .memory import check_room
from .text import MalformedError, one_line, parse_json, parse_yaml, refusing

__all__ = [
    "MAX_STRUCTURE",
    "MalformedError",
    "check_fields",
    "check_name",
    "check_room",
    "one_line",
    "open_file",
    "parse_json",
    "parse_yaml",
    "read_file",
    "refusing",
]
