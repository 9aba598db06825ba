"""The results that hooktrainer is shipped with: what was trained, and what it computed, bit by bit.

`rows.yaml` says what the rows are; `computed/` holds what each of its seeds computed.
"""
