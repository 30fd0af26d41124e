# Writes the files of hardware/ as one C++ source, colonnade::cost::hardware_files(), and installs them beside the
# program as examples for files of one's own.
include(GNUInstallDirs)
function(col_hardware_files target)
  file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/hardware/*.yaml")
  set(rows "")
  foreach(file ${files})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
    get_filename_component(name "${file}" NAME_WE)
    file(READ "${file}" text)
    string(APPEND rows "      {\"${name}\", R\"yaml(${text})yaml\"},\n")
  endforeach()
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/hardware_files.cpp" CONTENT
"// Made by cmake/Hardware.cmake from hardware/*.yaml.
#include \"colonnade/cost/hardware.h\"

namespace colonnade::cost {
std::vector<HardwareFile> hardware_files() {
  return {
@rows@  };
}
}  // namespace colonnade::cost
" @ONLY)
  target_sources(${target} PRIVATE "${PROJECT_BINARY_DIR}/hardware_files.cpp")
  install(FILES ${files} DESTINATION "${CMAKE_INSTALL_DATADIR}/colonnade/hardware")
endfunction()
