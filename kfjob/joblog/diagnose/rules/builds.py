"""Code that is compiled at start, and packages that were built for another torch, CUDA, libc or GPU."""

from kfjob.joblog.diagnose.rule import Role, Rule

RULES = (
    Rule(
        id="cuda-toolkit-mismatch",
        title="the CUDA toolkit differs from torch's CUDA version",
        cause="the nvcc that compiles the extension belongs to another CUDA version than the one that torch was built with",
        remedy="use an image with the CUDA toolkit of torch (`torch.version.cuda`), or prebuilt wheels of the extension",
        local_remedy="install the CUDA toolkit of torch's version, or prebuilt wheels of the extension",
        pattern=r"detected CUDA version \S+ mismatches|does not match the version torch was compiled with",
    ),
    Rule(
        id="cuda-toolkit-missing",
        title="the CUDA toolkit is missing: an extension cannot be compiled",
        cause="an extension is compiled at start and needs nvcc, which is missing, or `CUDA_HOME` does not lead to it",
        remedy="use a -devel image with torch's CUDA version, set `CUDA_HOME`, or install a wheel of the extension",
        local_remedy="install the CUDA toolkit of torch's version, set `CUDA_HOME`, or install a wheel of the extension",
        pattern=r"CUDA_HOME (?:environment variable is not set|does not exist)|nvcc'?:? (?:command )?not found"
        r"|No such file or directory: "
        r"'[^']*nvcc'|[Uu]nable to find nvcc|No such file or directory.*nvcc",
        probed=True,
    ),
    Rule(
        id="compiler-missing",
        title="the container has no C compiler, or no ninja",
        cause="Triton, torch.compile and C++ extensions compile code at run time and need gcc or clang, and some need ninja",
        remedy=(
            "install them in the image (`apt-get install build-essential ninja-build`), or set `CC`; without torch.compile: "
            "`TORCHDYNAMO_DISABLE=1`"
        ),
        local_remedy="`apt-get install build-essential ninja-build`; without torch.compile: `TORCHDYNAMO_DISABLE=1`",
        pattern=r"Ninja is required to load C\+\+ extensions|ninja: (?:command )?not found|No such file or directory: 'ninja'"
        r"|Failed to find C compiler|InvalidCxxCompiler|No working C\+\+ compiler|No such file or directory: '(?:\S*/)?"
        r"(?:gcc|g\+\+|cc|c\+\+|clang\+*|x86_64-linux-gnu-gcc)'|(?:^|[ /])(?:gcc|g\+\+|cc|c\+\+|clang): (?:command )?not found"
        r"|unable to execute '(?:gcc|g\+\+|cc|x86_64-linux-gnu-gcc)'"
        r"|make: (?:gcc|g\+\+|cc|c\+\+|clang\+*): (?:No such file|Command not found)",
        probed=True,
    ),
    Rule(
        id="build-files-missing",
        title="`{name}` is missing: code cannot be compiled at run time",
        cause="the compiler or linker needs a development file of Python or a library, and no folder that it searches has it",
        remedy=(
            "install it in the image (python3-dev for Python.h, a -devel image for CUDA's files), or add its folder to `CPATH` "
            "or `LIBRARY_PATH`; -lcuda is the driver's libcuda.so: set `TRITON_LIBCUDA_PATH` to its folder"
        ),
        local_remedy="install it (python3-dev for Python.h, the CUDA toolkit for CUDA's files), or add its folder to `CPATH`",
        pattern=r"fatal error: '?(?P<name>[\w./+-]+\.(?:h|hpp|cuh))'?(?:: No such file| file not found)"
        r"|\bld(?:\.\w+)?: cannot find (?P<name2>-l[\w.+-]*\w)",
        probed=True,
    ),
    Rule(
        id="triton-missing",
        title="torch.compile finds no working Triton",
        cause="the inductor backend needs the triton package that belongs to torch, and it is not installed or does not fit",
        remedy="install the triton that torch requires (`pip show torch`), or set `TORCHDYNAMO_DISABLE=1`",
        pattern=(
            r"[Cc]annot find a working triton|TritonMissing|No module named 'triton'|[Tt]riton is not (?:available|installed)"
        ),
        probed=True,
    ),
    Rule(
        id="ptx-assembler",
        title="Triton or the CUDA toolkit does not know this GPU",
        cause="ptxas or LLVM is older than the card: it has no code generator for its compute capability",
        remedy="use newer versions of torch and triton (or a newer CUDA toolkit) that support the card",
        pattern=r"ptxas (?:fatal|error)|PassManager::run failed|not defined for option 'gpu-name'|Unsupported gpu architecture",
    ),
    Rule(
        id="extension-build",
        title="a C++ or CUDA extension cannot be built",
        cause=(
            "the program compiles {name} at start, and the compiler fails: the compiler or the CUDA toolkit (nvcc) does not "
            "fit torch, or a header is missing"
        ),
        remedy=(
            "look for the first error of the compiler above; use a -devel image with the CUDA version of torch, or build the "
            "extension in the image (DeepSpeed: `DS_BUILD_FUSED_ADAM=1 pip install deepspeed`)"
        ),
        local_remedy="see the first error of the compiler above; install torch's CUDA toolkit and a gcc that it supports",
        pattern=r"Error building extension '(?P<name>\w+)'|ninja: build stopped|\['ninja'[^\n]*returned non-zero"
        r"|Error compiling objects for extension|nvcc fatal|Unable to pre-compile (?P<name2>\w+)"
        r"|Command '\['[^']*(?:gcc|g\+\+|clang|nvcc)'",
    ),
    Rule(
        id="compile-failed",
        title="torch.compile failed",
        cause="the compiler of torch stopped at a part of the model: {what}",
        remedy='`TORCHDYNAMO_DISABLE=1` runs without it; `TORCH_LOGS="+dynamo"` shows the part; update torch with triton',
        pattern=(
            r"(?P<what>backend='\w+' raised)|InductorError: (?P<what2>[^\n]*)|torch\._(?:dynamo"
            r"|inductor)\.exc\.(?P<what3>\w+)"
        ),
        role=Role.SUSPECT,
        wraps=True,
    ),
    Rule(
        id="cuda-libraries-mixed",
        title="CUDA libraries of different versions are mixed",
        cause="the linker finds another copy of a CUDA or NCCL library than torch's own: it lacks the symbol {what}",
        remedy="remove CUDA folders from `LD_LIBRARY_PATH`, and install one torch with the nvidia packages of its own version",
        pattern=r"undefined\s+symbol: (?P<what>\w*(?:nvJitLink|cusparse|cublas|cudnn|cufft|cusolver|nvrtc|nccl)\w*)",
    ),
    Rule(
        id="extension-abi",
        title="a compiled extension was built for another version of torch",
        cause="`{file}` needs symbols that the installed torch or Python lacks: their versions do not belong together",
        remedy=(
            "reinstall the package for the installed torch: a wheel of the same torch, CUDA, Python and C++ ABI version, or "
            "rebuild it (`pip install --no-build-isolation --force-reinstall PACKAGE`, such as flash-attn)"
        ),
        pattern=(
            r"(?P<file>[\w.+-]+\.so)\S*: undefined\s+symbol|undefined\s+symbol: \w*(?:c10|torch|at\d)"
            r"|(?P<file2>\S+): DLL load failed|operator (?P<file3>\w+)::\w+ does not exist"
            r"|'_OpNamespace' '(?P<file4>\w+)' object has no attribute"
        ),
    ),
    Rule(
        id="libstdcxx-too-old",
        title="the C++ runtime (libstdc++) is too old",
        cause="a compiled library needs a newer libstdc++ ({what}) than the loaded one, which is usually conda's own",
        remedy="`conda install -c conda-forge libstdcxx-ng`, or put the system's folder first in `LD_LIBRARY_PATH`",
        pattern=r"version .(?P<what>(?:GLIBCXX|CXXABI)_[\d.]+)' not found",
    ),
    Rule(
        id="glibc-too-old",
        title="the C library (glibc) is too old",
        cause="a package was built on a newer distribution than this one: it needs {what}",
        remedy="use a base image with a newer distribution, or a build of the package for manylinux2014",
        local_remedy="use a newer distribution, or a build of the package for manylinux2014",
        pattern=r"version .(?P<what>GLIBC_[\d.]+)' not found",
    ),
    Rule(
        id="bitsandbytes-binary",
        title="bitsandbytes has no library for this CUDA version",
        cause="the installed build of bitsandbytes was made without the native CUDA library that torch's CUDA version needs",
        remedy=(
            "upgrade or reinstall bitsandbytes (a wheel that matches the CUDA version of torch), or build it with CUDA; "
            "`python -m bitsandbytes` shows what it looks for"
        ),
        pattern=r"cget_managed_ptr|undefined symbol: cquantize_blockwise"
        r"|libbitsandbytes_\w+\.so\b.{0,80}(?:cannot open|not found|No such file|does not exist|undefined symbol)"
        r"|(?:cannot|could not|[Ff]ailed to|not find|missing).{0,80}libbitsandbytes_\w+\.so"
        r"|bitsandbytes.*(?:compiled without GPU|CUDA Setup failed|CUDA binary|native library)"
        r"|CUDA Setup failed despite GPU being available",
        unless=("UserWarning",),
    ),
    Rule(
        id="shared-library-missing",
        title="the shared library `{name}` is missing",
        cause="no folder of the linker has it: a system package is not installed, or its folder is not searched",
        remedy="install the package that holds it in the image, or add its folder to `LD_LIBRARY_PATH`",
        local_remedy="install the package that holds it, or add its folder to `LD_LIBRARY_PATH`",
        pattern=r"(?P<name>[\w.+-]+\.so[\w.]*): cannot open shared object file|Missing dependency: (?P<name2>lib\S+)",
        unless=("libcuda.so",),
        probed=True,
    ),
    Rule(
        id="numpy-abi",
        title="a compiled package does not fit the installed NumPy",
        cause="it was built for another major version of NumPy",
        remedy="pin `numpy<2`, or install newer versions of the packages that the message names",
        pattern=(
            r"size changed, may indicate binary incompatibility|numpy\.core\.multiarray failed to import|_ARRAY_API not found"
            r"|RuntimeError: Numpy is not available"
        ),
        role=Role.SUSPECT,
    ),
    Rule(
        id="model-type-unknown",
        title="this version of transformers does not know `{name}`",
        cause="the installed transformers is too old for the model, or the model's own code was not registered",
        remedy="`pip install -U transformers`, or pass `trust_remote_code=True` for a model with its own code",
        pattern=r"model type .(?P<name>[\w.-]+). but Transformers does not recognize|Unrecognized configuration class"
        r"|Unrecognized model in "
        r"(?P<name2>\S+?)\.? |Unknown model type:? (?P<name3>\S+)|Tokenizer class (?P<name4>\w+) does not exist",
    ),
)
