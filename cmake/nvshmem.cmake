# SPDX-License-Identifier: Apache-2.0
# Sets FERRY_HAVE_NVSHMEM and FERRY_NVSHMEM_WHY, and with NVSHMEM its folders.
# It is looked for in FERRY_NVSHMEM_ROOT, where scripts/setup-nvshmem puts it,
# in the system, and among the packages of python3.
set(FERRY_HAVE_NVSHMEM OFF)
if(FERRY_NVSHMEM STREQUAL "OFF")
  set(FERRY_NVSHMEM_WHY "FERRY_NVSHMEM=OFF")
  return()
endif()

function(ferry_nvshmem_missing why)
  set(FERRY_NVSHMEM_WHY "${why}" PARENT_SCOPE)
  if(FERRY_NVSHMEM STREQUAL "ON")
    message(FATAL_ERROR "FERRY_NVSHMEM=ON, but there is ${why}")
  endif()
endfunction()

if(NOT FERRY_HAVE_CUDA)
  ferry_nvshmem_missing("no CUDA")
  return()
endif()

# The package of PyPI: nvidia/nvshmem with include and lib.
find_package(Python3 COMPONENTS Interpreter QUIET)
set(pip_root)
if(Python3_FOUND AND NOT FERRY_NVSHMEM_ROOT)
  execute_process(COMMAND ${Python3_EXECUTABLE} -c
    "import importlib.util as u; s = u.find_spec('nvidia.nvshmem'); \
print(list(s.submodule_search_locations)[0] if s else '')"
    OUTPUT_VARIABLE pip_root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(roots ${FERRY_NVSHMEM_ROOT}
  ${PROJECT_SOURCE_DIR}/build/nvshmem/nvidia/nvshmem ${pip_root}
  /usr/local/nvshmem /usr/lib/x86_64-linux-gnu/nvshmem/13)
find_path(FERRY_NVSHMEM_INCLUDE nvshmem.h HINTS ${roots}
  PATH_SUFFIXES include nvshmem nvshmem_13)
find_library(FERRY_NVSHMEM_DEVICE nvshmem_device HINTS ${roots}
  PATH_SUFFIXES lib lib64)
# The packages have no link without a number.
find_library(FERRY_NVSHMEM_HOST NAMES libnvshmem_host.so.3
  libnvshmem_host.so HINTS ${roots} PATH_SUFFIXES lib lib64)
mark_as_advanced(FERRY_NVSHMEM_INCLUDE FERRY_NVSHMEM_DEVICE
  FERRY_NVSHMEM_HOST)
if(NOT FERRY_NVSHMEM_INCLUDE OR NOT FERRY_NVSHMEM_DEVICE OR
   NOT FERRY_NVSHMEM_HOST)
  ferry_nvshmem_missing("no NVSHMEM (scripts/setup-nvshmem)")
  return()
endif()

set(version_file ${FERRY_NVSHMEM_INCLUDE}/non_abi/nvshmem_version.h)
set(nvshmem_version)
if(EXISTS ${version_file})
  file(STRINGS ${version_file} lines
    REGEX "VENDOR_(MAJOR|MINOR|PATCH)_VERSION [0-9]+")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE ".* ([0-9]+)$" "\\1" number "${line}")
    list(APPEND nvshmem_version ${number})
  endforeach()
endif()
list(JOIN nvshmem_version "." nvshmem_version)
if(nvshmem_version VERSION_LESS 3.4)
  ferry_nvshmem_missing("NVSHMEM ${nvshmem_version}, before 3.4")
  return()
endif()
set(FERRY_HAVE_NVSHMEM ON)
set(FERRY_NVSHMEM_WHY "${nvshmem_version}, ${FERRY_NVSHMEM_INCLUDE}")
