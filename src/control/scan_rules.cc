// Derivatives and batching of scan; scan_split.cc has the split.
#include "control/residual_store.h"
#include "control/scan.h"
#include "core/lists.h"
#include "transform/simplify.h"
#include "transform/transpose.h"

namespace postern::internal {

namespace {

Tensors joined(std::initializer_list<TensorSpan> lists) {
  Tensors out;
  for (const auto& list : lists) append(out, list);
  return out;
}

/// Of one step: what the body takes of xs, and what it gives to be stacked.
Types x_types(const ScanParams& p) {
  const Types all = p.body->input_types();
  return tail(all, p.first_x());
}
Types y_types(const ScanParams& p) {
  const Types all = p.body->output_types();
  return tail(all, p.carries);
}

/// Types of a body's inputs: constants, the step's number, carry, slices of xs.
Types input_types(const ScanParams& p, const Tensors& constants, const Tensors& carry,
                  const Types& slices) {
  Types out = types_of(constants);
  if (p.counted) out.push_back({p.index, {}});
  append(out, types_of(carry));
  append(out, slices);
  return out;
}

Tensor steps_of(const ScanParams& p, TensorSpan x) {
  if (p.offloaded) return x[0];
  return Tensor();
}

/// Takes tensors one after another.
class Reader {
 public:
  explicit Reader(TensorSpan in) : in_(in) {}
  Tensor one() { return in_[next_++]; }
  TensorSpan many(std::size_t n) {
    next_ += n;
    return in_.subspan(next_ - n, n);
  }
  /// As many as `like` has; those that `mask` does not mark are empty.
  Tensors marked(const std::vector<bool>& mask) {
    Tensors out(mask.size());
    for (std::size_t i = 0; i < mask.size(); ++i)
      if (mask[i]) out[i] = one();
    return out;
  }

 private:
  TensorSpan in_;
  std::size_t next_ = 0;
};

}  // namespace

// New body: constants and their tangents, the step's number, carry and tangents, xs and tangents ->
// carry, tangents, ys, tangents. A part of the carry that starts without a tangent may get one from
// another in some step, and a scan's carry has one type: so the body is traced again, with zeros
// for the tangents that came to be, until no step adds one. That ends after at most as many rounds
// as there is carry.
Jvp scan_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const auto& p = op.as<ScanParams>();
  const ScanParts of(p, x), d(p, dx);
  const Tensors constants = joined({of.constants, kept(d.constants)}),
                xs = joined({of.xs, kept(d.xs)});
  Types slices = x_types(p);
  append(slices, where_marked(x_types(p), present(d.xs)));
  std::vector<bool> moves = present(d.carry), y_moves;
  Tensors carry;
  Closed body;
  for (bool again = true; again;) {
    carry = joined({of.carry, or_zeros_like(d.carry, moves, types_of(of.carry))});
    const std::vector<bool> before = moves;
    body = trace_inner("body", input_types(p, constants, carry, slices), [&](TensorSpan in) {
      Reader read(in);
      Tensors values = joined({read.many(of.constants.size())}),
              tangents = read.marked(present(d.constants));
      if (p.counted) {
        values.push_back(read.one());
        tangents.emplace_back();
      }
      append(values, read.many(p.carries));
      append(tangents, read.marked(before));
      append(values, read.many(of.xs.size()));
      append(tangents, read.marked(present(d.xs)));
      auto [y, dy] = jvp_of(*p.body, values, tangents);
      const TensorSpan ys(y), dys(dy);
      for (std::size_t i = 0; i < p.carries; ++i) moves[i] = moves[i] || dy[i].has_value();
      y_moves = present(dys.subspan(p.carries));
      return joined({ys.first(p.carries), or_zeros_like(dys, moves, types_of(ys.first(p.carries))),
                     ys.subspan(p.carries), kept(dys.subspan(p.carries))});
    });
    again = moves != before;
  }
  ScanParams q = p;
  for (std::size_t i = 0; i < p.handle_ranks.size(); ++i)
    if (y_moves[i]) q.handle_ranks.push_back(p.handle_ranks[i]);
  const Tensors all = bind_scan(q, body, constants, carry, xs, steps_of(p, x));
  Reader read(all);
  const auto last = read.many(p.carries);
  const Tensors dlast = read.marked(moves);
  const auto ys = read.many(p.ys());
  return {joined({last, ys}), joined({dlast, read.marked(y_moves)})};
}

