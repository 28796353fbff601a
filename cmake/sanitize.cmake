# SPDX-License-Identifier: Apache-2.0
if(FERRY_SANITIZE STREQUAL "address")
  set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(FERRY_SANITIZE STREQUAL "thread")
  set(sanitize -fsanitize=thread)
elseif(FERRY_SANITIZE)
  message(FATAL_ERROR
    "FERRY_SANITIZE is ${FERRY_SANITIZE}: address, thread or empty")
else()
  return()
endif()
add_compile_options(${sanitize} -fno-omit-frame-pointer)
add_link_options(${sanitize})
