# Installs the build folder BUILD, moves what was installed, and uses it: the program, and the library LIBRARY by the project
# in SOURCE, which docs/guide/library.md shows.
set(scratch "${BUILD}/install_test")
set(prefix "${scratch}/a prefix")
file(REMOVE_RECURSE "${scratch}")

# run(WORDS...) must end with 0. The output is left in `text`.
function(run)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY "${scratch}" RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "install: each step must end with 0; got ${code} from ${ARGN}\n${text}")
  endif()
  set(text "${text}" PARENT_SCOPE)
endfunction()

file(MAKE_DIRECTORY "${scratch}")
run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${scratch}/first")
file(RENAME "${scratch}/first" "${prefix}")

# The library.
run("${CMAKE_COMMAND}" -G Ninja -S "${SOURCE}" -B "${scratch}/build" "-DCMAKE_PREFIX_PATH=${prefix}")
run("${CMAKE_COMMAND}" --build "${scratch}/build")
run("${scratch}/build/consumer")
# A place that cannot be: the program must say so and end with 2, as `colonnade` does.
execute_process(COMMAND "${CMAKE_COMMAND}" -E env RANK=1 WORLD_SIZE=1 "${scratch}/build/consumer"
  RESULT_VARIABLE code ERROR_VARIABLE text)
if(NOT code EQUAL 2 OR NOT text MATCHES "^error: ")
  message(FATAL_ERROR "installed library: wrong settings must end with 2 and an error line; got ${code} and\n${text}")
endif()
# Headers ask for nothing that a user of the library need not have.
file(GLOB_RECURSE headers "${prefix}/include/*.h")
foreach(header ${headers})
  file(STRINGS "${header}" includes REGEX "^#include <(arrow|parquet)/")
  if(includes)
    message(FATAL_ERROR "installed headers: none must need Arrow; got ${includes} in ${header}")
  endif()
endforeach()
# The guide shows this very project.
file(READ "${SOURCE}/../../docs/guide/library.md" page)
foreach(name CMakeLists.txt main.cpp)
  file(READ "${SOURCE}/${name}" file)
  string(FIND "${page}" "${file}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "docs/guide/library.md: it must show tests/consumer/${name} to the letter; got another text")
  endif()
endforeach()

# The program, with its recipes and hardware files, its ranks, and the module that reads Parquet.
set(colonnade "${prefix}/bin/colonnade")
run("${colonnade}" --version)
run("${colonnade}" plan --config "${prefix}/share/colonnade/recipes/llama3-8b.yaml" --world-size 8
  --hardware "${prefix}/share/colonnade/hardware/h100.yaml")
run("${CMAKE_COMMAND}" -E env "PATH=${prefix}/bin:$ENV{PATH}" PLAN=1 "${prefix}/share/colonnade/examples/scripts/llama3-8b.sh")
run("${CMAKE_COMMAND}" -E env OMP_NUM_THREADS=1 "${colonnade}" launch --nproc-per-node 2 -- pretrain gpt --num-layers 2
  --hidden-size 32 --num-attention-heads 4 --seq-length 16 --max-position-embeddings 16 --micro-batch-size 1 --train-iters 1
  --lr 1e-3 --mock-data --tokenizer-type NullTokenizer --vocab-size 128)
if(EXISTS "${BUILD}/libcolonnade_parquet.so")
  run("${colonnade}" preprocess --input "${SOURCE}/../vectors/parquet/snappy.parquet" --json-keys numbers
    --output-prefix "${scratch}/rows" --tokenizer-type NullTokenizer --vocab-size 256)
  if(NOT text MATCHES "done: 200 documents")
    message(FATAL_ERROR "installed program: it must read Parquet; got\n${text}")
  endif()
endif()

# A build folder without the library, as after `make demo`: the program is installed, the package says what is missing.
file(READ "${BUILD}/cmake_install.cmake" script)
string(REPLACE "${BUILD}/${LIBRARY}" "${BUILD}/absent.so" script "${script}")
file(WRITE "${scratch}/install.cmake" "${script}")
run("${CMAKE_COMMAND}" "-DCMAKE_INSTALL_PREFIX=${scratch}/program" -P "${scratch}/install.cmake")
run("${scratch}/program/bin/colonnade" --version)
execute_process(COMMAND "${CMAKE_COMMAND}" -G Ninja -S "${SOURCE}" -B "${scratch}/build_2"
  "-DCMAKE_PREFIX_PATH=${scratch}/program" RESULT_VARIABLE code OUTPUT_QUIET ERROR_VARIABLE text)
if(code EQUAL 0 OR NOT text MATCHES "libcolonnade must be installed")
  message(FATAL_ERROR "package without the library: it must name what is missing; got ${code} and\n${text}")
endif()

# The verb of the Makefile installs where it is told.
run(make -n -C "${SOURCE}/../.." install PREFIX=~/x)
if(NOT text MATCHES "--target colonnade libcolonnade" OR NOT text MATCHES "--prefix \"$ENV{HOME}/x\"")
  message(FATAL_ERROR "make install: it must build what it installs; got\n${text}")
endif()
