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
string(CONCAT without_stand_in "Checkpoint.Killed*:DevicesBatches.*:Devices.ArraysComeBack*:"
                               "Devices.CutPrograms*:Devices.EveryDType*:Devices.TwoBits*:"
                               "DevicesLong.*:DevicesShardMap.Collectives:DevicesShardMap.Values*")

set(no_tests "PASSED  . 0 tests")
set(limit 900)
if(POSTERN_SANITIZE)
  set(limit 3600)
endif()
# An entry for the suites that `filter` names; what follows is its environment.
function(add_suites name filter)
  add_test(NAME ${name} COMMAND postern_tests --gtest_brief=1 --gtest_filter=${filter})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${limit} FAIL_REGULAR_EXPRESSION "${no_tests}"
                                          ENVIRONMENT "${test_environment};${ARGN}")
endfunction()
