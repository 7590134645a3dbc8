// What taps, hooks and replacements do inside of programs from files. It is done while the program
// is interpreted, so that what is written is an ordinary program.
#include <postern/hook.h>

#include <algorithm>

#include "core/check.h"
#include "file/loaded.h"

namespace postern {
using namespace internal;

namespace {

using Tensors = std::vector<Tensor>;

std::string name_of(const LoadedOperation& at) { return at.name.empty() ? at.operation : at.name; }

enum class Values : bool { kept, changed };  // those that the program computes

/// Returns the program with one change more. Throws TypeError where no operation matches.
Loaded changed(const Loaded& program, const std::string& pattern, imported::Around around,
               Values values = Values::kept) {
  imported::reader_for(program.internal()->name).require_match(pattern, program.operations());
  const detail::LoadedFile& file = *program.internal();
  auto out = std::make_shared<detail::LoadedProgram>(file);
  out->changes.push_back({pattern, std::move(around)});
  if (values == Values::changed) out->vjp = nullptr;  // it is of what the file computes
  return Loaded(std::move(out));
}

/// What takes an operation's place must give what it gave.
void require_results(const LoadedOperation& at, std::span<const Tensor> results) {
  if (std::ranges::equal(results, at.results, file::fits)) return;
  std::vector<std::string> got;
  for (const Tensor& x : results) got.push_back(type_text(x));
  throw_type_error(fmt::format("with_replacement: in place of '{}' results must be {}, got ({})",
                               name_of(at), to_string(at.results), fmt::join(got, ", ")));
}

/// Shows an operation's results, but for tokens, which are empty tensors; what comes back takes
/// their place, unless they are known, as sizes are, and must stay so.
imported::Around shown_results(const TapOptions& options, const auto& show) {
  return [options, show](const LoadedOperation& at, std::span<const Tensor>,
                         const std::function<Tensors()>& compute) {
    Tensors results = compute();
    if (at.constant) return results;
    Tensors values;
    std::ranges::copy_if(results, std::back_inserter(values), &Tensor::has_value);
    if (values.empty()) return results;
    const PlaceScope::Replace place(at.place);
    TapOptions named = options;
    named.name = name_of(at);
    const Tensors passed = show(named, values);
    auto next = passed.begin();
    for (Tensor& result : results) {
      if (!result.has_value()) continue;
      if (!imported::is_known(result)) result = *next;
      ++next;
    }
    return results;
  };
}

}  // namespace

std::vector<LoadedOperation> Loaded::operations(Place place) const {
  PlaceScope at(place);
  return imported::reader_for(program_->name).operations(program_->module->text, program_->name);
}

Loaded Loaded::with_tap(const std::string& pattern, Callee fn, const TapOptions& options) const {
  PlaceScope at(fn.place());
  return changed(*this, pattern,
                 shown_results(options, [fn](const TapOptions& named, const Tensors& values) {
                   if (values.size() == 1) return Tensors{tap(named, values[0], fn)};
                   return tap(named, values, fn);
                 }));
}

Loaded Loaded::with_hook(const std::string& pattern, const TapOptions& options, Place place) const {
  PlaceScope at(place);
  return changed(*this, pattern,
                 shown_results(options, [](const TapOptions& named, const Tensors& values) {
                   if (values.size() == 1) return Tensors{hook(named, values[0])};
                   return hook(named, values);
                 }));
}

Loaded Loaded::with_replacement(const std::string& pattern,
                                std::function<Tensors(const Tensors&)> fn, Place place) const {
  PlaceScope here(place);
  check(static_cast<bool>(fn), "with_replacement: there is no function");
  return changed(
      *this, pattern,
      [fn = std::move(fn)](const LoadedOperation& at, std::span<const Tensor> operands,
                           const std::function<Tensors()>&) {
        Tensors given;
        std::ranges::copy_if(operands, std::back_inserter(given), &Tensor::has_value);
        Tensors results = fn(given);
        require_results(at, results);
        return results;
      },
      Values::changed);
}

}  // namespace postern
