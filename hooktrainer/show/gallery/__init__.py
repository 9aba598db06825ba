"""The saved policies of a run, played, filmed and shown on a page.

Policies are played in separate environments and with seeds of their own, so the run is not
affected. `hooktrainer gallery` and `hooktrainer render` use this package.
"""

from __future__ import annotations

from .exhibits import Exhibit, Picture, make_exhibits
from .film import Film, decode, encode, film_policies, side_by_side
from .make import Gallery, gallery_page, make_gallery, write_board
from .recording import Recording, View, record_episodes

__all__ = [
    "Exhibit",
    "Film",
    "Gallery",
    "Picture",
    "Recording",
    "View",
    "decode",
    "encode",
    "film_policies",
    "gallery_page",
    "make_exhibits",
    "make_gallery",
    "record_episodes",
    "side_by_side",
    "write_board",
]
