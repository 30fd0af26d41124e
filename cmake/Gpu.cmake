# GPU checks: the target `cuda_check` builds the program and the test binaries with an <area>_gpu test. gpu_tests.txt in
# the build folder lists these binaries for tools/gpu_check.sh, one per line: path in the build folder and filter.
if(COLONNADE_CUDA AND COLONNADE_TESTS)
  get_property(lines GLOBAL PROPERTY COLONNADE_GPU_TESTS)
  get_property(binaries GLOBAL PROPERTY COLONNADE_GPU_BINARIES)
  list(JOIN lines "\n" text)
  file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/gpu_tests.txt" CONTENT "${text}\n")
  add_custom_target(cuda_check DEPENDS colonnade ${binaries})
endif()
