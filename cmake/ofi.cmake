# SPDX-License-Identifier: Apache-2.0
# Sets FERRY_HAVE_OFI, FERRY_OFI_WHY and FERRY_OFI_INCLUDE_DIR. Only headers:
# the library is opened at run time.
set(FERRY_HAVE_OFI OFF)
if(FERRY_OFI STREQUAL "OFF")
  set(FERRY_OFI_WHY "FERRY_OFI=OFF")
  return()
endif()

find_path(FERRY_OFI_INCLUDE_DIR rdma/fi_rma.h
  HINTS ENV LIBFABRIC_ROOT PATHS /opt/amazon/efa PATH_SUFFIXES include)
mark_as_advanced(FERRY_OFI_INCLUDE_DIR)
if(FERRY_OFI_INCLUDE_DIR)
  set(FERRY_HAVE_OFI ON)
  set(FERRY_OFI_WHY "${FERRY_OFI_INCLUDE_DIR}/rdma/fabric.h")
elseif(FERRY_OFI STREQUAL "ON")
  message(FATAL_ERROR "FERRY_OFI=ON, but there is no rdma/fabric.h")
else()
  set(FERRY_OFI_WHY "no rdma/fabric.h")
endif()
