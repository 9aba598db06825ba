"""The saved policies of a run, played, filmed and shown on a page."""
