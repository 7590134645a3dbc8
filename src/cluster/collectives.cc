// Groups, types and texts of collectives over processes.
#include "cluster/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/check.h"
#include "core/lists.h"

namespace postern::internal::clusters {

static constexpr std::array names = {"sum",          "max",       "min",   "gather", "scatter",
                                     "exchange",     "permute",   "index", "end",    "broadcast",
                                     "scatter_from", "gather_to", "relay", "count",  "pass"};

bool communicates(Operation operation) {
  return operation != Operation::index && operation != Operation::count &&
         operation != Operation::pass;
}

const char* to_string(Operation operation) { return names[static_cast<std::size_t>(operation)]; }

Operation operation_named(const std::string& name) {
  const auto found = std::ranges::find(names, name);
  check(found != names.end(), "'{}' is no collective over processes", name);
  return static_cast<Operation>(found - names.begin());
}

// The group is where the place of this rank in the grid varies along the axes `along`.
Collective::Group Collective::group(int rank) const {
  std::vector<std::int64_t> place(grid.size());
  std::int64_t rest = rank;
  for (std::size_t i = grid.size(); i-- > 0; rest /= grid[i]) place[i] = rest % grid[i];
  Group out;
  std::int64_t count = 1;
  for (const std::int64_t a : along) count *= grid[size_of(a)];
  for (std::int64_t k = 0; k < count; ++k) {
    std::vector<std::int64_t> other_place = place;  // that of the k-th of the group
    std::int64_t rest_of_k = k;
    for (std::size_t i = along.size(); i-- > 0;) {
      const std::size_t a = size_of(along[i]);
      other_place[a] = rest_of_k % grid[a];
      rest_of_k /= grid[a];
    }
    std::int64_t other_rank = 0;
    for (std::size_t i = 0; i < grid.size(); ++i)
      other_rank = other_rank * grid[i] + other_place[i];
    if (other_rank == rank) out.place = static_cast<int>(k);
    out.ranks.push_back(static_cast<int>(other_rank));
  }
  return out;
}

std::string Collective::Group::text() const { return fmt::format("{}", fmt::join(ranks, ", ")); }

bool reduces(DType dtype, Operation operation) {
  const bool compares = operation == Operation::max || operation == Operation::min;
  if (is_complex(dtype)) return !compares;
  if (is_float(dtype)) return bit_width(dtype) >= 16;
  return is_integer(dtype) && bit_width(dtype) >= 8;
}

Type result_type(const Collective& c, Type x, std::int64_t n) {
  using enum Operation;
  const Operation op = c.operation;
  const Type given = x;
  const auto extent = [&](std::int64_t axis) -> std::int64_t& {  // of the result
    check(axis >= 0 && axis < x.rank(), "{} over processes: {} has no axis {}", to_string(op),
          to_string(given), axis);
    return x.dims[size_of(axis)];
  };
  const auto join = [&](std::int64_t& its_extent) {
    check(!__builtin_mul_overflow(its_extent, n, &its_extent), "{} over processes: {} is too large",
          to_string(op), to_string(given));
  };
  const bool reduced = op == sum || op == max || op == min || op == scatter;
  check(bit_width(x.dtype) >= 8 && (!reduced || reduces(x.dtype, op)),
        "{} over processes: {} is of a dtype that it does not take", to_string(op),
        to_string(given));
  if (op == scatter || op == exchange || op == scatter_from) {
    check(extent(c.axis) % n == 0, "{} over processes: axis {} of {} is not cut by {}",
          to_string(op), c.axis, to_string(given), n);
    extent(c.axis) /= n;
  }
  if (op == gather || op == gather_to) join(extent(c.axis));
  if (op == exchange) join(extent(c.other));
  return x;
}

void run_alone(const Collective& c, const Collective::Group& group, void* y) {
  std::int32_t number = 1;
  if (c.operation == Operation::index) number = group.place;
  if (c.operation == Operation::count) number = static_cast<std::int32_t>(group.ranks.size());
  if (y) std::memcpy(y, &number, sizeof number);
}

std::string detail_of(const Collective& c, const Collective::Group& group, const Type& x_type) {
  std::string out = fmt::format("{} of {}", to_string(c.operation), to_string(x_type));
  if (c.axis || c.other) out += fmt::format(" axes {}, {}", c.axis, c.other);
  for (const auto& [from, to] : c.pairs) out += fmt::format(" {}>{}", from, to);
  if (c.root) out += fmt::format(" root {}", c.root);
  return out + fmt::format(" over processes {}", group.text());
}

}  // namespace postern::internal::clusters
