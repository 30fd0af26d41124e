# `make install`: the program, recipes and their scripts, libcolonnade (one shared library of all areas), headers, and a
# package for find_package(Colonnade) or find_package(colonnade) in other projects. `cmake --install` omits the library if it
# was not built, as after `make demo`.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(areas GLOBAL PROPERTY COLONNADE_AREAS)
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/version.cpp" CONTENT
  "namespace colonnade { const char* version() { return \"@PROJECT_VERSION@\"; } }\n" @ONLY)
add_library(libcolonnade SHARED "${PROJECT_BINARY_DIR}/version.cpp")
# Build-folder files have their installed run path already: CMake would pad a longer one with empty entries, which stand
# for the current folder. col_torch adds LibTorch's folders.
set_target_properties(libcolonnade PROPERTIES
  OUTPUT_NAME colonnade VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
  BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "\$ORIGIN")
target_link_libraries(libcolonnade PRIVATE ${areas})
# Link all objects of every area, referenced or not.
foreach(area ${areas})
  set_property(TARGET libcolonnade PROPERTY LINK_LIBRARY_OVERRIDE_${area} WHOLE_ARCHIVE)
endforeach()

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/colonnade")
install(TARGETS libcolonnade LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" OPTIONAL)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/recipes" DESTINATION "${CMAKE_INSTALL_DATADIR}/colonnade"
  FILES_MATCHING PATTERN "*.yaml" PATTERN test EXCLUDE)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/examples/scripts" DESTINATION "${CMAKE_INSTALL_DATADIR}/colonnade/examples"
  USE_SOURCE_PERMISSIONS)
# Exclude headers that include Arrow, which users of the library need not have.
install(DIRECTORY "${PROJECT_SOURCE_DIR}/src/colonnade" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.h"
  PATTERN parquet/columns.h EXCLUDE)
# The lower-case name serves both spellings of find_package.
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/colonnade-config.cmake.in"
  "${PROJECT_BINARY_DIR}/colonnade-config.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/colonnade-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/colonnade-config.cmake" "${PROJECT_BINARY_DIR}/colonnade-config-version.cmake"
  DESTINATION "${package_dir}")

if(COLONNADE_TESTS)
  add_test(NAME install COMMAND ${CMAKE_COMMAND} -DBUILD=${PROJECT_BINARY_DIR} -DSOURCE=${PROJECT_SOURCE_DIR}/tests/consumer
    -DLIBRARY=$<TARGET_FILE_NAME:libcolonnade>
    -P "${PROJECT_SOURCE_DIR}/tests/consumer/run.cmake")
  set_tests_properties(install PROPERTIES LABELS "install;e2e" TIMEOUT 300)
endif()
