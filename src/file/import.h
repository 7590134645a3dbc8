// Programs from elsewhere, which a package reads: its opening, what it asks of the library.
#pragma once
#include <postern/attributes.h>
#include <postern/detail/api.h>
#include <postern/file.h>
#include <postern/place.h>
#include <postern/tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace postern::internal {
class Untraced;
struct SiteSpec;
}  // namespace postern::internal

namespace postern::internal::imported {

struct Imported {
  std::vector<Type> inputs, outputs;
  std::vector<std::string> input_names, output_names;  // "" for what has none
  std::vector<int> parameters;  // the inputs that the module takes; behind the last, its weights
  std::vector<std::shared_ptr<const SiteSpec>> sites;
  std::vector<std::string> handlers;  // FFI handlers that it calls
  std::string text;                   // with the custom calls that are sites made calls of ours
  std::vector<Tensor> weights;        // large constants: what the module takes last
  bool open = false;  // in sizes, -1 in `inputs` and `outputs`: XLA can't have the text
  // Of the arguments and a cotangent for each result the arguments' cotangents, where the file has
  // that program.
  std::shared_ptr<const Imported> vjp;
};

/// A module as a function of tensors: writes its operations into the current trace.
using Function = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

/// What stands around each operation while a module is interpreted: is given the operation, its
/// operands and what computes its results, and returns results. Not around those in the bodies of
/// reductions and the like, which are applied to elements.
using Around =
    std::function<std::vector<Tensor>(const LoadedOperation&, std::span<const Tensor> operands,
                                      const std::function<std::vector<Tensor>()>& compute)>;

/// What is done at the operations that match a pattern, see Loaded::with_tap.
struct Change {
  std::string pattern;
  Around around;
};

/// What the package does.
struct Reader {
  /// Reads a module: StableHLO in its own form, as JAX's `lower().as_text()` prints it, a portable
  /// artifact, or what `jax.export` writes. `entry`: the function that is wanted; empty: @main, or
  /// the only one that is public. Custom calls become sites that call the function of the target's
  /// name, but for targets that XLA serves itself or that have an FFI handler. `name` is for errors
  /// and places. Throws Error: invalid_argument for what is no such module, data_loss for a damaged
  /// one, unimplemented for what a file may say that we cannot run; PluginError where the package
  /// is missing.
  Imported (*read)(std::string_view text, const std::string& name, const std::string& entry);
  /// Opens the text of an Imported, whose sites these are.
  Function (*open)(const std::string& text, std::vector<std::shared_ptr<const SiteSpec>> sites,
                   const std::string& name, std::vector<Change> changes);
  std::vector<LoadedOperation> (*operations)(const std::string& text, const std::string& name);
  /// Throws TypeError when none matches.
  void (*require_match)(const std::string& pattern, std::span<const LoadedOperation> all);
};

/// Returns the package, opened for a program of that name. Throws PluginError where it is missing.
const Reader& reader_for(const std::string& name);
/// Takes what the package does, while it is loaded.
POSTERN_API void set_reader(const Reader& reader);

/// Lets operations run at once while a function is traced: those on sizes, which are known.
class POSTERN_API AtOnce {
 public:
  AtOnce();
  ~AtOnce();

 private:
  std::unique_ptr<Untraced> untraced_;
};
/// Returns whether the tensor has its values, here.
POSTERN_API bool is_known(const Tensor& x);

POSTERN_API bool is_tap(const SiteSpec& site);
/// Records a call of a site's host function and returns its results; a tap's are its operands.
/// Throws Error(unimplemented) for what is bound to the program that made it: calls that it starts,
/// values that it keeps for its way back.
POSTERN_API std::vector<Tensor> at_site_of(const SiteSpec& site, std::span<const Tensor> operands);

/// An operation that is known by its text alone: it runs, under vmap element by element, and has no
/// derivative. With an effect it runs though nobody uses its results, as often as it stands there.
struct WrittenOperation {
  std::string name;      // "stablehlo.fft"
  std::string function;  // as text, called `placeholder`; behind it those that it names
  std::vector<Type> results;
  std::vector<std::string> handlers;  // FFI handlers that it calls
  Effect effect = Effect::pure;
};
inline constexpr std::string_view placeholder = "postern.written";
POSTERN_API std::vector<Tensor> written(const WrittenOperation& operation,
                                        std::span<const Tensor> operands);

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
