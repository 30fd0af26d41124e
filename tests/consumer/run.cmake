# Installs the build folder BUILD under a fresh prefix, builds the project in SOURCE against it, and runs it.
set(scratch "${BUILD}/install_test")
file(REMOVE_RECURSE "${scratch}")
foreach(command
    "${CMAKE_COMMAND};--install;${BUILD};--prefix;${scratch}/prefix"
    "${CMAKE_COMMAND};-G;Ninja;-S;${SOURCE};-B;${scratch}/build;-DCMAKE_PREFIX_PATH=${scratch}/prefix"
    "${CMAKE_COMMAND};--build;${scratch}/build"
    "${scratch}/build/consumer")
  execute_process(COMMAND ${command} RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "installed library: each step must end with 0; got ${code} from ${command}\n${text}")
  endif()
endforeach()
# Headers ask for nothing that a user of the library need not have.
file(GLOB_RECURSE headers "${scratch}/prefix/include/*.h")
foreach(header ${headers})
  file(STRINGS "${header}" includes REGEX "^#include <(arrow|parquet)/")
  if(includes)
    message(FATAL_ERROR "installed headers: none must need Arrow; got ${includes} in ${header}")
  endif()
endforeach()
# A place that cannot be: the program must say so and end with 2, as `colonnade` does.
execute_process(COMMAND "${CMAKE_COMMAND}" -E env RANK=1 WORLD_SIZE=1 "${scratch}/build/consumer"
  RESULT_VARIABLE code ERROR_VARIABLE text)
if(NOT code EQUAL 2 OR NOT text MATCHES "^error: ")
  message(FATAL_ERROR "installed library: wrong settings must end with 2 and an error line; got ${code} and\n${text}")
endif()
if(EXISTS "${BUILD}/colonnade")
  execute_process(COMMAND "${scratch}/prefix/bin/colonnade" --version RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "installed program: --version must end with 0; got ${code}")
  endif()
  # The module that reads Parquet is found where it was installed.
  if(EXISTS "${BUILD}/libcolonnade_parquet.so")
    execute_process(COMMAND "${scratch}/prefix/bin/colonnade" preprocess --input "${SOURCE}/../vectors/parquet/snappy.parquet"
      --json-keys numbers --output-prefix "${scratch}/rows" --tokenizer-type NullTokenizer --vocab-size 256
      RESULT_VARIABLE code ERROR_VARIABLE text)
    if(NOT code EQUAL 0 OR NOT text MATCHES "done: 200 documents")
      message(FATAL_ERROR "installed program: it must read Parquet; got ${code} and\n${text}")
    endif()
  endif()
endif()
