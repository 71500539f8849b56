# The bundled runtime: docker build -t vllm-probe . && docker run -p 127.0.0.1:8000:8000 vllm-probe MODEL --host 0.0.0.0
# `vllm-probe export docker` writes the line for a negotiated config, with the devices of its vendor.
FROM python:3.12-slim

# The build of torch: .../whl/cpu, .../whl/cu130, .../whl/rocm7.2 or .../whl/xpu
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --no-cache-dir torch --index-url "$TORCH_INDEX"

COPY pyproject.toml README.md LICENSE /src/
COPY vllm_probe /src/vllm_probe
COPY schemas /src/schemas
COPY capabilities /src/capabilities
RUN pip install --no-cache-dir '/src[runtime]' && rm -rf /src

EXPOSE 8000
# A config that was negotiated on another machine is negotiated again on this one.
ENTRYPOINT ["vllm-probe", "serve"]
