// A program from a file, as Loaded holds it.
#pragma once
#include <postern/file.h>
#include <postern/jit.h>

#include "core/once.h"
#include "file/block_json.h"
#include "file/import.h"
#include "run/compiled.h"

namespace postern::detail {

struct LoadedProgram {
  using Tensors = std::vector<Tensor>;

  std::shared_ptr<const internal::run::ProgramModule> module;
  std::vector<Type> inputs, outputs;
  std::vector<std::string> input_names, output_names;
  std::vector<SavedSite> sites;
  std::vector<internal::file::SavedBlock> blocks;
  std::vector<std::string> handlers;  // FFI handlers that it calls
  std::string name;                   // for errors
  Place place;                        // where it was loaded
  bool open = false;                  // in sizes: compiled for those that come

  mutable internal::Once compiling, opening, jitting;
  mutable std::shared_ptr<const internal::run::CompiledProgram> compiled;
  mutable internal::imported::Function function;  // that writes its operations into a trace
  mutable std::optional<Jitted<std::function<Tensors(const Tensors&)>>> jitted;
};

}  // namespace postern::detail
