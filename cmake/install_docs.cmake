# SPDX-License-Identifier: Apache-2.0
# The documents, laid down as they lie here, and whatever they have links to,
# so that no link leads nowhere.
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR}
  FILES_MATCHING PATTERN "[0-9]*.c" PATTERN "example.h")

# Appends to the list OUT the files that a document of this tree has links to.
function(ferry_links document out)
  file(READ ${PROJECT_SOURCE_DIR}/${document} text)
  # Brackets and semicolons would tie elements of a list together.
  string(REPLACE "](" "\n@" text "${text}")
  string(REGEX REPLACE "[][;]" " " text "${text}")
  string(REGEX MATCHALL "\n@[^)# \n]+" links "${text}")
  cmake_path(GET document PARENT_PATH folder)
  foreach(link IN LISTS links)
    string(SUBSTRING ${link} 2 -1 link)
    cmake_path(APPEND folder ${link} OUTPUT_VARIABLE target)
    cmake_path(NORMAL_PATH target)
    if(NOT link MATCHES ":" AND EXISTS ${PROJECT_SOURCE_DIR}/${target}
       AND NOT IS_DIRECTORY ${PROJECT_SOURCE_DIR}/${target})
      list(APPEND ${out} ${target})
    endif()
  endforeach()
  set(${out} ${${out}} PARENT_SCOPE)
endfunction()

file(GLOB documents CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
  *.md docs/*.md)
set(documents_done)
while(documents)
  list(POP_FRONT documents document)
  if(document IN_LIST documents_done)
    continue()
  endif()
  list(APPEND documents_done ${document})
  cmake_path(GET document PARENT_PATH folder)
  install(FILES ${document} DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder})
  if(document MATCHES "\\.md$")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
      ${document})
    ferry_links(${document} documents)
  endif()
endwhile()
