# What `./test NAME` builds and runs: NAME is the label of ctest's entries, `subject_NAME` the
# target that builds what they need. Entries with the label `long` are run by `./test --all` alone,
# those with `no_xla` once, whatever builds of XLA there are.

# subject(NAME TARGET...): those targets are needed too.
function(subject name)
  if(NOT TARGET subject_${name})
    add_custom_target(subject_${name})
    needs_packages(subject_${name})
  endif()
  if(ARGN)
    add_dependencies(subject_${name} ${ARGN})
  endif()
endfunction()

# At the end of a folder's file: its entries are of this subject and need the folder's targets, and
# those that are named.
function(subject_of_folder name)
  get_property(tests DIRECTORY PROPERTY TESTS)
  set_property(TEST ${tests} APPEND PROPERTY LABELS ${name})
  get_property(targets DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)
  list(FILTER targets EXCLUDE REGEX "^subject_")
  subject(${name} ${targets} ${ARGN})
endfunction()
