# Of a page of the documentation, by language: its program, and the test that compares what the
# program prints with what the page shows. scripts/doc_code reads pages.
set(doc_code ${PROJECT_SOURCE_DIR}/scripts/doc_code)
set(here ${CMAKE_CURRENT_BINARY_DIR})  # of tests/docs, which includes this

# The page's program in `file`, whose suffix says of what language; or with `file` its block that
# begins with `// NAME:`.
function(page_program name action file)
  set(page ${PROJECT_SOURCE_DIR}/docs/${name}.md)
  add_custom_command(OUTPUT ${here}/${file}
                     COMMAND ${PYTHON} ${doc_code} ${action} ${page} ${here}/${file}
                     DEPENDS ${page} ${doc_code})
endfunction()

# A test that compares what the page shows with what the programs print, in their order.
function(add_page_test test name)
  add_test(NAME ${test} COMMAND ${PYTHON} ${doc_code} check ${PROJECT_SOURCE_DIR}/docs/${name}.md
                                ${ARGN})
  set_tests_properties(${test} PROPERTIES TIMEOUT 300)
endfunction()

function(add_skipped test reason)
  add_test(NAME ${test} COMMAND echo "${reason}")
  set_tests_properties(${test} PROPERTIES SKIP_REGULAR_EXPRESSION "${reason}")
endfunction()

# Another language's test of a page runs its C++ first, and shows what that one's shows.
function(implies_cpp name)
  set_property(TEST docs.${name} APPEND PROPERTY LABELS long)
endfunction()

function(add_cpp_page name)
  if(name STREQUAL "torch" AND NOT TARGET postern::torch)
    add_skipped(docs.${name} "no postern::torch: scripts/bootstrap --torch gets it")
    return()
  endif()
  page_program(${name} program ${name}.cc)
  add_executable(docs_${name} ${here}/${name}.cc)
  target_compile_options(docs_${name} PRIVATE -O0)  # quick to compile
  target_link_libraries(docs_${name} PRIVATE postern::postern)
  if(name STREQUAL "torch")
    target_link_libraries(docs_${name} PRIVATE postern::torch)
  else()
    share_headers(docs_${name})
  endif()
  if(NOT name STREQUAL "jax")  # which needs what its Python writes
    add_page_test(docs.${name} ${name} cpp $<TARGET_FILE:docs_${name}>)
  endif()
endfunction()

function(add_c_page name)
  page_program(${name} program ${name}.c)
  add_executable(docs_${name}_c ${here}/${name}.c)
  set_target_properties(docs_${name}_c PROPERTIES C_STANDARD 11 LINKER_LANGUAGE CXX)
  target_compile_options(docs_${name}_c PRIVATE -Wall -Wextra -Werror)
  target_link_libraries(docs_${name}_c PRIVATE postern::postern)
  add_page_test(docs.${name}.c ${name} cpp $<TARGET_FILE:docs_${name}> -- c
                $<TARGET_FILE:docs_${name}_c>)
  implies_cpp(${name})
endfunction()

set(packages ${PROJECT_BINARY_DIR}/bindings/python:${POSTERN_DEPS}/python)
function(add_python_page name file)
  page_program(${name} program ${file})
  if(NOT TARGET postern_python)
    add_skipped(docs.${name}.python "no Python package is built here")
    return()
  elseif(name MATCHES "jax|simulators" AND NOT EXISTS ${POSTERN_DEPS}/python/jax)
    add_skipped(docs.${name}.python "no JAX: scripts/bootstrap --python gets it")
    return()
  endif()
  set(first cpp $<TARGET_FILE:docs_${name}> --)
  set(last)
  if(name STREQUAL "jax")
    set(first)
    set(last -- cpp $<TARGET_FILE:docs_jax>)
  elseif(NOT TARGET docs_${name})  # a page without C++
    set(first)
  else()
    implies_cpp(${name})
  endif()
  add_page_test(docs.${name}.python ${name} ${first} python ${PYTHON} ${here}/${file} ${last})
  set_tests_properties(
    docs.${name}.python
    PROPERTIES ENVIRONMENT
               "PYTHONPATH=${packages};JAX_PLATFORMS=cpu;LOOKUP=$<TARGET_FILE:docs_lookup>")
endfunction()

find_program(ELIXIR elixir)
function(add_elixir_page name file)
  page_program(${name} program ${file})
  if(NOT TARGET postern_elixir)
    add_skipped(docs.${name}.elixir
                "no Elixir application is built here: scripts/bootstrap --beam gets what it needs")
    return()
  endif()
  set(binding ${PROJECT_BINARY_DIR}/bindings/elixir)
  add_page_test(docs.${name}.elixir ${name} cpp $<TARGET_FILE:docs_${name}> -- elixir ${ELIXIR}
                -pa ${binding}/ebin ${here}/${file})
  implies_cpp(${name})
  set_tests_properties(
    docs.${name}.elixir PROPERTIES ENVIRONMENT "POSTERN_NIF=${binding}/postern_nif;LC_ALL=C.UTF-8")
endfunction()
