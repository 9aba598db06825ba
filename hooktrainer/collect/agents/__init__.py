"""Multi-agent environments: PettingZoo and VMAS."""
