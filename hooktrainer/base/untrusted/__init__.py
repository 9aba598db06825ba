"""Readers of untrusted files, which check size, place and structure first.

There is one reader per format: JSON and YAML here, torch's in `read_torch`. Each raises
`MalformedError` with one line. None executes code, follows a link out of its directory, waits for a
pipe, or takes more memory than a small multiple of the file's size.
"""

from __future__ import annotations

from .files import MAX_STRUCTURE as MAX_STRUCTURE
from .files import check_name as check_name
from .files import check_room as check_room
from .files import open_file as open_file
from .files import read_file as read_file
from .text import MAX_YAML as MAX_YAML
from .text import MalformedError as MalformedError
from .text import check_fields as check_fields
from .text import decode_data as decode_data
from .text import one_line as one_line
from .text import parse_json as parse_json
from .text import parse_yaml as parse_yaml
from .text import refusing as refusing
from .text import shown as shown
