# SPDX-License-Identifier: Apache-2.0
# cmake -DFROM="kernel.cu" -DTO=kernel.cpp -P fibre_source.cmake: a kernel's
# files for fibres, whose blocks have their shared memory from the scheduler. Its
# declarations are all that changes; one of another form is an error.
set(text)
foreach(file IN LISTS FROM)
  file(READ ${file} part)
  string(APPEND text "#line 1 \"${file}\"\n${part}")
endforeach()
foreach(change
    "extern __shared__ (__align__\\(128\\) )?([a-z0-9 ]+) ([a-z_]+)\\[\\]@\\2 *\\3 = (\\2 *)fibre_dynamic()"
    "__shared__ (struct [a-z_]+) ([a-z]+)\\[([A-Z_]+)\\]@\\1 (\\&\\2)[\\3] = *(\\1 (*)[\\3])fibre_shared(__LINE__, sizeof(\\1[\\3]))"
    "__shared__ (struct [a-z_]+) ([a-z]+)@\\1 \\&\\2 = *(\\1 *)fibre_shared(__LINE__, sizeof(\\1))")
  string(REGEX MATCH "^(.*)@(.*)$" _ "${change}")
  set(was "${CMAKE_MATCH_1}")
  set(becomes "${CMAKE_MATCH_2}")
  string(REPLACE "\\&" "&" becomes "${becomes}")
  string(REGEX REPLACE "${was}" "${becomes}" text "${text}")
endforeach()
if(text MATCHES "__shared__")
  message(FATAL_ERROR "${FROM}: shared memory declared in another way")
endif()
if(NOT text MATCHES "fibre_dynamic")
  message(FATAL_ERROR "${FROM}: no shared memory of the launch")
endif()
file(WRITE ${TO} "${text}")
