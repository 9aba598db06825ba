"""What a run is: its options, directory and identity, how it resumes, where its parts run."""
