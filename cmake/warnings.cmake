# SPDX-License-Identifier: Apache-2.0
add_library(ferry_flags INTERFACE)
target_compile_definitions(ferry_flags INTERFACE _GNU_SOURCE)
target_compile_options(ferry_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes
  -Wmissing-prototypes -Wundef -Wvla -Wcast-qual -Wformat=2 -Wwrite-strings
  # The same bits everywhere: no contraction, no fast-math.
  -ffp-contract=off -fvisibility=hidden)
if(FERRY_WERROR)
  target_compile_options(ferry_flags INTERFACE -Werror)
endif()
