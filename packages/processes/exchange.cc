// Each collective as pieces that are sent, and what is made of those that come. Every process sends
// straight to every other one of its group: one step, whoever is slow. Pieces of a reduction are
// added where they have come, in the order of ranks, while further ones are on their way.
#include "exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "reduce.h"
#include "step.h"

namespace postern::internal::clusters {

namespace {

Reduction reduction_of(Operation operation) {
  if (operation == Operation::max) return Reduction::max;
  return operation == Operation::min ? Reduction::min : Reduction::sum;
}

/// Each process's row is reduced with the others', piece by piece as they come.
///
/// Process k of the group is sent the bytes of `x` from begin[k] to end[k] and reduces those of all
/// into `y`. Where `back` it sends what came of them to all others, which have it at the same place
/// of theirs; else it keeps it, at the beginning of `y`.
class Reducing {
 public:
  struct Part {
    std::size_t begin, end;
  };
  Reducing(Rendezvous& rendezvous, const Collective::Group& group, Reduction reduction, DType dtype,
           const std::byte* x, std::byte* y, bool back)
      : rendezvous_(rendezvous),
        group_(group),
        reduction_(reduction),
        dtype_(dtype),
        x_(x),
        y_(y),
        back_(back),
        others_(group.ranks.size()),
        rows_(group.ranks.size()) {}

  template <class PartOf>
  void run(const PartOf& part_of) {
    mine_ = part_of(me());
    for (std::size_t k = 0; k < others_.size(); ++k) {
      if (k == me()) continue;
      others_[k] = {
          rendezvous_.peer(group_.ranks[k]), part_of(k), 0, 0, 0, 0, 0, true, false, nullptr};
      others_[k].sent = others_[k].part.begin;
    }
    to_ = y_ + (back_ ? mine_.begin : 0);
    rendezvous_.until([&] { return step(); });
  }

 private:
  struct Other {
    Rendezvous::Peer peer;
    Part part;             // of x that it reduces
    std::size_t sent;      // of x
    std::size_t returned;  // of what was reduced here,
    std::size_t learnt;    // and there
    std::size_t used;      // of its row's piece that is in front,
    std::size_t reduced;   // and of its row
    bool greets, is_greeted;
    const std::byte* row;  // what has come of it and was not used; null: none
  };
  std::size_t me() const { return size_of(group_.place); }
  std::size_t length() const { return mine_.end - mine_.begin; }

  int step() {
    bool moves = false;
    for (std::size_t k = 0; k < others_.size(); ++k)
      if (k != me()) moves = send_to(others_[k]) || moves;
    std::size_t ready = length() - reduced_;
    for (std::size_t k = 0; k < others_.size(); ++k)
      if (k != me()) ready = std::min(ready, come_from(others_[k], moves));
    if (ready > 0) {
      reduce(ready);
      moves = true;
    }
    int waits_for = Rendezvous::through;
    for (std::size_t k = 0; k < others_.size(); ++k)
      if (k != me() && !is_done(others_[k])) waits_for = others_[k].peer.rank;
    return moves && waits_for != Rendezvous::through ? Rendezvous::moved : waits_for;
  }

  bool is_done(const Other& o) const {
    return !o.greets && !awaits(o) && o.sent == o.part.end && (!back_ || o.returned == length()) &&
           o.peer.link->flushed();
  }

  bool send_to(Other& o) {
    const std::size_t news = back_ ? reduced_ - o.returned : 0;
    if (news > 0 && !o.greets) {
      const auto n = rendezvous_.send(o.peer, to_ + o.returned, news, Rendezvous::Kind::result);
      if (n > 0) o.returned += static_cast<std::size_t>(n);
      return n > 0;
    }
    if (o.sent == o.part.end && !o.greets) return false;
    const std::int64_t n = rendezvous_.send(o.peer, x_ + o.sent, o.part.end - o.sent);
    if (n < 0) return false;
    o.sent += static_cast<std::size_t>(n);
    o.greets = false;
    return true;
  }

  /// Else what comes from there is of the next collective.
  bool awaits(const Other& o) const {
    return !o.is_greeted || o.reduced < length() || (back_ && o.learnt < o.part.end - o.part.begin);
  }

  /// How much of its row is here; what came of a reduction there goes to its place.
  std::size_t come_from(Other& o, bool& moves) {
    while (awaits(o)) {
      const Link::Piece piece = rendezvous_.front(o.peer);
      if (!piece.head) return 0;
      const std::size_t bytes = piece.head->bytes;
      if (piece.head->kind == Rendezvous::Kind::data && bytes > 0) {
        o.is_greeted = true;
        o.row = piece.data + o.used;
        return bytes - o.used;
      }
      if (bytes > 0) {
        check(back_ && bytes <= o.part.end - o.part.begin - o.learnt,
              "process {} sends more than is awaited", o.peer.rank);
        std::memcpy(y_ + o.part.begin + o.learnt, piece.data, bytes);
        o.learnt += bytes;
      } else {
        o.is_greeted = true;
      }
      o.peer.link->take();
      moves = true;
    }
    return 0;
  }

  void reduce(std::size_t bytes) {
    for (std::size_t k = 0; k < others_.size(); ++k)
      rows_[k] = k == me() ? x_ + mine_.begin + reduced_ : others_[k].row;
    reduce_rows(reduction_, dtype_, {rows_.data(), rows_.size()}, bytes / byte_width(dtype_),
                to_ + reduced_);
    reduced_ += bytes;
    for (std::size_t k = 0; k < others_.size(); ++k) {
      if (k == me()) continue;
      Other& o = others_[k];
      o.used += bytes;
      o.reduced += bytes;
      if (o.used < o.peer.link->front().head->bytes) continue;
      o.used = 0;
      o.peer.link->take();
    }
  }

