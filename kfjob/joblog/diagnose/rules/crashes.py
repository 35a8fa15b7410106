"""C++ code, the C library or the CPU ended a process."""

from kfjob.joblog.diagnose.rule import Role, Rule

_SHOW = "`PYTHONFAULTHANDLER=1` in `env` shows the Python stack"

RULES = (
    Rule(
        id="openmp-twice",
        title="two OpenMP runtimes are loaded",
        cause=(
            "two packages bring their own OpenMP library ({one} and {two}), usually one from conda and one from pip, and the "
            "second one refuses to start"
        ),
        remedy=(
            "install torch and numpy from the same source (pip or conda) and remove the second library; "
            "`KMP_DUPLICATE_LIB_OK=TRUE` in `env` only hides the conflict"
        ),
        pattern=r"OMP: Error #15: Initializing (?P<one>\S+?), but found (?P<two>\S+) already initialized|OMP: Error #15",
    ),
    Rule(
        id="heap-corrupted",
        title="native code has corrupted the memory of the process ({what})",
        cause=(
            "the C library found its heap or stack damaged: a C++ extension wrote outside of its memory or freed it twice, or "
            "two packages with different C++ runtimes or allocators share an object"
        ),
        remedy=(
            f"{_SHOW}; update or reinstall the packages with native code, and try another allocator (`LD_PRELOAD` with or "
            "without tcmalloc or jemalloc)"
        ),
        pattern=r"(?P<what>(?:free|malloc|realloc|munmap_chunk|malloc_consolidate)\(\): [^\n]*|double free or corruption[^\n]*"
        r"|corrupted (?:size|double-linked)[^\n]*|(?:stack smashing|buffer overflow) detected)",
        role=Role.SUSPECT,
    ),
    Rule(
        id="triton-assertion",
        title="Triton's compiler stopped at a kernel that it cannot build for this GPU",
        cause=(
            "an assertion of the compiler failed ({what}): most often the kernel needs a newer generation of GPUs (Ampere or "
            "later for bf16 and flash attention kernels), or this triton is too old for the card"
        ),
        remedy=(
            "use another implementation of the kernel (such as sdpa attention), install the triton that belongs to torch, or "
            "choose an `instance` with newer GPUs"
        ),
        pattern=(
            r"(?:mlir::|/lib/(?:Analysis|Conversion"
            r"|Dialect)/)[^\n]*Assertion [`'\"][^\n]*?(?:&& \"(?P<what>[^\"\n]*)\"|failed)"
        ),
    ),
    Rule(
        id="assertion-failed",
        title="an assertion in native code failed: `{what}`",
        cause="{file} ends the process, because a condition that its authors rely on does not hold",
        remedy=f"{_SHOW}; the file belongs to the package to update; its message names the wrong value or version",
        pattern=r"^[^:\n]{1,200}: (?P<file>[^:\s]{1,300}:\d+): [^\n]*\bAssertion [`'\"](?P<what>[^\n]*?)[`'\"] failed",
        role=Role.SUSPECT,
        unless=("block: [",),
    ),
    Rule(
        id="illegal-instruction",
        title="a process used a CPU instruction that this machine does not have (SIGILL)",
        cause="a package was built for other instructions (AVX2, AVX-512 …) than the CPU of this node has",
        remedy=(
            "install a generic build of the package (its manylinux wheel, without `-march=native`), or choose an `instance` "
            "with a newer CPU; `lscpu` shows its flags"
        ),
        local_remedy="install a generic build of the package (its manylinux wheel); `lscpu` shows the flags of the CPU",
        pattern=r"Illegal instruction|failed \(exitcode: -4\)|with return code = -4\b|\bSIGILL\b",
        role=Role.SUSPECT,
    ),
    Rule(
        id="arithmetic-signal",
        title="native code divided by zero (SIGFPE)",
        cause=(
            "the CPU reports an arithmetic exception: an integer division by zero in native code, often for an empty input or "
            "for a size or a count of devices that is 0"
        ),
        remedy=f"{_SHOW}; check the sizes that the program passes to that call",
        pattern=r"Floating point exception|failed \(exitcode: -8\)|with return code = -8\b|\bSIGFPE\b",
        role=Role.SUSPECT,
    ),
    Rule(
        id="wrong-architecture",
        futile_after=1,
        title="the program or the image was built for another CPU architecture",
        cause="the kernel cannot run the file: it is an arm64 binary on an amd64 node or the reverse, or a damaged file",
        remedy=(
            "build the image for the architecture of the nodes (`docker build --platform linux/amd64`), or choose an "
            "`instance` of its architecture; `file PATH` shows that of a binary"
        ),
        local_remedy="install a build for the architecture of this machine (`uname -m`); `file PATH` shows that of a binary",
        pattern=r"[Ee]xec format error",
    ),
)
