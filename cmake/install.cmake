# What `cmake --install` puts in place: library, headers, plug-in, package files, licence; and the
# application for Erlang and Elixir where it is built.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/postern)
install(TARGETS postern EXPORT postern)
set(headers_of_formats npy.h safetensors.h)
set(headers_of_listen listen.h metrics.h)
set(headers_of_checkpoint checkpoint.h record.h)
set(headers_of_optimize optimize.h initialize.h)
set(pkg_config_packages)
foreach(package ${postern_linked_packages})
  string(TOUPPER POSTERN_${package} switch)
  if(TARGET postern_${package})
    install(TARGETS postern_${package} EXPORT postern)
    string(APPEND pkg_config_packages
           " -Wl,--push-state,--as-needed -lpostern_${package} -Wl,--pop-state")
  elseif(NOT ${switch})
    foreach(header ${headers_of_${package}})
      list(APPEND left_out PATTERN ${header} EXCLUDE)
    endforeach()
  endif()
endforeach()
if(POSTERN_COMMAND)
  install(TARGETS postern_command)
endif()
if(TARGET postern_mpi)  # beside the library, which looks for it there
  install(TARGETS postern_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(TARGET postern_nif)  # an application as the BEAM looks for it, in /usr or where ERL_LIBS says
  set(application lib/erlang/lib/postern-${PROJECT_VERSION})
  set_target_properties(postern_nif PROPERTIES INSTALL_RPATH
                                               "$ORIGIN/../../../../../${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS postern_nif LIBRARY DESTINATION ${application}/priv)
  install(DIRECTORY ${PROJECT_BINARY_DIR}/bindings/elixir/ebin DESTINATION ${application})
endif()
install(DIRECTORY include/postern DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} ${left_out})
# The library looks in the folder `postern` beside itself for the plug-in, which goes there without
# the symbols that are for debuggers, and for its packages.
set(installed_plugin ${plugin})
if(plugin AND CMAKE_STRIP)
  set(installed_plugin ${PROJECT_BINARY_DIR}/xla_cpu_pjrt${POSTERN_XLA}.so)
  # By another name first: several installations may go on at once.
  install(
    CODE "if(\"${plugin}\" IS_NEWER_THAN \"${installed_plugin}\")
  string(RANDOM name)
  execute_process(COMMAND \"${CMAKE_STRIP}\" -o \"${installed_plugin}.\${name}\" \"${plugin}\"
                  COMMAND_ERROR_IS_FATAL ANY)
  file(RENAME \"${installed_plugin}.\${name}\" \"${installed_plugin}\")
endif()")
endif()
if(plugin)
  install(FILES ${installed_plugin} DESTINATION ${CMAKE_INSTALL_LIBDIR}/postern
          RENAME xla_cpu_pjrt.so)
  get_filename_component(folder ${plugin} DIRECTORY)
  file(GLOB notices ${folder}/LICENSE ${folder}/THIRD_PARTY_NOTICES ${folder}/METADATA)
  install(FILES ${notices} DESTINATION ${CMAKE_INSTALL_DOCDIR}/xla)
endif()
foreach(package ${postern_packages})
  if(BUILD_SHARED_LIBS)
    install(TARGETS postern_${package} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/postern)
  endif()
endforeach()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(SKBUILD)  # a wheel brings the headers that ours include
  find_package(Eigen3 REQUIRED)
  set(POSTERN_BUNDLED_EIGEN ${CMAKE_INSTALL_INCLUDEDIR}/eigen3)
  get_target_property(eigen Eigen3::Eigen INTERFACE_INCLUDE_DIRECTORIES)
  install(DIRECTORY ${eigen}/Eigen DESTINATION ${POSTERN_BUNDLED_EIGEN})
endif()
install(EXPORT postern NAMESPACE postern:: FILE postern-targets.cmake DESTINATION ${package_dir})
configure_package_config_file(cmake/postern-config.cmake.in postern-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(postern-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/postern-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/postern-config-version.cmake
        DESTINATION ${package_dir})
if(NOT SKBUILD AND NOT IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(pkg_config_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  file(RELATIVE_PATH to_prefix /${pkg_config_dir} /)  # an installation may be moved
  configure_file(cmake/postern.pc.in postern.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/postern.pc DESTINATION ${pkg_config_dir})
endif()

# A Debian package of all this (`cpack` in a folder that was configured for the prefix /usr:
# scripts/release).
if(PROJECT_IS_TOP_LEVEL)
  set(CPACK_GENERATOR DEB)
  set(CPACK_PACKAGE_CONTACT "The developers of Postern <postern@postern.invalid>")
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY
      "tensor programs in C++ that reach back into the host while they run")
  set(CPACK_PACKAGE_DESCRIPTION "Library, headers, XLA's CPU plug-in and the command postern.")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_STRIP_FILES ON)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
  # The libraries that it is linked with are found by their files; Eigen is headers alone.
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_DEPENDS "libeigen3-dev (>= 3.4)")
  include(CPack)
endif()
