"""Low-rank adapters: LoRA (GenARM), PBLoRA (PARM) and MoSLoRA (UniARM)."""
