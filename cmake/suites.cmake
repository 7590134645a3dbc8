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
