"""Reading what someone else may have made: first size, place and structure are checked.

One reader for each format that hooktrainer opens: JSON and YAML here, NumPy's files in
`array_file`, torch's in `torch_file` (apart, so that this does not import them). Each raises
`MalformedError`, in one line, for whatever is not as it should be; who reads a checkpoint, a run or
a data set makes it the error that is documented there. None executes anything, follows a link out
of its directory, waits for a pipe, or takes more memory than the file is large, but for a small
factor.
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
from .text import one_line as one_line
from .text import parse_json as parse_json
from .text import parse_yaml as parse_yaml
from .text import places_in_file as places_in_file
from .text import refusing as refusing
from .text import shown as shown
