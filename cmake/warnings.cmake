# SPDX-License-Identifier: Apache-2.0
# Flags of everything that is ours: warnings, and the same bits everywhere.
add_library(ferry_flags INTERFACE)
target_compile_definitions(ferry_flags INTERFACE _GNU_SOURCE)
target_compile_options(ferry_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:C>:\
-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wstrict-prototypes;\
-Wmissing-prototypes;-Wundef;-Wvla;-Wcast-qual;-Wformat=2;-Wwrite-strings;\
-ffp-contract=off;-fvisibility=hidden>"
  # The launch stubs of nvcc are C++: without these three the library would
  # need libstdc++ for nothing.
  "$<$<COMPILE_LANGUAGE:CUDA>:\
-Xcompiler=-fno-exceptions,-fno-rtti,-fno-threadsafe-statics;\
-Xcompiler=-fvisibility=hidden,-Wall,-Wextra,-ffp-contract=off;\
--fmad=false>")
if(FERRY_WERROR)
  target_compile_options(ferry_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C>:-Werror>
    $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>)
endif()
