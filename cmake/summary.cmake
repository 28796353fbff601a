# SPDX-License-Identifier: Apache-2.0
message(STATUS "ferry ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}")
