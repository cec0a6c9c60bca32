"""Fine-tuning of policies on files by TRL's SFT and DPO trainers, as a run folder."""
