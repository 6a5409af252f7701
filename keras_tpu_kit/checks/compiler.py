"""Rules on which TPU compiler can run here, and what is said where it does not answer."""

from __future__ import annotations

from keras_tpu_kit.errors import Finding

INSTALL_PREFLIGHT = 'pip install "keras_tpu_kit[preflight]"'
CONTAINER = (
    "docker run --rm --platform linux/amd64 -v .:/here -w /here python:3.11 sh -c "
    "'pip install \"keras_tpu_kit[tensorflow,preflight]\" && keras-tpu-kit preflight --demo'"
)
NOTEBOOK = '%pip install "keras_tpu_kit[preflight]"'

# jax, jaxlib and libtpu that the tests have compiled with; the rest of a release moves together.
TESTED = (("0.10.2", "0.10.2", "0.0.52"),)


def check_compiler_platform(system: str, machine: str) -> Finding | None:
    """Returns a finding where no TPU compiler exists for this kind of machine.

    Args:
        system: As `sys.platform`.
        machine: As `platform.machine()`.

    Example:

    >>> check_compiler_platform("darwin", "arm64").code
    'compiler-not-for-platform'
    >>> check_compiler_platform("linux", "x86_64") is None
    True
    """
    if system == "linux" and machine.lower() in ("x86_64", "amd64"):
        return None
    return Finding(
        "compiler-not-for-platform",
        "error",
        what=f"There is no TPU compiler for {system} on {machine}.",
        why="The package libtpu is built for Linux on x86-64 only.",
        fix=f"Run it in a container: {CONTAINER} ; or in a free CPU notebook on Colab or Kaggle: "
        f"{NOTEBOOK} .",
        cures=({"system": "linux", "machine": "x86_64"},),
    )


def check_compiler_versions(
    jax: str | None, jaxlib: str | None, libtpu: str | None
) -> Finding | None:
    """Returns a finding where the TPU compiler is missing, or its parts do not go together.

    Args:
        jax: Installed version, or `None`.
        jaxlib: Installed version, or `None`.
        libtpu: Installed version, or `None`.

    Example:

    >>> check_compiler_versions(None, None, None).code
    'compiler-missing'
    >>> print(check_compiler_versions("0.10.2", "0.10.2", "0.0.10").what)
    jax 0.10.2, jaxlib 0.10.2 and libtpu 0.0.10 do not go together.
    >>> check_compiler_versions("0.10.2", "0.10.2", "0.0.52") is None
    True
    """
    missing = [
        name
        for name, version in (("jax", jax), ("jaxlib", jaxlib), ("libtpu", libtpu))
        if version is None
    ]
    tested = dict(zip(("jax", "jaxlib", "libtpu"), TESTED[0], strict=True))
    if missing:
        return Finding(
            "compiler-missing",
            "error",
            what=f"The TPU compiler is not installed: {', '.join(missing)} missing.",
            why="Preflight compiles with the compiler that libtpu holds, which jax and jaxlib "
            "drive.",
            fix=f"{INSTALL_PREFLIGHT} , or pass --compiler-python with an interpreter that has "
            "them.",
            cures=(tested,),
        )
    if (jax, jaxlib, libtpu) in TESTED:
        return None
    return Finding(
        "compiler-versions",
        "error",
        what=f"jax {jax}, jaxlib {jaxlib} and libtpu {libtpu} do not go together.",
        why="jax hands its programs to libtpu in a format that older releases do not read, and "
        "only these were tried: "
        + "; ".join(f"jax {a}, jaxlib {b}, libtpu {c}" for a, b, c in TESTED)
        + ".",
        fix="Make a second environment with "
        f'`python -m venv tpu-compiler && tpu-compiler/bin/pip install "jax=={TESTED[0][0]}" '
        f'"jaxlib=={TESTED[0][1]}" "libtpu=={TESTED[0][2]}"` and pass '
        "--compiler-python tpu-compiler/bin/python.",
        cures=(tested,),
    )


def check_timeout(seconds: float) -> Finding | None:
    """Returns a finding where a time limit gives the compiler no time.

    Example:

    >>> check_timeout(-1.0).code
    'timeout-not-positive'
    """
    if seconds > 0:  # Not where it is not a number.
        return None
    return Finding(
        "timeout-not-positive",
        "error",
        what=f"A time limit of {seconds:g} s leaves the compiler no time.",
        why="It is the seconds that one compilation may take.",
        fix="Use --timeout 900 (timeout=900), or more.",
        cures=({"seconds": 900.0},),
    )


def no_interpreter(python: str, problem: str) -> Finding:
    """Returns the finding for a compiler's interpreter that cannot be asked.

    Example:

    >>> no_interpreter("/nowhere/python", "No such file").code
    'compiler-python'
    """
    return Finding(
        "compiler-python",
        "error",
        what=f"The interpreter {python!r} does not answer: {problem}.",
        why="It shall run the TPU compiler.",
        fix="Pass --compiler-python with the path of a Python 3 that has jax, jaxlib and libtpu, "
        "such as tpu-compiler/bin/python.",
    )


def compiler_timed_out(tpu: str, seconds: float) -> Finding:
    """Returns the finding for a compiler that was stopped at its time limit.

    Example:

    >>> print(compiler_timed_out("v3-8", 600).what)
    The TPU compiler did not finish for v3-8 within 600 s and was stopped.
    """
    return Finding(
        "compiler-timeout",
        "error",
        what=f"The TPU compiler did not finish for {tpu} within {seconds:g} s and was stopped.",
        why="Large programs and busy machines take longer; long unrolled loops are the usual "
        "cause of programs that never end.",
        fix=f"Pass --timeout {seconds * 3:g}, a smaller model, or keras.layers.RNN with "
        "unroll=False.",
        cures=({"seconds": seconds * 3},),
    )


def compiler_died(tpu: str, how: str, log: str) -> Finding:
    """Returns the finding for a compiler whose process ended without an answer.

    Args:
        tpu: The TPU type.
        how: How it ended, such as `"was killed by SIGKILL"`.
        log: The last lines that it wrote.

    Example:

    >>> print(compiler_died("v3-8", "was killed by SIGKILL", "").what)
    The TPU compiler was killed by SIGKILL while compiling for v3-8.
    """
    last = next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "")
    return Finding(
        "compiler-killed",
        "error",
        what=f"The TPU compiler {how} while compiling for {tpu}.",
        why="A compiler that runs out of this machine's memory is killed by the system, and one "
        "that meets a program it cannot handle may end itself"
        + (f"; its last words: {last[:300]}" if last else "")
        + ".",
        fix="Free memory or use a machine with more, try a smaller batch, and report the model if "
        "it stays so.",
    )


def compiler_broken(versions: dict[str, str], stage: str, message: str) -> Finding:
    """Returns the finding for a compiler that cannot start or cannot read a program.

    Args:
        versions: Versions of jax, jaxlib and libtpu.
        stage: `"import"`, `"topology"` or `"parse"`.
        message: Its own words.

    Example:

    >>> compiler_broken({"jax": "1"}, "topology", "no such topology").code
    'compiler-broken'
    """
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    first = message.strip().splitlines()[0] if message.strip() else "no message"
    return Finding(
        "compiler-broken",
        "error",
        what=f"The TPU compiler ({told}) failed before compiling, at {stage}: {first[:300]}.",
        why="The parts of its installation do not work together, or not with this TensorFlow.",
        fix=f"Install the tested parts anew: {INSTALL_PREFLIGHT} .",
    )
