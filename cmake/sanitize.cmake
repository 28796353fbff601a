# SPDX-License-Identifier: Apache-2.0
if(FERRY_SANITIZE STREQUAL "address")
  set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
elseif(FERRY_SANITIZE STREQUAL "thread")
  set(sanitize -fsanitize=thread -fno-omit-frame-pointer)
elseif(FERRY_SANITIZE)
  message(FATAL_ERROR "FERRY_SANITIZE is ${FERRY_SANITIZE}: address, thread or empty")
endif()
add_compile_options(${sanitize})
add_link_options(${sanitize})
