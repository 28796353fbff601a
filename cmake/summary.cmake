# SPDX-License-Identifier: Apache-2.0
# What this build has, and why not the rest.
function(ferry_summary name have why)
  if(have)
    message(STATUS "  ${name} on: ${why}")
  else()
    message(STATUS "  ${name} off: ${why}")
  endif()
endfunction()

message(STATUS "ferry ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}, "
  "${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}")
ferry_summary("cuda    " ${FERRY_HAVE_CUDA} "${FERRY_CUDA_WHY}")
ferry_summary("manual  " ${FERRY_HAVE_MAN} "${FERRY_MAN_WHY}")
ferry_summary("tool    " ${FERRY_TOOLS} "FERRY_TOOLS=${FERRY_TOOLS}")
if(FERRY_TOOLS AND DEFINED FERRY_HAVE_MPI)
  ferry_summary("mpi     " ${FERRY_HAVE_MPI} "${FERRY_MPI_WHY}")
endif()
ferry_summary("tests   " ${FERRY_TESTS} "FERRY_TESTS=${FERRY_TESTS}")
if(FERRY_SANITIZE)
  ferry_summary("sanitize" ON "${FERRY_SANITIZE}")
endif()
