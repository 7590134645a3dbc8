# Entries of ctest for suites of postern_tests.

# custom_vjp_test.cc: CustomVjp
function(suite_of name result)
  set(suite)  # functions see the caller's variables
  string(REGEX REPLACE "_test$" "" name ${name})
  string(REPLACE "_" ";" words ${name})
  foreach(word ${words})
    string(REGEX MATCH "^(.)(.*)$" word ${word})
    string(TOUPPER ${CMAKE_MATCH_1} first)
    string(APPEND suite ${first}${CMAKE_MATCH_2})
  endforeach()
  set(${result} ${suite} PARENT_SCOPE)
endfunction()

# The suites of these files.
function(suites_of result)
  set(suites)
  foreach(source ${ARGN})
    get_filename_component(name ${source} NAME_WE)
    suite_of(${name} suite)
    list(APPEND suites ${suite})
  endforeach()
  set(${result} ${suites} PARENT_SCOPE)
endfunction()

# The filter of a suite without others that begin with its name: Check* would be Checkpoint* too,
# which has an entry.
function(without_others result suite)
  set(others ${ARGN})
  list(FILTER others INCLUDE REGEX "^${suite}.")
  list(TRANSFORM others REPLACE "(.+)" "\\1*:*/\\1*")
  list(JOIN others ":" others)
  set(filter "${suite}*:*/${suite}*")
  if(others)
    string(APPEND filter "-${others}")
  endif()
  set(${result} ${filter} PARENT_SCOPE)
endfunction()

# What a stand-in for CUDA shows nothing of: it calls no function, starts programs without one, or
# is about how programs are cut for CPUs.
string(CONCAT without_stand_in "Checkpoint.Killed*:DevicesBatches.*:DevicesCollectives.*:"
                               "Devices.ArraysComeBack*:Devices.CutPrograms*:Devices.EveryDType*:"
                               "Devices.TwoBits*:DevicesLong.*:DevicesShardMap.Collectives:"
                               "DevicesShardMap.Values*")

# What only `./test --all` repeats with it: large types and derivatives, which show nothing of how a
# call comes to the host. As they always run, without a stand-in, they imply it.
set(long_type_test "Type.MoreThanTwoToThe31Bytes:Type.MoreAxesThan*:Type.Sizes*")
set(long_while_test "WhileTapes.OptionsChange*")

# The second platform of platforms_test is a copy of the plug-in. In further entries the one or the
# other cannot call back, it is the same file, or a newer build where scripts/bootstrap brought it.
set(test_libraries ${PROJECT_BINARY_DIR}/tests/libraries)
set(copied_plugin ${test_libraries}/copied_cpu_plugin.so)
function(two_platforms result lists)
  set(${result} POSTERN_CPU_DEVICES=2 POSTERN_PLATFORM=${lists} PARENT_SCOPE)
endfunction()
function(add_other_platforms source filter)
  set(lists no_ffi cpu,newer=${test_libraries}/no_ffi.so)
  list(APPEND lists first_no_ffi cpu=${test_libraries}/no_ffi.so,newer=${copied_plugin})
  list(APPEND lists same cpu,newer=${POSTERN_DEPS}/lib/xla_cpu_pjrt.so)
  foreach(build 0.106 0.115)
    if(EXISTS ${POSTERN_DEPS}/xla/${build}/plugin.so)
      list(APPEND lists ${build} cpu,newer=${POSTERN_DEPS}/xla/${build}/plugin.so)
    endif()
  endforeach()
  while(lists)
    list(POP_FRONT lists name platforms)
    two_platforms(environment ${platforms})
    add_suites(${source} ${name}. "${filter}" ${environment})
    get_filename_component(file ${source} NAME_WE)
    set_property(TEST ${name}.${file} APPEND PROPERTY LABELS no_stages)
  endwhile()
endfunction()

set(no_tests "PASSED  . 0 tests")
set(limit 900)
if(POSTERN_SANITIZE)
  set(limit 3600)
endif()
# The programs and libraries that a room's files start and load.
function(programs_of result)
  set(programs)
  set(texts)
  foreach(file ${ARGN})
    file(READ ${file} text)
    string(APPEND texts "${text}")
  endforeach()
  get_property(targets TARGET postern_test_programs PROPERTY MANUALLY_ADDED_DEPENDENCIES)
  foreach(target ${targets})
    string(REGEX REPLACE "^program_" "\"" name ${target})
    string(REGEX REPLACE "^library_.*" "POSTERN_TEST_LIBRARIES" name ${name})
    string(FIND "${texts}" "${name}" at)
    if(NOT at EQUAL -1)
      list(APPEND programs ${target})
    endif()
  endforeach()
  set(${result} ${programs} PARENT_SCOPE)
endfunction()

