# add_package(NAME SOURCE...): libpostern_NAME, a shared object that Postern opens when something
# first needs it and that finds Postern in the process; where Postern itself is static, a part of
# it. Its files are compiled as postern_NAME_objects, which tests of its own may link.
function(add_package name)
  set(objects postern_${name}_objects)
  add_library(${objects} OBJECT ${ARGN})
  target_compile_features(${objects} PRIVATE cxx_std_20)
  target_compile_definitions(${objects} PRIVATE FMT_HEADER_ONLY)
  target_include_directories(${objects} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${objects} PRIVATE Eigen3::Eigen postern_build)
  set_target_properties(
    ${objects} PROPERTIES POSITION_INDEPENDENT_CODE ${BUILD_SHARED_LIBS}
                          CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  # One program may link the objects of several.
  target_compile_definitions(${objects} PRIVATE postern_library=postern_${name}_library)
  if(BUILD_SHARED_LIBS)
    add_library(postern_${name} MODULE $<TARGET_OBJECTS:${objects}>)
    target_link_options(postern_${name} PRIVATE
                        -Wl,--defsym=postern_library=postern_${name}_library)
    set_target_properties(postern_${name} PROPERTIES LINKER_LANGUAGE CXX)
    # What opens it when it runs is built after it: here that is named by who does (needs_packages),
    # since `./run hello` need not wait for it.
    if(NOT PROJECT_IS_TOP_LEVEL)
      add_dependencies(postern postern_${name})
    endif()
  else()
    target_sources(postern PRIVATE $<TARGET_OBJECTS:${objects}>)
    target_sources(postern_objects INTERFACE $<TARGET_OBJECTS:${objects}>)
  endif()
endfunction()

# package_needs(NAME LIBRARY...): what the package is linked with.
function(package_needs name)
  if(BUILD_SHARED_LIBS)
    target_link_libraries(postern_${name} PRIVATE ${ARGN})
  else()
    target_link_libraries(postern PRIVATE ${ARGN})
    target_link_libraries(postern_objects INTERFACE ${ARGN})
  endif()
endfunction()

# needs_packages(TARGET [NAME...]): it runs programs that may open those packages, or any.
function(needs_packages target)
  set(names ${ARGN})
  if(NOT names)
    set(names ${postern_packages})
  endif()
  foreach(name ${names})
    if(BUILD_SHARED_LIBS AND name IN_LIST postern_packages)
      add_dependencies(${target} postern_${name})
    endif()
  endforeach()
endfunction()
