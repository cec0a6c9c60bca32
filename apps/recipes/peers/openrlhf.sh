#!/bin/sh
# OpenRLHF 0.10.2 or newer (dotted options): the scoring server speaks its reward protocol, so no code is needed.
#   rewardlab serve runs/rm --port 8000
# The request holds prompts and rendered texts; the server returns rewards, scores and extra_logs. OpenRLHF sends no
# token, so the server runs on the same machine, or behind a tunnel.
: "${REWARDLAB_URL:=http://127.0.0.1:8000}" "${MODEL:?a policy}" "${PROMPTS:?a data set with prompts}"
exec python3 -m openrlhf.cli.train_ppo_ray \
    --reward.remote_url "$REWARDLAB_URL/get_reward" \
    --actor.model_name_or_path "$MODEL" \
    --data.prompt_dataset "$PROMPTS" \
    --data.input_key prompt \
    --data.apply_chat_template \
    --algo.advantage.estimator group_norm \
    --rollout.n_samples_per_prompt 8 \
    --ckpt.output_dir runs/openrlhf \
    "$@"
