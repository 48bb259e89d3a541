# glie in a container: docs/install.md says how to run it. EXTRAS chooses what is in it.
FROM python:3.12-slim-bookworm AS build
ARG EXTRAS=cli,documents,encoder,endpoint,ocr,serve,qdrant,postgres
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY pyproject.toml README.md LICENSE constraints-hashed.txt ./
COPY src src
# Wheels alone, of the versions that were tested together, by their hashes; the project has none.
RUN python -m venv /opt/glie \
    && sed -n '/^pip==/,/[^\\]$/p' constraints-hashed.txt > pip.txt \
    && /opt/glie/bin/pip install --require-hashes --requirement pip.txt \
    && /opt/glie/bin/pip install --no-require-hashes --only-binary :all: \
        --constraint constraints-hashed.txt --build-constraint constraints-hashed.txt \
        ".[${EXTRAS}]"
# Compile the loops for the processor that builds the image. Another one compiles its own, once.
COPY docs/method.md docs/format.md /warm/
RUN export NUMBA_CACHE_DIR=/cache \
    && /opt/glie/bin/glie index /warm --to /warm.glie \
    && /opt/glie/bin/glie search /warm.glie "bytes of a page" --top 1

FROM python:3.12-slim-bookworm
RUN groupadd --gid 10001 glie \
    && useradd --uid 10001 --gid glie --no-create-home --home-dir /data glie \
    && install --directory --owner=glie --group=glie /data
COPY --from=build /opt/glie /opt/glie
COPY --from=build --chown=10001:10001 /cache /cache
ENV PATH=/opt/glie/bin:$PATH \
    HOME=/data \
    NUMBA_CACHE_DIR=/cache \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /data
VOLUME ["/data", "/cache"]
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["glie"]
CMD ["serve", "/data/index.glie", "--host", "0.0.0.0"]
