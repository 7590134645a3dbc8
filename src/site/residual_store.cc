// The calls by which loops put values in stores and take them back.
#include "site/residual_store.h"

#include <type_traits>

#include "core/check.h"
#include "core/described.h"
#include "site/own_functions.h"
#include "site/site.h"
#include "transform/walk.h"

namespace postern::internal {

template <>
struct Described<ResidualOptions> {
  using O = ResidualOptions;
  static constexpr auto fields =
      std::tuple(field("memory", &O::memory), field("file", &O::file),
                 field("keep_every", &O::keep_every), field("of_segment", &O::of_segment));
};

namespace {

constexpr const char* room_name = "room";

void set_options(Attributes& attributes, const ResidualOptions& o) {
  const ResidualOptions usual;
  for_each_field<ResidualOptions>([&](const auto& option) {
    if (option.of(o) != option.of(usual)) attributes.set(std::string(option.name), option.of(o));
  });
}

/// A call of one of ours, named as its loop: errors say where that is.
Tensors at_store(const char* function, Effect effect, const Types& results, TensorSpan operands,
                 const ResidualOptions& options, std::int64_t room = 1) {
  SiteSpec site;
  site.name = "while_loop";
  site.place = PlaceScope::current();
  site.function = own_functions.of_residuals(function);
  site.named = {function, {}};
  set_options(site.named.attributes, options);
  if (room != 1) site.named.attributes.set(room_name, room);
  site.operands = types_of(operands);
  site.results = results;
  site.effect = effect;
  return at_site(std::move(site), operands);
}

Tensors operands_of(const StepsOfCall& steps, TensorSpan handles) {
  Tensors out{steps.first};
  if (steps.count.has_value()) out.push_back(steps.count);
  append(out, handles);
  return out;
}

}  // namespace

ResidualOptions residual_options(const Attributes& attributes) {
  ResidualOptions o;
  for_each_field<ResidualOptions>([&](const auto& option) {
    using T = std::remove_cvref_t<decltype(option.of(o))>;
    if (attributes.has(option.name)) option.of(o) = attributes.get<T>(option.name);
  });
  return o;
}

std::int64_t room_for_steps(const Attributes& attributes) {
  if (!attributes.has(room_name)) return 1;
  return attributes.get<std::int64_t>(room_name);
}

// The call gives the handles anew (zero becomes that of a new store), so that reads depend on it.
Tensors write_residuals(const StepsOfCall& steps, TensorSpan handles, TensorSpan leaves,
                        const ResidualOptions& options) {
  if (handles.empty()) return {};
  return at_store(residual_write, Effect::unordered, types_of(handles),
                  joined({operands_of(steps, handles), leaves}), options, steps.room);
}

Tensors read_residuals(const StepsOfCall& steps, TensorSpan handles, const Types& types,
                       const ResidualOptions& options) {
  if (handles.empty()) return {};
  return at_store(residual_read, Effect::pure, types, operands_of(steps, handles), options,
                  steps.room);
}

// Operands: the first step, how many steps if there is room for several, handles, and of a write as
// many leaves. Results: handles of a write, leaves of a read. A free has a value that it waits for
// in place of the step. A leaf has the same number of elements for each handle and step.
void check_residual_site(const SiteSpec& s) {
  const auto require = [&](bool fits) {
    check(fits, "a site of a loop's residuals does not fit {}", s.named.name);
  };
  const bool frees = s.named.name == residual_free;
  const bool writes = s.named.name == residual_write;
  const std::int64_t room = room_for_steps(s.named.attributes);
  require(!s.is_tap() && s.call.role == SiteCall::Role::whole && s.batch.levels.empty());
  require(!s.batch.masked && !s.tap.async);
  require(room >= 1 && (!frees || (room == 1 && s.results.empty())));
  const std::size_t first = room == 1 ? 1 : 2;  // handle
  require(s.operands.size() >= first);
  const std::size_t leaves = frees ? s.operands.size() - first : s.results.size();
  require(s.operands.size() == first + leaves * (writes ? 2 : 1));
  for (std::size_t i = 0; i < first && !frees; ++i) require(alike(s.operands[i], count_type()));
  for (std::size_t i = 0; i < leaves; ++i) {
    const Type& handle = s.operands[first + i];
    require(handle.dtype == DType::f64);
    if (frees) continue;
    require(!writes || alike(s.results[i], handle));
    const Type& leaf = writes ? s.operands[first + leaves + i] : s.results[i];
    std::int64_t values = 0;
    require(!__builtin_mul_overflow(handle.size(), room, &values));
    require(values == 0 || leaf.size() % values == 0);
  }
}

void free_residuals(const Tensor& after, TensorSpan handles, const ResidualOptions& options) {
  at_store(residual_free, Effect::unordered, {}, operands_of({after}, handles), options);
}

}  // namespace postern::internal
