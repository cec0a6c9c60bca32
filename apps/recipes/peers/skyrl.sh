#!/bin/sh
# SkyRL with the reward of a scoring server:
#   rewardlab serve runs/rm --port 8000
# skyrl_main.py registers the environment and starts SkyRL's trainer. Rows hold `prompt` (messages) and `reward_spec`.
: "${DATA:?a folder with train.parquet and validation.parquet}" "${MODEL:?a policy}"
: "${REWARDLAB_URL:=http://127.0.0.1:8000}"
export REWARDLAB_URL
exec python -m rewardlab.apps.recipes.peers.skyrl_main \
    data.train_data="['$DATA/train.parquet']" \
    data.val_data="['$DATA/validation.parquet']" \
    trainer.policy.model.path="$MODEL" \
    trainer.algorithm.advantage_estimator=grpo \
    generator.n_samples_per_prompt=8 \
    environment.env_class=rewardlab \
    "$@"
