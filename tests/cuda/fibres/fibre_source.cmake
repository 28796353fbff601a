# SPDX-License-Identifier: Apache-2.0
# cmake -DFROM=kernel.cu -DTO=kernel.cpp -P fibre_source.cmake: a kernel's file
# for fibres, whose blocks have their shared memory from the scheduler. Two
# declarations are all that changes; what has neither is an error.
file(READ ${FROM} text)
foreach(change
    "extern __shared__ __align__\\(128\\) unsigned char ([a-z]+)\\[\\]@unsigned char *\\1 = (unsigned char *)fibre_dynamic()"
    "__shared__ (struct [a-z_]+) ([a-z]+)@\\1 \\&\\2 = *(\\1 *)fibre_shared(sizeof(\\1))")
  string(REGEX MATCH "^(.*)@(.*)$" _ "${change}")
  set(was "${CMAKE_MATCH_1}")
  set(becomes "${CMAKE_MATCH_2}")
  string(REPLACE "\\&" "&" becomes "${becomes}")
  if(NOT text MATCHES "${was}")
    message(FATAL_ERROR "${FROM}: nothing matches ${was}")
  endif()
  string(REGEX REPLACE "${was}" "${becomes}" text "${text}")
endforeach()
if(text MATCHES "__shared__")
  message(FATAL_ERROR "${FROM}: shared memory declared in another way")
endif()
file(WRITE ${TO} "#line 1 \"${FROM}\"\n${text}")
