# What `cmake --install` puts in place: library, headers, plug-in, package files, licence.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/postern)
install(TARGETS postern EXPORT postern)
if(POSTERN_COMMAND)
  install(TARGETS postern_command)
endif()
install(DIRECTORY include/postern DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# The library looks for the plug-in in the folder `postern` beside itself.
install(FILES ${plugin} DESTINATION ${CMAKE_INSTALL_LIBDIR}/postern)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT postern NAMESPACE postern:: FILE postern-targets.cmake DESTINATION ${package_dir})
configure_package_config_file(cmake/postern-config.cmake.in postern-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(postern-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/postern-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/postern-config-version.cmake
        DESTINATION ${package_dir})
