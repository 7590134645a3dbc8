# XLA's part: `plugin`, the CPU plug-in that is installed with the library or empty, and
# `xla_headers`, the folders of the two headers of C that the library is compiled with.
set(POSTERN_BUNDLE_PLUGIN AUTO
    CACHE STRING "Install the XLA plug-in with the library; OFF: POSTERN_PLUGIN names one later")
set(POSTERN_XLA_HEADERS ""
    CACHE STRING "Folders with pjrt_c_api.h and xla/ffi/api/c_api.h; empty: looked for")

set(POSTERN_XLA ""
    CACHE STRING "Which XLA: a name that scripts/bootstrap --xla takes; empty: the usual one")
set(plugin ${POSTERN_DEPS}/lib/xla_cpu_pjrt.so)
if(POSTERN_XLA)
  set(plugin ${POSTERN_DEPS}/xla/${POSTERN_XLA}/plugin.so)
  if(NOT EXISTS ${plugin})
    message(FATAL_ERROR "There is no ${plugin}: scripts/bootstrap --xla ${POSTERN_XLA} gets it")
  endif()
endif()
if(POSTERN_BUNDLE_PLUGIN STREQUAL "AUTO")
  if(NOT EXISTS ${plugin})
    set(plugin)
    message(STATUS "No XLA plug-in in ${POSTERN_DEPS}: none is installed with the library")
  endif()
elseif(NOT POSTERN_BUNDLE_PLUGIN)
  set(plugin)
elseif(NOT EXISTS ${plugin})
  message(FATAL_ERROR "POSTERN_BUNDLE_PLUGIN is on, and there is no ${plugin}: "
                      "scripts/bootstrap gets it")
endif()

# Beside an archive's sources, from scripts/bootstrap, or from wheels that a Python here has.
set(folders ${POSTERN_XLA_HEADERS})
if(NOT folders)
  set(folders ${PROJECT_SOURCE_DIR}/xla-headers ${POSTERN_DEPS}/include)
  find_program(POSTERN_PYTHON3 python3)
  mark_as_advanced(POSTERN_PYTHON3)
  if(POSTERN_PYTHON3 AND NOT EXISTS ${POSTERN_DEPS}/include/pjrt_c_api.h)
    execute_process(COMMAND ${POSTERN_PYTHON3} -c "import sys; print(';'.join(sys.path[1:]))"
                    OUTPUT_VARIABLE paths OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    foreach(path ${paths})
      list(APPEND folders ${path}/xla_plugins/xla_cpu_pjrt/include ${path}/jaxlib/include)
    endforeach()
  endif()
endif()
set(xla_headers)
foreach(header pjrt_c_api.h xla/ffi/api/c_api.h)
  set(found)
  foreach(folder ${folders})
    if(NOT found AND EXISTS ${folder}/${header})
      set(found ${folder})
    endif()
  endforeach()
  if(NOT found)
    message(
      FATAL_ERROR
        "XLA's header ${header} is in none of: ${folders}. scripts/bootstrap gets it; or let "
        "POSTERN_XLA_HEADERS name folders with pjrt_c_api.h, which the wheel xla-cpu-pjrt has in "
        "xla_plugins/xla_cpu_pjrt/include, and with xla/ffi/api/c_api.h, which the wheel jaxlib "
        "has in jaxlib/include.")
  endif()
  list(APPEND xla_headers ${found})
endforeach()
list(REMOVE_DUPLICATES xla_headers)
