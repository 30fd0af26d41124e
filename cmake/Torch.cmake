# The pinned LibTorch of the PyPI wheel, as two targets:
#   col_fmt    fmt alone, for areas without LibTorch
#   col_torch  ATen, autograd and c10 for the CPU; with COLONNADE_CUDA also torch_cuda
set(COLONNADE_TORCH_VERSION 2.11.0)
set(COLONNADE_TORCH_DIR "" CACHE PATH "Folder `torch` of the wheel; empty: from the project's .venv")
if(NOT COLONNADE_TORCH_DIR)
  file(GLOB found "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch")
  if(NOT found)
    message(FATAL_ERROR "torch ${COLONNADE_TORCH_VERSION} must be installed; got no .venv here; run `tools/setup.sh`")
  endif()
  list(GET found 0 COLONNADE_TORCH_DIR)
endif()
file(READ "${COLONNADE_TORCH_DIR}/version.py" version_text)
if(NOT version_text MATCHES "'${COLONNADE_TORCH_VERSION}")
  message(FATAL_ERROR "torch must be version ${COLONNADE_TORCH_VERSION}; got another one in ${COLONNADE_TORCH_DIR}; run `tools/setup.sh`")
endif()

# The wheel's include folder shadows Debian headers (protobuf, pybind11), so fmt gets its own include folder.
set(fmt_include "${PROJECT_BINARY_DIR}/fmt_include")
file(MAKE_DIRECTORY "${fmt_include}")
file(CREATE_LINK "${COLONNADE_TORCH_DIR}/include/fmt" "${fmt_include}/fmt" SYMBOLIC)
add_library(col_fmt STATIC "${PROJECT_SOURCE_DIR}/src/colonnade/base/fmt.cpp")
target_include_directories(col_fmt SYSTEM PUBLIC "${fmt_include}")

add_library(col_torch INTERFACE)
target_include_directories(col_torch SYSTEM INTERFACE
  "${COLONNADE_TORCH_DIR}/include" "${COLONNADE_TORCH_DIR}/include/torch/csrc/api/include")
target_compile_definitions(col_torch INTERFACE USE_C10D_GLOO)
get_filename_component(site_packages "${COLONNADE_TORCH_DIR}" DIRECTORY)
file(GLOB nvidia_lib_dirs "${site_packages}/nvidia/*/lib")
set(COLONNADE_RPATH "${COLONNADE_TORCH_DIR}/lib" ${nvidia_lib_dirs})
target_link_directories(col_torch INTERFACE "${COLONNADE_TORCH_DIR}/lib")
target_link_libraries(col_torch INTERFACE torch_cpu c10 col_fmt)
if(COLONNADE_CUDA)
  # torch_cuda registers its kernels at load time, so it must be linked although no symbol is referenced.
  # Its own dependencies (cuBLAS, cuDNN, NCCL, ...) are resolved at run time, not at link time.
  # No compile options change here: objects are the same with and without CUDA, except the areas' CUDA sources.
  target_link_options(col_torch INTERFACE "-Wl,--no-as-needed" "-Wl,--allow-shlib-undefined")
  target_link_libraries(col_torch INTERFACE torch_cuda c10_cuda $<LINK_ONLY:CUDA::cudart>)
endif()
foreach(dir ${COLONNADE_RPATH})
  target_link_options(col_torch INTERFACE "-Wl,-rpath,${dir}" "-Wl,-rpath-link,${dir}")
endforeach()
