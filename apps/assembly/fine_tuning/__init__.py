"""Fine-tuning of policies on files by TRL's SFT and DPO trainers. The result is a run folder."""
