// Programs from elsewhere, which a package reads: its opening, what it asks of the library.
#pragma once
#include <postern/attributes.h>
#include <postern/detail/api.h>
#include <postern/place.h>
#include <postern/type.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace postern::internal {
struct SiteSpec;
}

namespace postern::internal::imported {

struct Imported {
  std::vector<Type> inputs, outputs;
  std::vector<int> parameters;  // the inputs that the module takes
  std::vector<std::shared_ptr<const SiteSpec>> sites;
  std::vector<std::string> handlers;  // FFI handlers that it calls
  std::string text;                   // with the custom calls that are sites made calls of ours
};

/// Reads a module: StableHLO in its own form, as JAX's `lower().as_text()` prints it, a portable
/// artifact, or what `jax.export` writes. Custom calls become sites that call the function of the
/// target's name, but for targets that XLA serves itself or that have an FFI handler. `name` is for
/// errors and places. Throws Error: invalid_argument for what is no such module, data_loss for a
/// damaged one, unimplemented for what a file may say that we cannot run; PluginError where the
/// package is missing.
Imported read_imported(std::string_view text, const std::string& name);
/// Takes the package's function that does so, while it is loaded.
POSTERN_API void set_reader(Imported (*read)(std::string_view text, const std::string& name));

/// A custom call that a host function serves.
struct ImportedCall {
  std::string target;
  Attributes attributes;
  std::vector<Type> operands, results;        // without tokens
  bool side_effect = false, ordered = false;  // ordered: it hands on a token
  Place place;
};
POSTERN_API std::shared_ptr<const SiteSpec> site_of(ImportedCall call);

/// Returns whether the process's platform has an FFI handler of that name.
POSTERN_API bool has_handler(const std::string& target);
/// Returns the process's platform's name, and its place in a list of such names.
POSTERN_API std::string_view platform_name();
POSTERN_API std::optional<std::size_t> platform_position(std::span<const std::string> names);
/// Returns what XLA's parser objects to a module, "" where it does not or there is none to ask.
POSTERN_API std::string objection_to(const std::string& text);

/// Writes for MLIR: "tensor<2xf32>", a row-major layout of that rank, a text in quotes.
POSTERN_API std::string mlir_text(const Type& type);
POSTERN_API std::string mlir_layout(std::int64_t rank);
POSTERN_API std::string mlir_quoted(std::string_view text);

}  // namespace postern::internal::imported
