#!/usr/bin/env python3
"""Lets Python import the torch wheel of .venv without its GPU libraries (saves 2.7 GB).

The wheel's libraries name cuDNN, NCCL and others as needed. For those that are absent this writes empty
ones that satisfy the loader and abort when a GPU function is called, and a .pth file that loads them
before torch. Only Python tests use them: they lie where no C++ program looks. Run by tools/setup.sh.
"""
import pathlib
import re
import subprocess
import sys
import sysconfig

GPU_SYMBOL = re.compile(r"^(cublas|cudnn|cufft|cusparse|cuFile|curand|nccl|nvshmem|cusolver|nvrtc|nvJitLink)\w*$")
LIBRARIES = ("libtorch_cuda.so", "libtorch_nvshmem.so", "libtorch_python.so", "libc10_cuda.so")
LOADER = '''import ctypes, glob, importlib.util, os
if importlib.util.find_spec("nvidia.cudnn") is None:
    for path in sorted(glob.glob(os.path.join({folder!r}, "*.so.*"))):
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
'''


def imports_torch() -> bool:
    return subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0


def needed(library: pathlib.Path) -> list[str]:
    text = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.+)\]", text)


def undefined(library: pathlib.Path) -> set[str]:
    text = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1].split("@")[0] for line in text.splitlines() if line.strip()}
    return {name for name in names if GPU_SYMBOL.match(name)}


def found_by_loader(soname: str) -> bool:
    code = f"import ctypes; ctypes.CDLL({soname!r})"
    return subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def main() -> int:
    if imports_torch():
        return 0
    site = pathlib.Path(sysconfig.get_path("purelib"))
    torch_lib = site / "torch" / "lib"
    present = {path.name for path in [*torch_lib.iterdir(), *site.glob("nvidia/*/lib/*")]}
    libraries = [torch_lib / name for name in LIBRARIES]
    sonames = {name for library in libraries for name in needed(library)} - present
    absent = sorted(name for name in sonames if not found_by_loader(name))
    symbols = sorted(set().union(*(undefined(library) for library in libraries)))
    folder = pathlib.Path(sys.prefix) / "lib" / "torch-stand-ins"
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "stand_ins.c"
    source.write_text("#include <stdlib.h>\n" + "".join(f"void {name}(void) {{ abort(); }}\n" for name in symbols))
    for soname in absent:
        subprocess.run(["gcc", "-w", "-shared", "-fPIC", "-fno-builtin", f"-Wl,-soname,{soname}", "-o", folder / soname, source],
                       check=True)
    (site / "torch_stand_ins.py").write_text(LOADER.format(folder=str(folder)))
    (site / "torch_stand_ins.pth").write_text("import torch_stand_ins\n")
    if imports_torch():
        return 0
    print("torch: Python cannot import the wheel without its GPU libraries; "
          f"stand-ins were made for {', '.join(absent)}; run `.venv/bin/python -c 'import torch'` for the reason",
          file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