# An entry for the suites of `source` that `filter` names; what follows is its environment. The
# program is that of all rooms, or the room's own for `./test NAME`.
function(add_suites source prefix filter)
  get_filename_component(room ${source} DIRECTORY)
  get_filename_component(name ${source} NAME_WE)
  string(REGEX REPLACE "_test$" "" stem ${name})
  set(name ${prefix}${name})
  add_test(NAME ${name}
           COMMAND sh -c "exec \"$0\${POSTERN_TEST_ROOM:+_${room}}\" \"$@\""
                   $<TARGET_FILE:postern_tests> --gtest_brief=1 --gtest_filter=${filter})
  set(labels ${room} ${stem})
  list(REMOVE_DUPLICATES labels)
  set_tests_properties(${name} PROPERTIES TIMEOUT ${limit} FAIL_REGULAR_EXPRESSION "${no_tests}"
                                          LABELS "${labels}"
                                          ENVIRONMENT "${test_environment};${ARGN}")
  if(NOT stem STREQUAL room)
    subject(${stem} subject_${room})
  endif()
endfunction()

# What a file's suites have in their environment beside what all have.
function(environment_of name result)
  set(environment)
  if(name MATCHES "^(linalg|sweep|transform|commute|custom|vmap|autodiff)_test$"
     OR name MATCHES "^(block|foreign|devices)_test$")
    list(APPEND environment ${test_quickly})
  endif()
  if(name MATCHES "^devices")
    list(APPEND environment POSTERN_CPU_DEVICES=8)
  elseif(name MATCHES "^gpu")
    list(APPEND environment POSTERN_PLATFORM=cuda)
  elseif(name MATCHES "^platforms")
    two_platforms(environment cpu,newer=${copied_plugin})
  endif()
  # Values, on one thread: every fourth test will do.
  if(POSTERN_SANITIZE MATCHES "thread"
     AND name MATCHES "^(ops_|linalg|sweep|transform|commute|custom)")
    list(APPEND environment GTEST_TOTAL_SHARDS=4 GTEST_SHARD_INDEX=0)
  endif()
  set(${result} ${environment} PARENT_SCOPE)
endfunction()

# When an entry comes, for those that take longest come first, so that no core is idle in the end;
# and of one for a GPU when it was skipped.
function(set_turn name)
  if(name MATCHES "^random_programs")  # compiles for ten minutes of a core
    set_tests_properties(${name} PROPERTIES COST 300 TIMEOUT 1800)
  elseif(name MATCHES "^(devices|transform|commute|checkpoint|foreign|threads|linalg|sweep)_test$")
    set_tests_properties(${name} PROPERTIES COST 100)
  endif()
  if(name MATCHES "^(devices|guest|pjrt_test|platforms)")  # `./test --staged` says why
    set_property(TEST ${name} APPEND PROPERTY LABELS no_stages)
  endif()
  if(name MATCHES "^gpu")
    set_tests_properties(${name} PROPERTIES FAIL_REGULAR_EXPRESSION "FAILED" SKIP_REGULAR_EXPRESSION
                                                                             "no GPU: ")
  endif()
endfunction()

# Of some files once more with a plug-in whose programs call no functions, so that they run in
# stages, as `./test --staged` runs all. For what has a plug-in of its own that says nothing.
set(staged_files "^(c_bindings|c_start|hook|order|own_functions|thread_end)_test$")
function(add_suites_in_stages source filter)
  get_filename_component(name ${source} NAME_WE)
  if(name MATCHES "${staged_files}")
    add_suites(${source} staged. "${filter}" ${ARGN} POSTERN_PLUGIN=${test_libraries}/no_ffi.so)
    set_property(TEST staged.${name} APPEND PROPERTY LABELS no_xla)
  endif()
endfunction()

# Of some files once more as on a GPU, with a stand-in for CUDA.
function(add_suites_with_stand_in source filter)
  get_filename_component(name ${source} NAME_WE)
  if(name MATCHES "^(call|guest|overlap|tap|hook|print|control|while|order)_test$"
     OR name MATCHES "^(check|devices|vmap|time|type|platforms)_test$")
    set(without "-${without_stand_in}:${long_${name}}")
    set(more ${test_quickly})
  elseif(name MATCHES "^long_programs")
    set(filter "LongPrograms.AreCut*")
    set(without)
    set(more)
  else()
    return()
  endif()
  add_suites(${source} cuda. "${filter}${without}" ${ARGN} ${more} POSTERN_TEST_STAND_IN=1)
  set_tests_properties(cuda.${name} PROPERTIES COST 50)
  set_property(TEST cuda.${name} APPEND PROPERTY LABELS stand_in no_stages)
  if(long_${name})
    add_suites(${source} cuda.long. "${long_${name}}" ${ARGN} ${more} POSTERN_TEST_STAND_IN=1)
    set_property(TEST cuda.long.${name} APPEND PROPERTY LABELS stand_in long no_stages)
  endif()
endfunction()
