// Containers as safetensors files.
//
//   pn::save_tensors("weights.safetensors", weights);
//   weights = pn::load_tensors("weights.safetensors", weights);
#pragma once
#include <postern/detail/api.h>
#include <postern/npy.h>
#include <postern/place.h>
#include <postern/tree.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace postern {

/// Makes `file` a safetensors file of these tensors, all of it or, with an error, what it held
/// before. Waits for them. Dtypes that the format lacks (c128, s4, some floats of 8 and 4 bits) are
/// bytes with a note that load_tensors understands. Throws TypeError for a name that is empty, no
/// UTF-8 or there twice; Error(unavailable) when the file cannot be written.
POSTERN_API void save_tensors(const std::filesystem::path& file, const NamedTensors& tensors,
                              Place place = Place::current());

/// Returns the tensors of a safetensors file, in the order of their bytes. Throws Error: not_found
/// or unavailable when it cannot be read, invalid_argument when it is none, data_loss when it is
/// cut, unimplemented for a dtype that Postern lacks.
[[nodiscard]] POSTERN_API NamedTensors load_tensors(const std::filesystem::path& file);

namespace detail {
/// Returns what the leaf with this path is named in a file: "layers[0].w" for ".layers[0].w",
/// "value" for a leaf alone.
POSTERN_API std::string tensor_name(const std::string& path);

template <class Tree>
std::vector<std::string> tensor_names(const Tree& tree) {
  std::vector<std::string> names;
  leaf_paths(tree, "", names);
  for (std::string& name : names) name = tensor_name(name);
  return names;
}
}  // namespace detail

/// Saves the leaves of a container, named by their paths. Throws the same errors.
template <class Tree>
void save_tensors(const std::filesystem::path& file, const Tree& tree,
                  Place place = Place::current()) {
  const std::vector<std::string> names = detail::tensor_names(tree);
  const std::vector<Tensor> all = leaves(tree);
  NamedTensors tensors;
  for (std::size_t i = 0; i < all.size(); ++i) tensors.emplace_back(names[i], all[i]);
  save_tensors(file, tensors, place);
}

namespace detail {
POSTERN_API std::vector<Tensor> load_tensors(const std::filesystem::path& file,
                                             const std::vector<std::string>& names,
                                             const std::vector<Tensor>& like, const Place& place);
}

/// Returns a container like `like`, of whose leaves only the types count, with the tensors that
/// have the names of its leaves, as save_tensors gives them; others in the file are left out.
/// Throws the same errors, and Error(failed_precondition) with all leaves that the file lacks or
/// has of another type.
///
///   const std::pair weights{pn::tensor<float>({1, 2}), pn::Tensor(3.0f)};
///   pn::save_tensors("weights.safetensors", weights);
///   const auto [w, b] = pn::load_tensors("weights.safetensors", weights);
template <class Tree>
[[nodiscard]] Tree load_tensors(const std::filesystem::path& file, const Tree& like,
                                Place place = Place::current()) {
  return detail::with_leaves(
      like, detail::load_tensors(file, detail::tensor_names(like), leaves(like), place));
}

}  // namespace postern
