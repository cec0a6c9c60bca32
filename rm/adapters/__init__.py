"""Low-rank adapters: LoRA (GenARM), PBLoRA (PARM) and MoSLoRA (UniARM)."""

ADAPTER_OF_METHOD = {"genarm": "lora", "parm": "pblora", "uniarm": "moslora"}
