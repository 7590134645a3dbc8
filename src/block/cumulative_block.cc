// Cumulative operations as blocks: public functions, and their rules.
#include "ops/cumulative.h"

#include <postern/reduce.h>

#include "block/block.h"
#include "core/check.h"
#include "ops/elementwise.h"
#include "ops/family.h"
#include "ops/reduce.h"

namespace postern {
using namespace internal;

namespace {

using blocks::config_of;
using blocks::Rules;

extern const Rules cumulative_rules, cumsum_rules;

/// The axis counts from the end, where a batch changes nothing.
Tensors by_default(const detail::BlockConfig& config, TensorSpan x) {
  const auto& c = config_of<Cumulative>(config.object.get());
  return {bind_cumulative(cumulative_primitive(c.kind), x[0], c.axis + x[0].rank(), c.reverse)};
}

Tensor bind(const Cumulative& c, const Tensor& x) {
  const Rules& rules = c.kind == "sum" ? cumsum_rules : cumulative_rules;
  return blocks::bind_cached(detail::erase_config(c), rules, {&x, 1})[0];
}

Jvp jvp_rule(const void* config, TensorSpan x, TensorSpan dx) {
  const Cumulative& c = config_of<Cumulative>(config);
  return {{bind(c, x[0])},
          {cumulative_tangent(cumulative_primitive(c.kind), x[0], dx[0], c.axis + x[0].rank(),
                              c.reverse)}};
}

Jvp cumsum_jvp(const void* config, TensorSpan x, TensorSpan dx) {
  return {{bind(config_of<Cumulative>(config), x[0])},
          {bind(config_of<Cumulative>(config), dx[0])}};
}
Tensors cumsum_transpose(const void* config, TensorSpan ct, TensorSpan) {
  Cumulative c = config_of<Cumulative>(config);
  c.reverse = !c.reverse;
  return {bind(c, ct[0])};
}

constexpr Rules cumulative_rules{
    .by_default = by_default, .jvp = jvp_rule, .dead_as_they_are = true};
constexpr Rules cumsum_rules{.by_default = by_default,
                             .jvp = cumsum_jvp,
                             .transpose = cumsum_transpose,
                             .dead_as_they_are = true};

Tensor along(const char* name, const char* kind, const Tensor& x, std::int64_t axis, bool reverse) {
  return bind({kind, normal_axis(name, axis, x.rank()) - x.rank(), reverse}, x);
}

const Tensor& with_order(const char* name, const Tensor& x) {
  check(ordered(x.dtype()), "{}: numbers that have an order are needed, got {}", name,
        to_string(x.type()));
  return x;
}

}  // namespace

Tensor cumsum(const Operand& x, std::int64_t axis, bool reverse) {
  PlaceScope scope(x.place());
  return along("cumsum", "sum", counted(x.tensor()), axis, reverse);
}
Tensor cumprod(const Operand& x, std::int64_t axis, bool reverse) {
  PlaceScope scope(x.place());
  return along("cumprod", "product", counted(x.tensor()), axis, reverse);
}
Tensor cummax(const Operand& x, std::int64_t axis, bool reverse) {
  PlaceScope scope(x.place());
  return along("cummax", "max", with_order("cummax", x.tensor()), axis, reverse);
}
Tensor cummin(const Operand& x, std::int64_t axis, bool reverse) {
  PlaceScope scope(x.place());
  return along("cummin", "min", with_order("cummin", x.tensor()), axis, reverse);
}
Tensor cumlogsumexp(const Operand& x, std::int64_t axis, bool reverse) {
  PlaceScope scope(x.place());
  return along("cumlogsumexp", "logsumexp", as_float(x.tensor()), axis, reverse);
}

}  // namespace postern
