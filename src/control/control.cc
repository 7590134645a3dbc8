// What the control flow operations share.
#include "control/control.h"

#include <unordered_map>

#include "core/lists.h"
#include "ops/shape.h"

namespace postern::internal {

Tensors join_captures(std::vector<Closed>& programs) {
  Tensors all;
  std::unordered_map<const detail::Value*, std::size_t> place_in_all;
  for (const Closed& c : programs)
    for (const Tensor& t : c.captures)
      if (place_in_all.emplace(detail::Access::value(t), all.size()).second) all.push_back(t);

  for (Closed& c : programs) {
    Program p = *c.program;
    std::vector<ValueId> inputs(all.size(), -1);
    for (std::size_t i = 0; i < c.captures.size(); ++i)
      inputs[place_in_all.at(detail::Access::value(c.captures[i]))] = p.inputs[i];
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (inputs[i] >= 0) continue;
      inputs[i] = static_cast<ValueId>(p.types.size());  // a new value, which nothing reads
      p.types.push_back(all[i].type());
    }
    inputs.insert(inputs.end(), nth(p.inputs, c.captures.size()), p.inputs.end());
    p.inputs = std::move(inputs);
    c = {std::make_shared<const Program>(std::move(p)), all};
  }
  return all;
}

Type stacked_type(const Type& type, std::int64_t length) {
  Type out{type.dtype, type.dims};
  out.dims.insert(out.dims.begin(), length);
  return out;
}

Type slice_type_of(const Type& type) {
  return {type.dtype, {type.dims.begin() + 1, type.dims.end()}};
}

bool settle_carry(const char* what, Tensors& carry, const Types& gives,
                  const std::vector<std::string>& paths) {
  check(gives.size() == carry.size(), "{}: the body gives back {} leaves, the carry has {}", what,
        gives.size(), carry.size());
  bool changed = false;
  for (std::size_t i = 0; i < carry.size(); ++i) {
    const Type& has = carry[i].type();
    if (alike(has, gives[i])) {
      // A number of the right dtype only has to be no longer weak.
      const detail::HostValue* number = nullptr;
      if (has.weak && !gives[i].weak) number = host_scalar(carry[i]);
      if (number) carry[i] = full_of(read_number(has.dtype, number->data.get()), {has.dtype, {}});
      changed = changed || number;
      continue;
    }
    if (has.weak && has.dims == gives[i].dims) {
      const Type common = promote(what, has, gives[i]);
      if (common.dtype != has.dtype) {
        carry[i] = fit(carry[i], {common.dtype, has.dims});
        changed = true;
        continue;
      }
    }
    std::string where;
    if (!paths[i].empty()) where = " at " + paths[i];
    throw_type_error(
        fmt::format("{}: the carry{} is {} before a step and {} after it; they must be the same",
                    what, where, to_string(has), to_string(gives[i])));
  }
  return changed;
}

Tensor select_elements(const Tensor& mask, const Tensor& x, const Tensor& y) {
  Tensor of_elements = mask;
  if (x.dims() != mask.dims()) of_elements = broadcast_in_dim(mask, x.dims(), {0});
  return where(of_elements, x, y);
}

}  // namespace postern::internal
