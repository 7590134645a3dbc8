// Each collective as pieces that are sent, and what is made of those that come. Every process sends
// straight to every other one of its group: one step, whoever is slow.
#include "cluster/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "cluster/pieces.h"
#include "cluster/reduce.h"
#include "core/check.h"

namespace postern::clusters {

namespace {

constexpr std::array names = {"sum",          "max",       "min",   "gather", "scatter",
                              "exchange",     "permute",   "index", "end",    "broadcast",
                              "scatter_from", "gather_to", "relay", "count",  "pass"};

using Bytes = std::unique_ptr<std::byte[]>;
Bytes bytes_for(std::size_t n) { return std::make_unique_for_overwrite<std::byte[]>(n); }

Reduction reduction_of(Operation operation) {
  if (operation == Operation::max) return Reduction::max;
  return operation == Operation::min ? Reduction::min : Reduction::sum;
}

/// One collective under way.
struct Step {
  const Collective& c;
  const Collective::Group& group;
  const Type& type;
  const std::byte* x;
  std::byte* y;
  Meeting& meeting;
  std::size_t n = group.ranks.size(), me = size_of(group.place), bytes = type.byte_size();

  /// Piece `k` of `out` goes to the k-th of the group, and what comes from it to piece `k` of `in`;
  /// `same`: all get the first one. Pieces are apart by `stride` bytes.
  void meet(const std::byte* out, bool same, std::byte* in, std::size_t piece) const {
    std::vector<Out> outs;
    std::vector<In> ins;
    for (std::size_t k = 0; k < n; ++k) {
      const std::byte* const from = out + (same ? 0 : k * piece);
      if (k == me) {
        if (piece > 0) std::memcpy(in + k * piece, from, piece);
        continue;
      }
      outs.push_back({group.ranks[k], from, piece});
      ins.push_back({group.ranks[k], in + k * piece, piece});
    }
    meeting.exchange(outs, ins);
  }

  /// `own`: this process's row, where it is not among the others.
  void reduce(const std::byte* rows, std::size_t row_bytes, std::byte* to,
              const std::byte* own = nullptr) const {
    std::vector<const void*> list;
    for (std::size_t k = 0; k < n; ++k) list.push_back(own && k == me ? own : rows + k * row_bytes);
    reduce_rows(reduction_of(c.operation), type.dtype, list, row_bytes / byte_width(type.dtype),
                to);
  }

  /// Short arrays go whole to everybody. Of long ones each process reduces a piece and sends what
  /// came of it, so that nothing is sent twice.
  void reduce_all() const {
    constexpr std::size_t long_array = 2048;
    if (bytes <= long_array) {
      const Bytes rows = bytes_for(n * bytes);
      meet(x, true, rows.get(), bytes);
      return reduce(rows.get(), bytes, y);
    }
    const std::size_t width = byte_width(type.dtype), count = bytes / width;
    const auto begin = [&](std::size_t k) { return count * k / n * width; };
    const std::size_t mine = begin(me + 1) - begin(me);
    const Bytes rows = bytes_for(n * mine);
    std::vector<Out> outs;
    std::vector<In> ins;
    for (std::size_t k = 0; k < n; ++k) {
      if (k == me) continue;
      outs.push_back({group.ranks[k], x + begin(k), begin(k + 1) - begin(k)});
      ins.push_back({group.ranks[k], rows.get() + k * mine, mine});
    }
    meeting.exchange(outs, ins);
    reduce(rows.get(), mine, y + begin(me), x + begin(me));
    outs.clear();
    ins.clear();
    for (std::size_t k = 0; k < n; ++k) {
      if (k == me) continue;
      outs.push_back({group.ranks[k], y + begin(me), mine});
      ins.push_back({group.ranks[k], y + begin(k), begin(k + 1) - begin(k)});
    }
    meeting.transfer(outs, ins);
  }

  void gather() const {
    const Bytes pieces = bytes_for(n * bytes);
    meet(x, true, pieces.get(), bytes);
    Type whole = type;
    whole.dims[size_of(c.axis)] *= static_cast<std::int64_t>(n);
    join(whole, c.axis, n, pieces.get(), y);
  }

