# Shared libraries: the library's own parts, and its packages.

# Gives a shared library its version; it shows what is Postern's, and nothing of other libraries'
# templates.
function(export_postern_alone target)
  if(NOT SKBUILD)  # a wheel has no links, and is replaced as a whole
    set_target_properties(
      ${target} PROPERTIES VERSION ${PROJECT_VERSION}
                           SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  endif()
  set(exports ${PROJECT_SOURCE_DIR}/src/exports.map)
  target_link_options(${target} PRIVATE -Wl,--version-script=${exports})
  set_target_properties(${target} PROPERTIES LINK_DEPENDS ${exports})
endfunction()

# Compiles the files of a package as postern_NAME_objects, which tests of its own may link.
function(add_package_objects name)
  set(objects postern_${name}_objects)
  add_library(${objects} OBJECT ${ARGN})
  target_compile_features(${objects} PRIVATE cxx_std_20)
  target_compile_definitions(${objects} PRIVATE FMT_HEADER_ONLY)
  target_include_directories(${objects} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${objects} PRIVATE Eigen3::Eigen postern_build)
  set_target_properties(
    ${objects} PROPERTIES POSITION_INDEPENDENT_CODE ${BUILD_SHARED_LIBS}
                          CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
endfunction()

# Puts a package into a static Postern, where all packages are.
function(add_to_static_library name)
  target_sources(postern PRIVATE $<TARGET_OBJECTS:postern_${name}_objects>)
  target_sources(postern_objects INTERFACE $<TARGET_OBJECTS:postern_${name}_objects>)
endfunction()

# add_package(NAME SOURCE...): libpostern_NAME, a shared object that Postern opens when something
# first needs it and that finds Postern in the process; where Postern itself is static, a part of
# it. Its files are compiled as postern_NAME_objects, which tests of its own may link.
function(add_package name)
  add_package_objects(${name} ${ARGN})
  set(objects postern_${name}_objects)
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
    add_to_static_library(${name})
  endif()
endfunction()

# add_linked_package(NAME SOURCE...): libpostern_NAME, for link_packages_where_used. It takes what
# it needs of Postern from the process.
function(add_linked_package name)
  add_package_objects(${name} ${ARGN})
  target_compile_definitions(postern_${name}_objects PRIVATE POSTERN_INSIDE)  # see Place::current
  target_include_directories(postern_${name}_objects PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(postern_${name}_objects PRIVATE nlohmann_json::nlohmann_json)
  if(NOT BUILD_SHARED_LIBS)
    add_to_static_library(${name})
    return()
  endif()
  target_sources(postern_objects INTERFACE $<TARGET_OBJECTS:postern_${name}_objects>)
  add_library(postern_${name} SHARED $<TARGET_OBJECTS:postern_${name}_objects>)
  set_target_properties(postern_${name} PROPERTIES LINKER_LANGUAGE CXX EXPORT_NAME ${name})
  export_postern_alone(postern_${name})
endfunction()

# A program that is linked with Postern is linked too with those that it uses. CMake keeps each flag
# of a list once, so one pair is around all of them.
function(link_packages_where_used)
  set(linked)
  foreach(name ${ARGN})
    if(TARGET postern_${name})
      list(APPEND linked postern_${name})
    endif()
  endforeach()
  if(linked)
    target_link_libraries(postern INTERFACE -Wl,--push-state,--as-needed ${linked} -Wl,--pop-state)
  endif()
endfunction()

# package_uses(NAME PACKAGE...): what those linked packages show other packages.
function(package_uses name)
  target_include_directories(postern_${name}_objects PRIVATE ${PROJECT_SOURCE_DIR}/packages)
  if(BUILD_SHARED_LIBS)
    list(TRANSFORM ARGN PREPEND postern_)
    target_link_libraries(postern_${name} PRIVATE ${ARGN})
    get_target_property(type postern_${name} TYPE)
    set(folder $ORIGIN)
    if(type STREQUAL "MODULE_LIBRARY")
      set(folder $ORIGIN/..)
    endif()
    set_target_properties(postern_${name} PROPERTIES INSTALL_RPATH ${folder})
  endif()
endfunction()

# package_needs(NAME LIBRARY...): what the package is linked with.
function(package_needs name)
  if(BUILD_SHARED_LIBS)
    target_link_libraries(postern_${name} PRIVATE ${ARGN})
    get_target_property(type postern_${name} TYPE)
    if(type STREQUAL "SHARED_LIBRARY")  # linked: its objects are postern_objects' too
      target_link_libraries(postern_objects INTERFACE ${ARGN})
    endif()
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
