# SPDX-License-Identifier: Apache-2.0
# What can be chosen, and the settings that hold for every target.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

option(FERRY_TOOLS "Build the command line tool" ON)
option(FERRY_TESTS "Build tests and examples" ON)
option(FERRY_DEV "Build the measurements in dev/" OFF)
option(FERRY_MODEL "Install the model and texts of models/: 16 MB" ON)
option(FERRY_WERROR "Warnings are errors" OFF)
option(FERRY_FUZZ "Build the fuzzers for libFuzzer, too; needs clang" OFF)
set(FERRY_SANITIZE "" CACHE STRING "address, thread or empty")
set(FERRY_MPI AUTO CACHE STRING "MPI baseline of ferry bench: AUTO, ON, OFF")
set(FERRY_CUDA AUTO CACHE STRING "CUDA parts: AUTO, ON, OFF")
set(FERRY_OFI AUTO CACHE STRING "Fabric ofi, over libfabric: AUTO, ON, OFF")
set(FERRY_NVSHMEM AUTO CACHE STRING
  "Module for NVSHMEM: AUTO, ON, OFF; its place is FERRY_NVSHMEM_ROOT")
set(FERRY_NVSHMEM_ROOT "" CACHE PATH "Folder with NVSHMEM's include and lib")
set(FERRY_PREFILL AUTO CACHE STRING
  "ferry prefill, by OpenBLAS, utf8proc, PCRE2: AUTO, ON, OFF")
set(FERRY_MAN AUTO CACHE STRING "Manual pages, by lowdown: AUTO, ON, OFF")
foreach(choice FERRY_MPI FERRY_CUDA FERRY_OFI FERRY_NVSHMEM FERRY_MAN
        FERRY_PREFILL)
  set_property(CACHE ${choice} PROPERTY STRINGS AUTO ON OFF)
  if(NOT ${choice} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "${choice} is ${${choice}}: AUTO, ON or OFF")
  endif()
endforeach()