  Rendezvous& rendezvous_;
  const Collective::Group& group_;
  const Reduction reduction_;
  const DType dtype_;
  const std::byte* const x_;
  std::byte* const y_;
  const bool back_;
  detail::SmallVector<Other, 8> others_;
  detail::SmallVector<const void*, 8> rows_;
  Part mine_{};
  std::byte* to_ = nullptr;
  std::size_t reduced_ = 0;
};

/// Those in which all have the same place.
struct Level : Step {
  explicit Level(const Step& step) : Step(step) {}

  /// Piece `k` of `out` goes to the k-th of the group, and what comes from it to piece `k` of `in`;
  /// `same`: all get the first one. Pieces are apart by `stride` bytes.
  void exchange_pieces(const std::byte* out, bool same, std::byte* in, std::size_t piece) const {
    detail::SmallVector<Out, 16> outs(n - 1);
    detail::SmallVector<In, 16> ins(n - 1);
    for (std::size_t k = 0, i = 0; k < n; ++k) {
      const std::byte* const from = out + (same ? 0 : k * piece);
      if (k == me) {
        copy(in + k * piece, from, piece);
        continue;
      }
      outs[i] = {group.ranks[k], from, piece};
      ins[i++] = {group.ranks[k], in + k * piece, piece};
    }
    rendezvous.exchange({outs.data(), outs.size()}, {ins.data(), ins.size()});
  }

  /// Short arrays go whole to everybody, and those of two processes: as much moves as if each of
  /// them reduced a half. Else each process reduces a part and sends what came of it.
  void reduce_all() const {
    constexpr std::size_t long_array = 8192;
    const std::size_t width = byte_width(type.dtype), count = bytes / width;
    Reducing reducing(rendezvous, group, reduction_of(c.operation), type.dtype, x, y,
                      n > 2 && bytes > long_array);
    if (n <= 2 || bytes <= long_array)
      return reducing.run([&](std::size_t) { return Reducing::Part{0, bytes}; });
    reducing.run([&](std::size_t k) {
      return Reducing::Part{count * k / n * width, count * (k + 1) / n * width};
    });
  }

  void gather() const {
    if (Along(type, c.axis).outer == 1) return exchange_pieces(x, true, y, bytes);
    std::byte* const pieces = rendezvous.scratch(0, n * bytes);
    exchange_pieces(x, true, pieces, bytes);
    Type whole = type;
    whole.dims[size_of(c.axis)] *= static_cast<std::int64_t>(n);
    join(whole, c.axis, n, pieces, y);
  }

  /// The pieces of x along an axis, one after another: x itself, where it lies so.
  const std::byte* cut_up() const {
    if (Along(type, c.axis).outer == 1) return x;
    std::byte* const pieces = rendezvous.scratch(0, bytes);
    cut(type, c.axis, n, x, pieces);
    return pieces;
  }

  void scatter() const {
    Reducing reducing(rendezvous, group, Reduction::sum, type.dtype, cut_up(), y, false);
    reducing.run([&](std::size_t k) { return Reducing::Part{bytes / n * k, bytes / n * (k + 1)}; });
  }

  void exchange() const {
    Type whole = type;
    whole.dims[size_of(c.axis)] /= static_cast<std::int64_t>(n);
    whole.dims[size_of(c.other)] *= static_cast<std::int64_t>(n);
    const std::byte* const pieces = cut_up();
    if (Along(whole, c.other).outer == 1) return exchange_pieces(pieces, false, y, bytes / n);
    std::byte* const come = rendezvous.scratch(1, bytes);
    exchange_pieces(pieces, false, come, bytes / n);
    join(whole, c.other, n, come, y);
  }

  /// Neighbours meet, and nobody else.
  void permute() const {
    std::vector<Out> outs;  // at most one each
    std::vector<In> ins;
    bool filled = false;
    for (const auto& [from, to] : c.pairs) {
      const std::size_t source = size_of(from), target = size_of(to);
      if (source == me && target == me) {
        copy(y, x, bytes);
        filled = true;
      } else if (source == me) {
        outs.push_back({group.ranks[target], x, bytes});
      } else if (target == me) {
        ins.push_back({group.ranks[source], y, bytes});
        filled = true;
      }
    }
    if (!filled) clear(y, bytes);
    if (!outs.empty() || !ins.empty()) rendezvous.exchange(outs, ins);
  }

  void end() const {
    std::byte nothing{};
    exchange_pieces(&nothing, true, &nothing, 0);
  }
};

}  // namespace

void run_collective(const Collective& c, const Collective::Group& group, const Type& x_type,
                    const void* x, void* y, Rendezvous& rendezvous, std::int32_t device) {
  const Step step{
      c,          group, x_type, static_cast<const std::byte*>(x), static_cast<std::byte*>(y),
      rendezvous, device};
  const Level level(step);
  switch (c.operation) {
    case Operation::sum:
    case Operation::max:
    case Operation::min: return level.reduce_all();
    case Operation::gather: return level.gather();
    case Operation::scatter: return level.scatter();
    case Operation::exchange: return level.exchange();
    case Operation::permute: return level.permute();
    case Operation::end: return level.end();
    case Operation::broadcast:
    case Operation::scatter_from:
    case Operation::gather_to:
    case Operation::relay: return run_rooted(step);
    case Operation::index:
    case Operation::count:
    case Operation::pass: return run_alone(c, group, y);
  }
}

}  // namespace postern::internal::clusters
