# An overlay port of the sources that it lies in: vcpkg install postern
# --overlay-ports=packaging/vcpkg. UNTESTED: written where no vcpkg runs.
# In a release's archive XLA's headers are beside the sources; in a clone scripts/bootstrap gets them.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
vcpkg_check_features(OUT_FEATURE_OPTIONS features FEATURES
    command POSTERN_COMMAND
    lapack POSTERN_LAPACK)
vcpkg_cmake_configure(
    SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS
        ${features}
        -DPOSTERN_TESTS=OFF
        -DPOSTERN_BENCH=OFF
        -DPOSTERN_EXAMPLES=OFF
        -DPOSTERN_MPI=OFF
        -DPOSTERN_TORCH=OFF
        -DPOSTERN_PYTHON=OFF
        -DPOSTERN_ELIXIR=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/postern)
vcpkg_fixup_pkgconfig()
if("command" IN_LIST FEATURES)
    vcpkg_copy_tools(TOOL_NAMES postern AUTO_CLEAN)
endif()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
