# SPDX-License-Identifier: Apache-2.0
# ferry_run(NAME PROGRAM ARGS... [LABELS l...] [TIMEOUT s]): a run of a program
# as a test. Sanitizers have three times as long.
function(ferry_run name program)
  cmake_parse_arguments(arg "" "TIMEOUT" "LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS cpu)
  endif()
  if(FERRY_SANITIZE)
    math(EXPR arg_TIMEOUT "3 * ${arg_TIMEOUT}")
  endif()
  add_test(NAME ${name} COMMAND ${program} ${arg_UNPARSED_ARGUMENTS})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT}
    SKIP_RETURN_CODE 77 LABELS "${arg_LABELS}")
endfunction()

# ferry_test(NAME SOURCES... [LABELS l...] [TIMEOUT s] [ARGS a...]): one test
# program. One that .ci/run leaves out under a sanitizer is not built there
# with all.
function(ferry_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "LABELS;ARGS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS cpu)
  endif()
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src
    ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ferry_flags ferry_static
    ferry_test_support PkgConfig::CMOCKA Threads::Threads m)
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE C)
  if((FERRY_SANITIZE AND slow IN_LIST arg_LABELS) OR
      (FERRY_SANITIZE STREQUAL "thread" AND notsan IN_LIST arg_LABELS))
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
  if(gpu IN_LIST arg_LABELS)
    ferry_gpu_test(${name} ${name})
    return()
  endif()
  ferry_run(${name} ${name} ${arg_ARGS} LABELS ${arg_LABELS}
    TIMEOUT ${arg_TIMEOUT})
endfunction()

# On GPUs, by the path of rows; split calls on two streams in turn, or fused
# ones. Ranks are threads, or processes, which take turns on a GPU and need a
# second each to begin: those runs are few and short.
set(args_gpu_lines --fabric p2p --path lines --streams 2)
set(args_gpu_chunks --fabric p2p --path chunks --streams 2)
set(args_gpu_lines_fused --fabric p2p --path lines --fused)
set(args_gpu_chunks_fused --fabric p2p --path chunks --fused)
set(args_gpu_lines_processes --fabric p2p --path lines --processes)
set(args_gpu_chunks_processes --fabric p2p --path chunks --processes)
set(args_nvshmem_lines --fabric nvshmem --path lines --processes)
set(args_nvshmem_chunks --fabric nvshmem --path chunks --processes)
set(args_nvshmem_puts --fabric nvshmem --path chunks --processes
  --options NVSHMEM_DIRECT=off)
set(nvshmem_all nvshmem_lines nvshmem_chunks nvshmem_puts)
# Ranks that pretend to be on hosts of their own, or two by two.
set(args_gpu_hosts --fabric p2p+wire --path chunks
  --options RANKS_PER_HOST=1)
set(args_gpu_hosts_pairs --fabric p2p+wire --path chunks --streams 2
  --options RANKS_PER_HOST=2)
set(args_gpu_hosts_fused --fabric p2p+wire --path chunks --fused
  --options RANKS_PER_HOST=1)
set(args_gpu_hosts_processes --fabric p2p+wire --path chunks --processes
  --options RANKS_PER_HOST=1)
set(args_gpu_hosts_ofi --fabric p2p+ofi --path chunks
  --options RANKS_PER_HOST=1)
set(gpu_split gpu_lines gpu_chunks)
set(gpu_hosts gpu_hosts gpu_hosts_pairs)
set(gpu_all gpu_lines gpu_chunks gpu_lines_fused gpu_chunks_fused)
set(gpu_processes gpu_lines_processes gpu_chunks_processes)

# ferry_gpu_test(NAME PROGRAM ARGS...): a run of a program that needs a GPU, and
# a line of build/gpu_tests.txt, from which scripts/gpu-test runs it where there
# is one and no cmake.
function(ferry_gpu_test name program)
  add_test(NAME ${name} COMMAND ${program} ${ARGN})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77
    LABELS gpu RESOURCE_LOCK gpu)
  list(JOIN ARGN " " args)
  set_property(GLOBAL APPEND_STRING PROPERTY ferry_gpu_tests
    "${name} $<PATH:RELATIVE_PATH,$<TARGET_FILE:${program}>,${PROJECT_BINARY_DIR}> ${args}\n")
endfunction()
