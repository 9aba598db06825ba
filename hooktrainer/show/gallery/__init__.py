"""Seeing what was learned: the saved policies of a run, played, filmed and shown.

All of it happens outside the run that trains, in environments of its own and with seeds of its own:
whoever looks changes nothing. `hooktrainer gallery` and `hooktrainer render` are made of this.
"""

from __future__ import annotations

from .exhibits import Exhibit, make_exhibits
from .film import Film, decode, encode, film_policies, side_by_side
from .gallery_page import gallery_page
from .make import Gallery, make_gallery, write_board
from .picture import Picture
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
