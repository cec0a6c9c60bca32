# docker build -t rewardlab .                        installs PyTorch as the package index has it, which uses a GPU where there is one
# docker build --build-arg PIP_EXTRA_INDEX_URL=... . names PyTorch's index of CPU builds, which are smaller
# docker build --build-arg EXTRAS=all .              other extras than the inspector
# docker run --rm -v "$PWD:/work" rewardlab eval --benchmark pairs --model runs/rm --data test.jsonl --output runs/eval
ARG PYTHON=3.12
FROM python:${PYTHON}-slim
ARG EXTRAS=inspect
ARG PIP_EXTRA_INDEX_URL=
COPY . /opt/rewardlab
RUN pip install --no-cache-dir --constraint /opt/rewardlab/constraints.txt "/opt/rewardlab[${EXTRAS}]" && useradd --create-home user
USER user
WORKDIR /work
ENTRYPOINT ["rewardlab"]
