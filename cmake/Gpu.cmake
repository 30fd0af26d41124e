# What is checked on a GPU: the target `cuda_check` builds the program and the test binaries that have a
# <area>_gpu test; gpu_tests.txt in the build folder lists them for tools/gpu_check.sh, one line per binary:
# its path in the build folder and its filter.
if(COLONNADE_CUDA AND COLONNADE_TESTS)
  get_property(lines GLOBAL PROPERTY COLONNADE_GPU_TESTS)
  get_property(binaries GLOBAL PROPERTY COLONNADE_GPU_BINARIES)
  list(JOIN lines "\n" text)
  file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/gpu_tests.txt" CONTENT "${text}\n")
  add_custom_target(cuda_check DEPENDS colonnade ${binaries})
endif()