// The loop runs the other way. Carry: sums of the cotangents of linear constants, cotangents of the
// carry. All of the carry is linear: split has taken out what is not; a known start is a zero
// tangent. xs are the cotangents of the ys that have one and what is known of the xs; the new ys
// are the cotangents of the other xs. As in scan_jvp the body is traced until it is known which
// sums and which cotangents there are at all.
Tensors scan_transpose(const Op& op, TensorSpan ct, TensorSpan x, TypeSpan types) {
  const auto& p = op.as<ScanParams>();
  const ScanParts of(p, x);
  Types all_types;
  for (std::size_t i = p.first_operand(); i < types.size(); ++i) all_types.push_back(types[i]);
  const Types carry_types = between(all_types, p.constants, p.constants + p.carries);
  const std::vector<bool> known_constants = present(of.constants), known_xs = present(of.xs),
                          arrives = present(ct.subspan(p.carries));
  const Tensors constants = kept(of.constants),
                xs = joined({kept(ct.subspan(p.carries)), kept(of.xs)});
  Types slices = where_marked(y_types(p), arrives);
  append(slices, where_marked(x_types(p), known_xs));
  std::vector<bool> summed(p.constants), moves = present(ct.first(p.carries)), x_gets;
  Tensors carry;
  Closed body;
  for (bool again = true; again;) {
    carry = joined({or_zeros_like(Tensors(p.constants), summed, all_types),
                    or_zeros_like(ct, moves, carry_types)});
    const std::vector<bool> summed_before = summed, moves_before = moves;
    body = trace_inner("body", input_types(p, constants, carry, slices), [&](TensorSpan in) {
      Reader read(in);
      Tensors values = read.marked(known_constants);
      if (p.counted) values.push_back(read.one());
      const Tensors sums = read.marked(summed_before);
      Tensors cotangents = read.marked(moves_before);
      append(cotangents, read.marked(arrives));
      values.resize(p.first_x());
      append(values, read.marked(known_xs));
      Tensors into = transpose_of(*p.body, values, cotangents);
      Tensors into_constants, into_carry, into_xs;
      for (std::size_t i = 0; i < into.size(); ++i) {
        if (i < p.constants) {
          into_constants.emplace_back();
          if (!known_constants[i]) into_constants.back() = add_any(sums[i], into[i]);
        } else if (i >= p.first_x()) {
          into_xs.push_back(only_if(!known_xs[i - p.first_x()], into[i]));
        } else if (i >= p.first_carry()) {
          into_carry.push_back(into[i]);
        }
      }
      for (std::size_t i = 0; i < p.constants; ++i)
        summed[i] = summed[i] || into_constants[i].has_value();
      for (std::size_t i = 0; i < p.carries; ++i) moves[i] = moves[i] || into_carry[i].has_value();
      x_gets = present(into_xs);
      return joined({or_zeros_like(into_constants, summed, all_types),
                     or_zeros_like(into_carry, moves, carry_types), kept(into_xs)});
    });
    again = summed != summed_before || moves != moves_before;
  }
  ScanParams q = p;
  q.reverse = !p.reverse;
  q.handle_ranks.clear();
  for (std::size_t i = 0; p.offloaded && i < x_gets.size(); ++i)
    if (x_gets[i])
      q.handle_ranks.push_back(static_cast<int>(all_types[p.constants + p.carries + i].rank()));
  const Tensors given = bind_scan(q, body, constants, carry, xs, steps_of(p, x));
  Reader read(given);
  Tensors out(p.first_operand());
  append(out, read.marked(summed));
  append(out, read.marked(moves));
  append(out, read.marked(x_gets));
  return out;
}

// --- batching ---

