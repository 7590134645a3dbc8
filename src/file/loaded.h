// A program from a file, as Loaded holds it.
#pragma once
#include <postern/file.h>
#include <postern/jit.h>

#include "core/cache.h"
#include "core/once.h"
#include "file/block_json.h"
#include "file/import.h"
#include "file/open.h"
#include "run/compiled.h"

namespace postern::detail {

struct LoadedProgram;

/// What a program is.
struct LoadedFile {
  std::shared_ptr<const internal::run::ProgramModule> module;
  std::vector<Type> inputs, outputs;
  std::vector<std::string> input_names, output_names;
  std::vector<SavedSite> sites;
  std::vector<internal::file::SavedBlock> blocks;
  std::vector<std::string> handlers;  // FFI handlers that it calls
  std::vector<Tensor> weights;        // what the module takes behind its inputs
  std::string name;                   // for errors
  Place place;                        // where it was loaded
  bool open = false;                  // in sizes: compiled for those that come
  std::shared_ptr<const internal::file::OpenFile> open_file;  // so are those of ours, else null
  std::vector<internal::imported::Change> changes;            // each around those before it
  std::shared_ptr<const LoadedProgram> vjp;  // as in Imported; null where the file has none

  /// Whether XLA always gets what tracing it writes, and never the module as it came.
  bool must_be_traced() const { return open || !changes.empty(); }
};

/// How it runs, made when it is first needed.
struct LoadedProgram : LoadedFile, std::enable_shared_from_this<LoadedProgram> {
  using Tensors = std::vector<Tensor>;
  LoadedProgram() = default;
  explicit LoadedProgram(LoadedFile file) : LoadedFile(std::move(file)) {}

  mutable internal::Once compiling, opening, jitting, trying;
  mutable bool has_derivative = true;  // of its own, by its operations
  mutable std::shared_ptr<const internal::run::CompiledProgram> compiled;
  mutable internal::imported::Function function;  // that writes its operations into a trace
  mutable internal::Cache<const LoadedProgram> instances{64};  // of open_file, by sizes
  mutable std::optional<Jitted<std::function<Tensors(const Tensors&)>>> jitted;
};

}  // namespace postern::detail

namespace postern::internal::file {

/// Returns whether a tensor is of that type, where an extent below 0 is any.
bool fits(const Tensor& x, const Type& type);

/// Returns a program whose sizes are open as that of its arguments' sizes. Throws TypeError for
/// those that do not fit.
std::shared_ptr<const detail::LoadedProgram> instance_for(const detail::LoadedProgram& program,
                                                          std::span<const Tensor> arguments);

}  // namespace postern::internal::file
