# Makes files of a target that are compiled at once be of one folder, so many at most, so that none
# depends on what another folder has.
function(unite target most)
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    string(REPLACE "${CMAKE_CURRENT_SOURCE_DIR}/" "" folder ${source})
    get_filename_component(folder "${folder}" DIRECTORY)
    string(MAKE_C_IDENTIFIER "of_${folder}" folder)
    if(NOT DEFINED files_${folder})
      set(files_${folder} 0)
    endif()
    math(EXPR group "${files_${folder}} / ${most}")
    math(EXPR files_${folder} "${files_${folder}} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${group})
  endforeach()
endfunction()

# Programs of a folder that are compiled the same way read Postern's headers compiled once: the
# first compiles them for all.
function(share_headers target)
  get_property(first DIRECTORY PROPERTY headers_of)
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    target_precompile_headers(${target} PRIVATE <postern/postern.h>)
    set_property(DIRECTORY PROPERTY headers_of ${target})
  endif()
endfunction()
