# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` lays down: library, headers, package files, manual.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ferry)

install(TARGETS ferry ferry_static EXPORT ferry-targets)
install(DIRECTORY include/ferry DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")
install(EXPORT ferry-targets NAMESPACE ferry:: DESTINATION ${package_dir})

configure_package_config_file(cmake/ferry-config.cmake.in ferry-config.cmake
  INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor release may change the API.
write_basic_package_version_file(ferry-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ferry-config.cmake
  ${PROJECT_BINARY_DIR}/ferry-config-version.cmake
  DESTINATION ${package_dir})

# Relative, so that the installed tree can move.
file(RELATIVE_PATH pc_prefix
  /x/${CMAKE_INSTALL_LIBDIR}/pkgconfig /x)
set(pc_private "-lm -pthread")
if(FERRY_HAVE_CUDA)
  string(APPEND pc_private
    " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt")
endif()
configure_file(cmake/ferry.pc.in ferry.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ferry.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(PROGRAMS scripts/trace-convert RENAME ferry-trace-convert
  DESTINATION ${CMAKE_INSTALL_BINDIR})

foreach(page IN LISTS man_pages man_aliases)
  cmake_path(GET page EXTENSION LAST_ONLY section)
  string(SUBSTRING ${section} 1 1 section)
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endforeach()
include(cmake/install_docs.cmake)

# What the examples of the manual read: 16 MB.
if(FERRY_MODEL AND FERRY_HAVE_PREFILL)
  install(DIRECTORY models DESTINATION ${CMAKE_INSTALL_DATADIR}/ferry
    COMPONENT model PATTERN train EXCLUDE)
endif()
