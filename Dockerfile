# The whole gym: ns-3, training, tracking and reports.
#   docker build -t bbrgym . && docker run --rm -v "$PWD/runs:/bbrgym/runs" bbrgym benchmark experiment=rtt_fairness
# engine=linux needs --cap-add NET_ADMIN --cap-add SYS_ADMIN.
FROM debian:12-slim
RUN apt-get update && apt-get install --yes --no-install-recommends python3-venv python3-dev g++ make git iproute2 \
  && rm -rf /var/lib/apt/lists/*
WORKDIR /bbrgym
COPY . .
RUN make setup
ENTRYPOINT [".venv/bin/bbrgym"]
CMD ["--help"]
