"""What every layer stands on: checks of values, words, child processes, files of unknown origin."""
