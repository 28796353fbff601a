# SPDX-License-Identifier: Apache-2.0
# Sets FERRY_HAVE_CUDA and FERRY_CUDA_WHY. Before any add_library, or CMake
# finds no architectures for it.
set(FERRY_HAVE_CUDA OFF)
if(FERRY_CUDA STREQUAL "OFF")
  set(FERRY_CUDA_WHY "FERRY_CUDA=OFF")
  return()
endif()

include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  set(FERRY_CUDA_WHY "no working nvcc")
  if(FERRY_CUDA STREQUAL "ON")
    message(FATAL_ERROR "FERRY_CUDA=ON, but there is no working nvcc")
  endif()
  return()
endif()

# The environment's CUDAARCHS is read by enable_language.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
  set(CMAKE_CUDA_ARCHITECTURES 90 100)
endif()
enable_language(CUDA)
# Where 3.25 is asked for, CMake 3.25 wants a library that CUDA 13 has no more.
set(minimum ${CMAKE_MINIMUM_REQUIRED_VERSION})
set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
find_package(CUDAToolkit REQUIRED)
set(CMAKE_MINIMUM_REQUIRED_VERSION ${minimum})
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(FERRY_HAVE_CUDA ON)
set(FERRY_CUDA_WHY
  "nvcc ${CMAKE_CUDA_COMPILER_VERSION}, sm ${CMAKE_CUDA_ARCHITECTURES}")
