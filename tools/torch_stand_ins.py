#!/usr/bin/env python3
"""Lets Python import the torch wheel of .venv without its GPU libraries (saves 2.7 GB).

The wheel's libraries name cuDNN, NCCL and others as needed. This writes an empty one for each that .venv does not
hold, which satisfies the loader and aborts when a GPU function is called, and a .pth file that loads it before torch
unless the machine has the real one. So .venv serves machines with CUDA and without. Only Python tests use them: they
lie where no C++ program looks. Run by tools/setup.sh each time; where torch's libraries load it changes nothing.
"""
import ctypes
import pathlib
import re
import subprocess
import sys
import sysconfig

GPU_SYMBOL = re.compile(r"^(cublas|cudnn|cufft|cusparse|cuFile|curand|nccl|nvshmem|cusolver|nvrtc|nvJitLink)\w*$")
LIBRARIES = ("libtorch_cuda.so", "libtorch_nvshmem.so", "libtorch_python.so", "libc10_cuda.so")
GPU_LIBRARY = re.compile(r"^lib(cu|nccl|nv)\w*\.so\b")
LOADER = '''# Written by tools/torch_stand_ins.py.
import ctypes, glob, importlib.util, os, sys
if importlib.util.find_spec("nvidia.cudnn") is None:
    for path in sorted(glob.glob(os.path.join(sys.prefix, "lib", "torch-stand-ins", "*.so.*"))):
        for library in (os.path.basename(path), path):
            try:
                ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
                break
            except OSError:
                pass
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


def absent(site: pathlib.Path) -> list[str]:
    """The GPU libraries that torch's name and .venv does not hold."""
    present = {path.name for path in [*(site / "torch" / "lib").iterdir(), *site.glob("nvidia/*/lib/*")]}
    names = {name for library in LIBRARIES for name in needed(site / "torch" / "lib" / library)}
    return sorted(name for name in names - present if GPU_LIBRARY.match(name))


def is_complete(site: pathlib.Path, folder: pathlib.Path) -> bool:
    """Whether this process, which has run the .pth file, can load torch's libraries, and would on any other machine."""
    loader = site / "torch_stand_ins.py"
    if not loader.exists() or loader.read_text() != LOADER or not (site / "torch_stand_ins.pth").exists():
        return False
    if not all((folder / name).exists() for name in absent(site)):
        return False
    try:
        ctypes.CDLL(str(site / "torch" / "lib" / "libtorch_python.so"))
    except OSError:
        return False
    return True


def main() -> int:
    site = pathlib.Path(sysconfig.get_path("purelib"))
    folder = pathlib.Path(sys.prefix) / "lib" / "torch-stand-ins"
    if is_complete(site, folder):
        return 0
    libraries = [site / "torch" / "lib" / name for name in LIBRARIES]
    symbols = sorted(set().union(*(undefined(library) for library in libraries)))
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "stand_ins.c"
    source.write_text("#include <stdlib.h>\n" + "".join(f"void {name}(void) {{ abort(); }}\n" for name in symbols))
    made = absent(site)
    for soname in made:
        subprocess.run(["gcc", "-w", "-shared", "-fPIC", "-fno-builtin", f"-Wl,-soname,{soname}", "-o", folder / soname, source],
                       check=True)
    (site / "torch_stand_ins.py").write_text(LOADER)
    (site / "torch_stand_ins.pth").write_text("import torch_stand_ins\n")
    if imports_torch():
        return 0
    print("torch: Python must import the wheel without its GPU libraries; "
          f"got a failure with stand-ins for {', '.join(made)}; run `.venv/bin/python -c 'import torch'` for the reason",
          file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
