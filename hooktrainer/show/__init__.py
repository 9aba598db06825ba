"""What runs left behind, shown: summaries, curves, pages and films."""