// Given the operands with their batch axes (-1: none), and perhaps a mask of the elements that run.
// Binds one scan for all elements; gives its results with the batch axes of each.
//
// Constants keep their batch axis; that of the carry goes to the front, that of xs behind the axis
// that is scanned. A store is one for each element, and so is its handle.
//
// The number of steps comes first, since it decides what follows. Where elements have different
// ones the loop has as many as the longest, the whole carry and all ys are mapped, and the body
// needs the step's number: elements that are done keep their carry, and those that the mask leaves
// out have no step. Then the body is traced until no step maps more of the carry, as in scan_jvp,
// since a scan's carry has one type.
Batched scan_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                   const Tensor& mask) {
  ScanParams p = op.as<ScanParams>();
  const ScanParts of(p, x);
  const std::size_t first = p.first_operand();
  const int behind = !p.offloaded;
  Tensor steps = steps_of(p, x), each;
  if (p.offloaded && axes[0] >= 0) {
    each = move_batch(steps, axes[0], 0, size);
    if (mask.has_value()) each = where(mask, each, zeros_of(each.type()));
    steps = max(each);
  }
  const bool was_counted = p.counted;
  p.counted = p.counted || each.has_value();
  if (each.has_value() && !was_counted) p.index = count_type().dtype;
  std::vector<int> from = between(axes, first, first + p.constants);
  if (was_counted) from.push_back(-1);
  const std::size_t first_carry = from.size();
  Tensors carry, xs;
  std::vector<bool> mapped, y_mapped(p.ys(), each.has_value() || (p.offloaded && mask.has_value()));
  for (std::size_t i = 0; i < p.carries; ++i) {
    const int axis = axes[first + p.constants + i];
    mapped.push_back(axis >= 0 || each.has_value());
    carry.push_back(of.carry[i]);
    if (mapped[i]) carry[i] = move_batch(carry[i], axis, 0, size, mask);
    from.push_back(-1);
  }
  Types slices = x_types(op.as<ScanParams>());
  for (std::size_t i = 0; i < of.xs.size(); ++i) {
    const int axis = axes[first + p.constants + p.carries + i];
    const bool is_mapped = axis >= 0;
    xs.push_back(of.xs[i]);
    from.push_back(axis_if(is_mapped));
    if (!is_mapped) continue;
    xs[i] = move_batch(xs[i], axis, behind, size);
    slices[i].dims.insert(slices[i].dims.begin(), size);
  }
  const Tensors constants(of.constants.begin(), of.constants.end());
  Closed body;
  for (bool again = true; again;) {
    for (std::size_t i = 0; i < p.carries; ++i) {
      if (mapped[i] && carry[i].dims().size() == of.carry[i].dims().size() &&
          axes[first + p.constants + i] < 0)
        carry[i] = move_batch(carry[i], -1, 0, size, mask);
      from[first_carry + i] = axis_if(mapped[i]);
    }
    again = false;
    body = trace_inner("body", input_types(p, constants, carry, slices), [&](TensorSpan in) {
      Tensors inputs(in.begin(), in.end());
      Tensor alive = mask;
      if (each.has_value()) {
        alive = less(convert(in[p.constants], each.dtype()), each);
        if (!was_counted) inputs.erase(nth(inputs, p.constants));
      }
      // What is in stores is of one step, so who reads a cotangent there is not alive either.
      Tensors own = inputs;
      for (std::size_t i = 0; each.has_value() && i < first_carry + p.carries; ++i)
        if (from[i] >= 0) own[i] = shielded(own[i], from[i], alive);
      auto [y, to] = batch_of(*p.body, own, from, size, alive);
      for (std::size_t i = 0; i < y.size(); ++i) {
        std::vector<bool>::reference is = i < p.carries ? mapped[i] : y_mapped[i - p.carries];
        again = again || (i < p.carries && to[i] >= 0 && !is);
        is = is || to[i] >= 0;
        if (is) y[i] = move_batch(y[i], to[i], 0, size, alive);
        if (each.has_value() && i < p.carries)
          y[i] = select_elements(alive, y[i], inputs[first_carry + i]);
      }
      return std::move(y);
    });
  }
  for (std::size_t i = 0; i < p.handle_ranks.size(); ++i) p.handle_ranks[i] += y_mapped[i];
  Tensors y = bind_scan(p, body, constants, carry, xs, steps);
  std::vector<int> out = axes_where(mapped);
  append(out, axes_where(y_mapped, behind));
  return {std::move(y), std::move(out)};
}

}  // namespace postern::internal
