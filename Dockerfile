# syntax=docker/dockerfile:1

# The same Python in both stages: what is installed in one is run by the other.
ARG PYTHON_IMAGE=python:3.13-slim-trixie

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
RUN python -m venv --without-pip /opt/respread
COPY requirements.txt requirements-build.txt ./
RUN pip --python /opt/respread install --only-binary :all: --no-compile --require-hashes -r requirements.txt && \
    pip install --only-binary :all: --require-hashes -r requirements-build.txt
COPY pyproject.toml README.md LICENSE ./
COPY crds crds
COPY manifests manifests
COPY operator/respread operator/respread
RUN pip wheel --no-build-isolation --no-deps --wheel-dir /wheels . && \
    pip --python /opt/respread install --no-compile --no-deps --no-index /wheels/*.whl

FROM ${PYTHON_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="respread" \
      org.opencontainers.image.description="Keeps Kubernetes pods spread as their topology spread constraints say" \
      org.opencontainers.image.source="https://github.com/respread/respread" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.documentation="https://github.com/respread/respread/blob/main/README.md" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/respread /opt/respread
# Bytecode is made here, once, since nothing can be written at run time; the base image comes without.
RUN pip uninstall --yes --root-user-action=ignore pip && \
    rm -rf /usr/local/lib/python3.13/ensurepip && \
    python -m compileall -q -j 0 --invalidation-mode unchecked-hash /usr/local/lib/python3.13 /opt/respread/lib
ENV PATH=/opt/respread/bin:$PATH \
    RESPREAD_REVISION=${REVISION} \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# A number, so that the kubelet can see that it is not root.
USER 65532:65532
WORKDIR /
EXPOSE 8080
ENTRYPOINT ["respread"]
CMD ["run"]
