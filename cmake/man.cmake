# SPDX-License-Identifier: Apache-2.0
# docs/man/NAME.SECTION.md becomes man/NAME.SECTION. Lines @env@ and @status@
# stand for tables that man_tables makes from the library's own lists.
file(GLOB man_sources CONFIGURE_DEPENDS docs/man/*.md)
find_program(LOWDOWN lowdown)
mark_as_advanced(LOWDOWN)

set(FERRY_HAVE_MAN OFF)
if(FERRY_MAN STREQUAL "OFF")
  set(FERRY_MAN_WHY "FERRY_MAN=OFF")
elseif(NOT LOWDOWN)
  set(FERRY_MAN_WHY "no lowdown")
  if(FERRY_MAN STREQUAL "ON")
    message(FATAL_ERROR "FERRY_MAN=ON, but there is no lowdown")
  endif()
else()
  set(FERRY_HAVE_MAN ON)
  set(FERRY_MAN_WHY "${LOWDOWN}")
endif()
if(NOT FERRY_HAVE_MAN)
  return()
endif()

add_executable(man_tables docs/man/man_tables.c)
target_link_libraries(man_tables PRIVATE ferry_flags)
target_include_directories(man_tables PRIVATE include src)

set(man_pages)
set(man_aliases)
foreach(source IN LISTS man_sources)
  cmake_path(GET source STEM LAST_ONLY name)
  set(page ${PROJECT_BINARY_DIR}/man/${name})
  add_custom_command(OUTPUT ${page}
    COMMAND man_tables ${source} ${page}.md
    COMMAND ${LOWDOWN} -s -tman --parse-no-intraemph -o ${page} ${page}.md
    DEPENDS man_tables ${source} VERBATIM)
  list(APPEND man_pages ${page})
  # man ferry_dispatch_send shows the page that has it in its synopsis.
  if(name MATCHES "\\.3$")
    file(READ ${source} text)
    string(REGEX REPLACE "# DESCRIPTION.*" "" text "${text}")
    string(REGEX MATCHALL "ferry_[a-z_]+\\(" functions "${text}")
    foreach(function IN LISTS functions)
      string(REPLACE "(" ".3" alias ${function})
      file(WRITE ${PROJECT_BINARY_DIR}/man/${alias} ".so man3/${name}\n")
      list(APPEND man_aliases ${PROJECT_BINARY_DIR}/man/${alias})
    endforeach()
  endif()
endforeach()

add_custom_target(man ALL DEPENDS ${man_pages})
