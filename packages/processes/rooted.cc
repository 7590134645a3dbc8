// Collectives in which one process has a place of its own, and permutations among all devices of
// all processes.
#include "step.h"

namespace postern::internal::clusters {

namespace {

struct Rooted : Step {
  explicit Rooted(const Step& step) : Step(step) {}
  bool is_root = group.place == c.root;

  /// The root sends `piece` bytes to each, from `out` on, `stride` bytes on for the next one.
  void send(const std::byte* out, std::size_t stride, std::size_t piece) const {
    std::vector<Out> outs;
    std::vector<In> ins;
    for (std::size_t k = 0; k < n; ++k)
      if (is_root && k != size_of(c.root))
        outs.push_back({group.ranks[k], out + k * stride, piece});
    if (!is_root) ins.push_back({group.ranks[size_of(c.root)], y, piece});
    if (is_root) copy(y, out + size_of(c.root) * stride, piece);
    if (n > 1) rendezvous.exchange(outs, ins);
  }

  void broadcast() const { send(x, 0, bytes); }

  void scatter() const {
    if (!is_root) return send(x, 0, bytes / n);
    std::byte* const pieces = rendezvous.scratch(0, bytes);
    cut(type, c.axis, n, x, pieces);
    send(pieces, bytes / n, bytes / n);
  }

  void gather() const {
    Type whole = type;
    whole.dims[size_of(c.axis)] *= static_cast<std::int64_t>(n);
    if (!is_root) {
      clear(y, n * bytes);
      const Out out{group.ranks[size_of(c.root)], x, bytes};
      return rendezvous.exchange({&out, 1}, {});
    }
    std::byte* const pieces = rendezvous.scratch(0, n * bytes);
    std::vector<In> ins;
    for (std::size_t k = 0; k < n; ++k)
      if (k != size_of(c.root)) ins.push_back({group.ranks[k], pieces + k * bytes, bytes});
    copy(pieces + size_of(c.root) * bytes, x, bytes);
    rendezvous.exchange({}, ins);
    join(whole, c.axis, n, pieces, y);
  }

  /// `x` has a row for each device of this process; the device is sent to under its number.
  void relay() const {
    const std::size_t row = bytes / size_of(c.other);
    std::vector<Out> outs;
    std::vector<In> ins;
    bool filled = false;
    for (const auto& [from, to] : c.pairs) {
      if (to % c.other != device) continue;
      const std::size_t source = size_of(from / c.other), target = size_of(to / c.other);
      const std::byte* const sent = x + size_of(from % c.other) * row;
      if (target == me) filled = true;
      if (source == me && target == me)
        copy(y, sent, row);
      else if (source == me)
        outs.push_back({group.ranks[target], sent, row});
      else if (target == me)
        ins.push_back({group.ranks[source], y, row});
    }
    if (!filled) clear(y, row);
    rendezvous.exchange(outs, ins);
  }
};

}  // namespace

void run_rooted(const Step& step) {
  const Rooted rooted(step);
  if (step.c.operation == Operation::broadcast) return rooted.broadcast();
  if (step.c.operation == Operation::scatter_from) return rooted.scatter();
  if (step.c.operation == Operation::gather_to) return rooted.gather();
  rooted.relay();
}

}  // namespace postern::internal::clusters
