# syntax=docker/dockerfile:1

# The same Python in all stages: what is installed in one is run by another. `make lock` renews the digest.
ARG PYTHON_IMAGE=python:3.13-slim-trixie@sha256:9d2e5553305c7c7b0097999bb17187c69b921ccd6bc9d40e4bb5ebe652c00285

FROM ${PYTHON_IMAGE} AS build
# Without bytecode: pip imports attrs where it installs, and what Python then writes depends on the time of the build.
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /src
# With a pip of its own: a distribution's keeps no record of its files, and can't make way for pinned packages.
RUN python3 -m venv /opt/build && python3 -m venv --without-pip /opt/respread
ENV PATH=/opt/build/bin:$PATH
COPY requirements-operator.txt requirements-build.txt ./
RUN pip --python /opt/respread install --only-binary :all: --no-compile --require-hashes -r requirements-operator.txt && \
    pip install --only-binary :all: --require-hashes -r requirements-build.txt
COPY LICENSE ./
COPY operator/respread operator/respread
RUN pip wheel --no-build-isolation --no-deps --wheel-dir /wheels ./operator/respread && \
    pip --python /opt/respread install --no-compile --no-deps --no-index /wheels/*.whl && \
    ln -s respread-operator /opt/respread/bin/respread && \
    PYTHONHASHSEED=0 python3 -m compileall -q --invalidation-mode unchecked-hash /opt/respread/lib

# What both images have.
FROM ${PYTHON_IMAGE} AS runtime
# Bytecode is made here, once, since nothing can be written at run time; the base image comes without. With one hash seed
# and in one process it is the same each time.
RUN if command -v pip; then pip uninstall --yes --root-user-action=ignore pip; fi && \
    library=$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))') && \
    rm -rf "$library/ensurepip" && \
    PYTHONHASHSEED=0 python3 -m compileall -q --invalidation-mode unchecked-hash "$library"
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.source="https://github.com/respread/respread" \
      org.opencontainers.image.documentation="https://github.com/respread/respread/blob/main/README.md" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
ENV PATH=/opt/respread/bin:$PATH \
    RESPREAD_REVISION=${REVISION} \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# A number, so that the kubelet can see that it is not root.
USER 65532:65532
WORKDIR /
ENTRYPOINT ["respread"]

FROM runtime AS operator
LABEL org.opencontainers.image.title="respread" \
      org.opencontainers.image.description="Keeps Kubernetes pods spread as their topology spread constraints say"
COPY --from=build /opt/respread /opt/respread
EXPOSE 8080
CMD ["run"]

# The commands beside the operator, of which the page runs `respread ui`. Without the official client, which is larger than all
# else together: it gets credentials for kubeconfigs of people, and in a pod there is a token.
FROM build AS build-page
COPY requirements.txt pyproject.toml README.md ./
RUN pip --python /opt/respread install --only-binary :all: --no-compile --require-hashes -r requirements.txt && \
    pip --python /opt/respread uninstall --yes kubernetes
COPY crds crds
COPY manifests manifests
COPY operator/respread_cli operator/respread_cli
RUN pip wheel --no-build-isolation --no-deps --wheel-dir /wheels/page . && \
    rm /opt/respread/bin/respread && \
    pip --python /opt/respread install --no-compile --no-deps --no-index /wheels/page/*.whl && \
    PYTHONHASHSEED=0 python3 -m compileall -q --invalidation-mode unchecked-hash /opt/respread/lib

FROM runtime AS page
LABEL org.opencontainers.image.title="respread-ui" \
      org.opencontainers.image.description="The page of Respread, which only reads"
COPY --from=build-page /opt/respread /opt/respread
CMD ["ui", "--no-open", "--no-token", "--port=8765"]

# What is built without --target.
FROM operator