  void scatter() const {
    const Bytes pieces = bytes_for(bytes), rows = bytes_for(bytes);
    cut(type, c.axis, n, x, pieces.get());
    meet(pieces.get(), false, rows.get(), bytes / n);
    reduce(rows.get(), bytes / n, y);
  }

  void exchange() const {
    const Bytes pieces = bytes_for(bytes), come = bytes_for(bytes);
    cut(type, c.axis, n, x, pieces.get());
    meet(pieces.get(), false, come.get(), bytes / n);
    Type whole = type;
    whole.dims[size_of(c.axis)] /= static_cast<std::int64_t>(n);
    whole.dims[size_of(c.other)] *= static_cast<std::int64_t>(n);
    join(whole, c.other, n, come.get(), y);
  }

  /// Neighbours meet, and nobody else.
  void permute() const {
    std::vector<Out> outs;
    std::vector<In> ins;
    bool filled = bytes == 0;
    for (const auto& [from, to] : c.pairs) {
      const std::size_t source = size_of(from), target = size_of(to);
      if (source == me && target == me) {
        if (bytes > 0) std::memcpy(y, x, bytes);
        filled = true;
      } else if (source == me) {
        outs.push_back({group.ranks[target], x, bytes});
      } else if (target == me) {
        ins.push_back({group.ranks[source], y, bytes});
        filled = true;
      }
    }
    if (!filled) std::memset(y, 0, bytes);
    if (!outs.empty() || !ins.empty()) meeting.exchange(outs, ins);
  }

  void end() const {
    std::byte nothing{};
    meet(&nothing, true, &nothing, 0);
  }
};

}  // namespace

bool meets(Operation operation) {
  return operation != Operation::index && operation != Operation::count &&
         operation != Operation::pass;
}

const char* to_string(Operation operation) { return names[static_cast<std::size_t>(operation)]; }

Operation operation_named(const std::string& name) {
  const auto found = std::ranges::find(names, name);
  check(found != names.end(), "'{}' is no collective over processes", name);
  return static_cast<Operation>(found - names.begin());
}

Collective::Group Collective::group(int rank) const {
  std::vector<std::int64_t> place(grid.size());
  std::int64_t rest = rank;
  for (std::size_t i = grid.size(); i-- > 0; rest /= grid[i]) place[i] = rest % grid[i];
  Group out;
  std::int64_t count = 1;
  for (const std::int64_t a : along) count *= grid[size_of(a)];
  for (std::int64_t k = 0; k < count; ++k) {
    std::vector<std::int64_t> other_place = place;
    std::int64_t part = k;
    for (std::size_t i = along.size(); i-- > 0;) {
      const std::size_t a = size_of(along[i]);
      other_place[a] = part % grid[a];
      part /= grid[a];
    }
    std::int64_t other_rank = 0;
    for (std::size_t i = 0; i < grid.size(); ++i)
      other_rank = other_rank * grid[i] + other_place[i];
    if (other_rank == rank) out.place = static_cast<int>(k);
    out.ranks.push_back(static_cast<int>(other_rank));
  }
  return out;
}

bool reduces(DType dtype, Operation operation) {
  const bool complex = dtype == DType::c64 || dtype == DType::c128;
  const bool compares = operation == Operation::max || operation == Operation::min;
  return can_reduce(dtype) && !(complex && compares);
}

void run_collective(const Collective& c, const Collective::Group& group, const Type& x_type,
                    const void* x, void* y, Meeting& meeting, std::int32_t device) {
  const Step step{
      c, group, x_type, static_cast<const std::byte*>(x), static_cast<std::byte*>(y), meeting};
  switch (c.operation) {
    case Operation::sum:
    case Operation::max:
    case Operation::min: return step.reduce_all();
    case Operation::gather: return step.gather();
    case Operation::scatter: return step.scatter();
    case Operation::exchange: return step.exchange();
    case Operation::permute: return step.permute();
    case Operation::end: return step.end();
    case Operation::broadcast:
    case Operation::scatter_from:
    case Operation::gather_to:
    case Operation::relay: return run_rooted(c, group, x_type, step.x, step.y, meeting, device);
    case Operation::index:
    case Operation::count:
    case Operation::pass: return run_alone(c, group, y);
  }
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
  return out + fmt::format(" over processes {}", fmt::join(group.ranks, ", "));
}

}  // namespace postern::clusters
