# Compile options of test sources: no optimization, and the precompiled header of tests with (torch) or without (plain)
# LibTorch, or of the program with JSON (program). tests/support/vectors.h locates test vectors and the project's files.
function(col_test_sources binary kind)
  target_include_directories(${binary} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_compile_definitions(${binary} PRIVATE COLONNADE_SOURCES="${PROJECT_SOURCE_DIR}")
  target_compile_options(${binary} PRIVATE -O0)
  target_precompile_headers(${binary} REUSE_FROM col_test_pch_${kind})
endfunction()

# col_simd_sources(<files>): sources of this folder that use base/simd.h. Only these are recompiled with
# COLONNADE_SIMD=OFF.
function(col_simd_sources)
  if(NOT COLONNADE_SIMD)
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_DEFINITIONS COL_SIMD=0)
  endif()
endfunction()

# col_area(<name> [TORCH] [ALONE] [COST <seconds>] DEPS <areas> SOURCES <files> TESTS <stems> [LINK <libraries>] [TEST_LINK <libraries>])
# adds the library col_<name> from src/colonnade/<name>/ and one test binary <name>_test from
# tests/<name>/<stem>_test.cpp. DEPS must match tools/layers.txt. Areas share a precompiled header, TORCH areas another
# one; unless COLONNADE_UNITY is off, TORCH areas compile eight sources as one, since headers take half of the compile
# time. Names in
# anonymous namespaces must therefore be unique in their area (tools/check_unity.py). Each test is registered with
# ctest under the label <name>. ALONE: no other test runs in parallel, because it measures times or starts processes.
# COST <seconds>: longer tests start first. GPU <filter>: with COLONNADE_CUDA the binary is also registered as
# <name>_gpu with the label gpu; it runs the tests that match the filter with COLONNADE_TEST_DEVICE=cuda
# (tests/support/device.h). Suites named Gpu* run only there.
function(col_area name)
  cmake_parse_arguments(A "TORCH;ALONE" "GPU;COST" "DEPS;SOURCES;TESTS;LINK;TEST_LINK;CUDA;NO_CUDA" ${ARGN})
  set(sources ${A_SOURCES})
  if(COLONNADE_CUDA)
    list(APPEND sources ${A_CUDA})
  else()
    list(APPEND sources ${A_NO_CUDA})
  endif()
  list(TRANSFORM sources PREPEND "${PROJECT_SOURCE_DIR}/src/colonnade/${name}/")
  set(lib col_${name})
  add_library(${lib} STATIC ${sources})
  set_property(GLOBAL APPEND PROPERTY COLONNADE_AREAS ${lib})
  target_include_directories(${lib} PUBLIC "${PROJECT_SOURCE_DIR}/src")
  list(TRANSFORM A_DEPS PREPEND col_ OUTPUT_VARIABLE deps)
  target_link_libraries(${lib} PUBLIC ${deps} ${A_LINK} col_flags)
  if(A_TORCH)
    target_link_libraries(${lib} PUBLIC col_torch)
    target_precompile_headers(${lib} REUSE_FROM col_pch)
    set_target_properties(${lib} PROPERTIES UNITY_BUILD ${COLONNADE_UNITY})
  else()
    target_link_libraries(${lib} PUBLIC col_fmt)
    target_precompile_headers(${lib} REUSE_FROM col_plain_pch)
  endif()
  if(A_TESTS AND COLONNADE_TESTS)
    list(TRANSFORM A_TESTS REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/tests/${name}/\\1_test.cpp" OUTPUT_VARIABLE tests)
    set(binary ${name}_test)
    add_executable(${binary} ${tests})
    target_link_libraries(${binary} PRIVATE ${lib} ${A_TEST_LINK} GTest::gtest_main GTest::gmock)
    if(A_TORCH)
      target_link_libraries(${binary} PRIVATE col_torch)
      col_test_sources(${binary} torch)
      set_target_properties(${binary} PROPERTIES UNITY_BUILD ${COLONNADE_UNITY})
    else()
      col_test_sources(${binary} plain)
    endif()
    add_test(NAME ${name} COMMAND ${binary} --gtest_filter=-Gpu*:*/Gpu*)
    set_tests_properties(${name} PROPERTIES LABELS "${name};unit" TIMEOUT 1200 RUN_SERIAL ${A_ALONE})
    if(A_COST)
      set_tests_properties(${name} PROPERTIES COST ${A_COST})
    endif()
    if(COLONNADE_CUDA AND A_GPU)
      add_test(NAME ${name}_gpu COMMAND ${binary} --gtest_filter=${A_GPU})
      set_tests_properties(${name}_gpu PROPERTIES LABELS gpu TIMEOUT 300 ENVIRONMENT COLONNADE_TEST_DEVICE=cuda
        SKIP_REGULAR_EXPRESSION "Found no NVIDIA driver|No CUDA GPUs are available")
      set_property(GLOBAL APPEND PROPERTY COLONNADE_GPU_TESTS "src/colonnade/${name}/${binary} ${A_GPU}")
      set_property(GLOBAL APPEND PROPERTY COLONNADE_GPU_BINARIES ${binary})
    endif()
  endif()
endfunction()
