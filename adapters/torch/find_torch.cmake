# The target postern_libtorch: libtorch 1.13's headers, as those of a system, and its libraries.
# Torch's own package files would bring settings of its build and ask for libraries that only its
# sources need.
find_path(POSTERN_TORCH_INCLUDE torch/script.h)
find_library(POSTERN_TORCH_CPU torch_cpu)
find_library(POSTERN_TORCH_C10 c10)
mark_as_advanced(POSTERN_TORCH_INCLUDE POSTERN_TORCH_CPU POSTERN_TORCH_C10)
if(POSTERN_TORCH_INCLUDE AND POSTERN_TORCH_CPU AND POSTERN_TORCH_C10
   AND NOT TARGET postern_libtorch)
  set(postern_torch_version ${POSTERN_TORCH_INCLUDE}/torch/csrc/api/include/torch/version.h)
  set(postern_torch_minor)
  if(EXISTS ${postern_torch_version})
    file(STRINGS ${postern_torch_version} postern_torch_minor REGEX "TORCH_VERSION_MINOR 13$")
  endif()
  if(postern_torch_minor)
    add_library(postern_libtorch INTERFACE IMPORTED GLOBAL)
    target_include_directories(
      postern_libtorch SYSTEM INTERFACE ${POSTERN_TORCH_INCLUDE}
                                        ${POSTERN_TORCH_INCLUDE}/torch/csrc/api/include)
    target_link_libraries(postern_libtorch INTERFACE ${POSTERN_TORCH_CPU} ${POSTERN_TORCH_C10})
  endif()
endif()
