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
if(EXISTS "${BUILD}/colonnade")
  execute_process(COMMAND "${scratch}/prefix/bin/colonnade" --version RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "installed program: --version must end with 0; got ${code}")
  endif()
endif()
