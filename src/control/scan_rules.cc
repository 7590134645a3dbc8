// Derivatives and batching of scan.
#include "control/scan.h"
#include "transform/simplify.h"
#include "transform/transpose.h"

namespace postern {

namespace {

/// A list of operands or of the body's inputs in its parts. The step's number is only among the
/// inputs.
struct Parts {
  std::span<const Tensor> constants, carry, xs;
  Parts(const ScanParams& p, std::span<const Tensor> x)
      : constants(x.first(p.constants)),
        carry(x.subspan(p.constants, p.carries)),
        xs(x.subspan(p.constants + p.carries)) {}
};

Tensors joined(std::initializer_list<std::span<const Tensor>> lists) {
  Tensors out;
  for (const auto& list : lists) append(out, list);
  return out;
}

Types slices(std::span<const Tensor> xs) {
  Types out;
  for (const Tensor& x : xs) out.push_back(slice_type_of(x.type()));
  return out;
}

/// Types of a body's inputs: constants, the step's number, carry, slices of xs.
Types input_types(const ScanParams& p, const Tensors& constants, const Tensors& carry,
                  const Tensors& xs) {
  Types out = types_of(constants);
  if (p.counted) out.push_back({p.index, {}});
  append(out, types_of(carry));
  append(out, slices(xs));
  return out;
}

/// Takes tensors one after another.
class Reader {
 public:
  explicit Reader(std::span<const Tensor> in) : in_(in) {}
  Tensor one() { return in_[next_++]; }
  std::span<const Tensor> many(std::size_t n) {
    next_ += n;
    return in_.subspan(next_ - n, n);
  }
  /// As many as `like` has; those that `mask` does not mark are empty.
  Tensors marked(const std::vector<bool>& mask) {
    Tensors out;
    for (const bool m : mask) out.push_back(m ? one() : Tensor());
    return out;
  }

 private:
  std::span<const Tensor> in_;
  std::size_t next_ = 0;
};

Tensors or_zeros_like(std::span<const Tensor> tensors, const std::vector<bool>& mask,
                      const Types& types) {
  Tensors out;
  for (std::size_t i = 0; i < mask.size(); ++i)
    if (mask[i]) out.push_back(or_zeros_of(tensors[i], types[i]));
  return out;
}

}  // namespace

// New body: constants and their tangents, the step's number, carry and tangents, xs and tangents ->
// carry, tangents, ys, tangents.
Jvp scan_jvp(const Op& op, std::span<const Tensor> x, std::span<const Tensor> dx) {
  const auto& p = op.as<ScanParams>();
  const Parts of(p, x), d(p, dx);
  const Tensors constants = joined({of.constants, kept(d.constants)}),
                xs = joined({of.xs, kept(d.xs)});
  std::vector<bool> moves = present(d.carry), y_moves;
  Tensors carry;
  Closed body;
  for (bool again = true; again;) {
    carry = joined({of.carry, or_zeros_like(d.carry, moves, types_of(of.carry))});
    const std::vector<bool> before = moves;
    body =
        trace_inner("body", input_types(p, constants, carry, xs), [&](std::span<const Tensor> in) {
          Reader read(in);
          Tensors values = joined({read.many(of.constants.size())}),
                  tangents = read.marked(present(d.constants));
          if (p.counted) values.push_back(read.one()), tangents.emplace_back();
          append(values, read.many(p.carries));
          append(tangents, read.marked(before));
          append(values, read.many(of.xs.size()));
          append(tangents, read.marked(present(d.xs)));
          auto [y, dy] = jvp_of(*p.body, values, tangents);
          const std::span<const Tensor> ys(y), dys(dy);
          for (std::size_t i = 0; i < p.carries; ++i) moves[i] = moves[i] || dy[i].has_value();
          y_moves = present(dys.subspan(p.carries));
          return joined({ys.first(p.carries),
                         or_zeros_like(dys, moves, types_of(ys.first(p.carries))),
                         ys.subspan(p.carries), kept(dys.subspan(p.carries))});
        });
    again = moves != before;
  }
  const Tensors all = bind_scan(p, body, constants, carry, xs);
  Reader read(all);
  const auto last = read.many(p.carries);
  const Tensors dlast = read.marked(moves);
  const auto ys = read.many(p.ys());
  return {joined({last, ys}), joined({dlast, read.marked(y_moves)})};
}

// The loop runs the other way. Carry: sums of the cotangents of linear constants, cotangents of the
// carry. All of the carry is linear: split has taken out what is not; a known start is a zero
// tangent.
Tensors scan_transpose(const Op& op, std::span<const Tensor> ct, std::span<const Tensor> x,
                       TypeSpan types) {
  const auto& p = op.as<ScanParams>();
  const Parts of(p, x);
  Types all_types;
  for (std::size_t i = 0; i < types.size(); ++i) all_types.push_back(types[i]);
  const Types carry_types(all_types.begin() + static_cast<std::ptrdiff_t>(p.constants),
                          all_types.begin() + static_cast<std::ptrdiff_t>(p.constants + p.carries));
  const std::vector<bool> known_constants = present(of.constants), known_xs = present(of.xs),
                          arrives = present(ct.subspan(p.carries));
  const Tensors constants = kept(of.constants),
                xs = joined({kept(ct.subspan(p.carries)), kept(of.xs)});
  std::vector<bool> summed(p.constants), moves = present(ct.first(p.carries)), x_gets;
  Tensors carry;
  Closed body;
  for (bool again = true; again;) {
    carry = joined({or_zeros_like(Tensors(p.constants), summed, all_types),
                    or_zeros_like(ct, moves, carry_types)});
    const std::vector<bool> summed_before = summed, moves_before = moves;
    body =
        trace_inner("body", input_types(p, constants, carry, xs), [&](std::span<const Tensor> in) {
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
            if (i < p.constants)
              into_constants.push_back(known_constants[i] ? Tensor() : add_any(sums[i], into[i]));
            else if (i >= p.first_x())
              into_xs.push_back(known_xs[i - p.first_x()] ? Tensor() : into[i]);
            else if (i >= p.first_carry())
              into_carry.push_back(into[i]);
          }
          for (std::size_t i = 0; i < p.constants; ++i)
            summed[i] = summed[i] || into_constants[i].has_value();
          for (std::size_t i = 0; i < p.carries; ++i)
            moves[i] = moves[i] || into_carry[i].has_value();
          x_gets = present(into_xs);
          return joined({or_zeros_like(into_constants, summed, all_types),
                         or_zeros_like(into_carry, moves, carry_types), kept(into_xs)});
        });
    again = summed != summed_before || moves != moves_before;
  }
  ScanParams q = p;
  q.reverse = !p.reverse;
  const Tensors given = bind_scan(q, body, constants, carry, xs);
  Reader read(given);
  Tensors out = read.marked(summed);
  append(out, read.marked(moves));
  append(out, read.marked(x_gets));
  return out;
}

// --- split
// -------------------------------------------------------------------------------------------------

namespace {

/// A scan of which only some results are wanted: without the others, and without the carry that
/// only they need. `kept`: the results that stay.
struct Pruned {
  ScanParams p;
  Tensors x;
  std::vector<int> operands, results;  // of the whole one
};

Pruned prune(const ScanParams& p, std::span<const Tensor> x, std::vector<bool> wanted) {
  Pruned out{p, {}, {}, {}};
  std::vector<bool> used;
  for (bool again = true; again;) {
    Program body = *p.body;
    body.outputs = where_marked(p.body->outputs, wanted);
    used = used_inputs(body);
    again = false;
    for (std::size_t i = 0; i < p.carries; ++i) {
      if (!used[p.first_carry() + i] || wanted[i]) continue;
      wanted[i] = true;
      again = true;
    }
  }
  Program body = *p.body;
  body.outputs = where_marked(p.body->outputs, wanted);
  body.inputs.clear();
  out.p.constants = out.p.carries = 0;
  for (std::size_t i = 0, operand = 0; i < p.body->inputs.size(); ++i) {
    const bool number = p.counted && i == p.constants,
               carry = i >= p.first_carry() && i < p.first_x();
    const bool stays = carry ? wanted[i - p.first_carry()] : used[i];
    if (stays) body.inputs.push_back(p.body->inputs[i]);
    if (number) {
      out.p.counted = stays;
      continue;
    }
    if (stays) {
      out.x.push_back(x[operand]);
      out.operands.push_back(static_cast<int>(operand));
      out.p.constants += i < p.constants;
      out.p.carries += carry;
    }
    ++operand;
  }
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i]) out.results.push_back(static_cast<int>(i));
  out.p.body = simplify(body);
  return out;
}

/// Splits the body; the carry is unknown wherever some step makes it so.
Halves split_body(const ScanParams& p, const Parts& of, std::vector<bool>& unknown_carry) {
  unknown_carry = present(of.carry);
  unknown_carry.flip();
  for (;;) {
    std::vector<bool> unknown = present(of.constants);
    unknown.flip();
    if (p.counted) unknown.push_back(false);
    unknown.insert(unknown.end(), unknown_carry.begin(), unknown_carry.end());
    for (const Tensor& t : of.xs) unknown.push_back(!t.has_value());
    std::vector<bool> force = unknown_carry;
    force.resize(p.body->outputs.size(), false);
    Halves halves = split(*p.body, unknown, force);
    const std::vector<bool> now(
        halves.unknown_outputs.begin(),
        halves.unknown_outputs.begin() + static_cast<std::ptrdiff_t>(p.carries));
    if (now == unknown_carry) return halves;
    unknown_carry = now;
  }
}

/// Which values of a body depend on its first `constants` inputs alone, and are the same in each
/// step.
std::vector<bool> same_in_each_step(const Program& body, std::size_t constants) {
  std::vector<bool> same(body.types.size());
  for (std::size_t i = 0; i < constants; ++i) same[at(body.inputs[i])] = true;
  for (const Equation& e : body.equations) {
    bool all = !e.primitive->distinct && effect_of(e) == Effect::pure;
    for (ValueId v : e.operands) all = all && same[at(v)];
    for (int i = 0; i < e.results; ++i) same[at(e.first + i)] = all;
  }
  return same;
}

/// Values of `body` that depend on its first `constants` inputs alone, computed from them.
Tensors hoisted(const Program& body, const std::vector<bool>& same,
                const std::vector<ValueId>& values, const Tensors& constants) {
  if (values.empty()) return {};
  Program out;
  out.name = "hoisted";
  out.types = body.types;
  out.inputs.assign(body.inputs.begin(),
                    body.inputs.begin() + static_cast<std::ptrdiff_t>(constants.size()));
  for (const Equation& e : body.equations)
    if (e.results > 0 && same[at(e.first)]) out.equations.push_back(e);
  out.outputs = values;
  return postern::apply(*simplify(out), constants);
}

/// Which input of a program a value is; the number of inputs for none.
std::vector<std::size_t> input_numbers(const Program& program) {
  std::vector<std::size_t> out(program.types.size(), program.inputs.size());
  for (std::size_t i = 0; i < program.inputs.size(); ++i) out[at(program.inputs[i])] = i;
  return out;
}

using Source = Primitive::SplitResult::Source;

/// How the unknown half of the body gets its residuals, in the order of the inputs of a body.
struct Rest {
  std::vector<ValueId> constants, carry, xs;  // inputs of the unknown half
  std::vector<Source> constant_from, carry_from, x_from;
  ValueId number = -1;
};

}  // namespace

Primitive::SplitResult scan_split(const Op& op, std::span<const Tensor> operands,
                                  const std::vector<bool>& wanted) {
  const Pruned whole = prune(op.as<ScanParams>(), operands, wanted);
  const ScanParams& p = whole.p;
  const Parts of(p, whole.x);
  std::vector<bool> unknown_carry;
  const Halves halves = split_body(p, of, unknown_carry);
  const Program& known = *halves.known;
  const std::size_t outputs = known.outputs.size() - halves.residuals;
  const Tensors constants = kept(of.constants),
                known_carry = where_marked(of.carry, unknown_carry, false), known_xs = kept(of.xs);
  const std::size_t first_carry = constants.size() + p.counted,
                    first_x = first_carry + known_carry.size();

  // Where each residual comes from: an operand, the step's number, before the loop, or stacked by
  // the known half.
  Rest rest;
  const std::vector<std::size_t> inputs = input_numbers(known);
  const std::vector<bool> same = same_in_each_step(known, constants.size());
  std::vector<ValueId> early, stacked, early_in, stacked_in;
  for (std::size_t r = 0; r < halves.residuals; ++r) {
    const ValueId v = known.outputs[outputs + r], in = halves.unknown->inputs[r];
    const std::size_t input = inputs[at(v)];
    if (input < constants.size())
      rest.constants.push_back(in), rest.constant_from.push_back({constants[input], -1});
    else if (p.counted && input == constants.size())
      rest.number = in;
    else if (input >= first_x && input < known.inputs.size())
      rest.xs.push_back(in), rest.x_from.push_back({known_xs[input - first_x], -1});
    else if (same[at(v)])
      early.push_back(v), early_in.push_back(in);
    else
      stacked.push_back(v), stacked_in.push_back(in);
  }
  const Tensors before = hoisted(known, same, early, constants);
  for (std::size_t i = 0; i < early.size(); ++i)
    rest.constants.push_back(early_in[i]), rest.constant_from.push_back({before[i], -1});

  Program body = known;
  body.outputs.resize(outputs);
  body.outputs.insert(body.outputs.end(), stacked.begin(), stacked.end());
  Tensors results;
  if (!body.outputs.empty() || effect_of(body) != Effect::pure)
    results = bind_scan(p, {simplify(body), {}}, constants, known_carry, known_xs);
  for (std::size_t i = 0; i < stacked.size(); ++i)
    rest.xs.push_back(stacked_in[i]), rest.x_from.push_back({results[outputs + i], -1});

  // The unknown operands.
  std::size_t next = halves.residuals;
  auto unknown_input = [&] { return halves.unknown->inputs[next++]; };
  auto source = [&](std::size_t i) {
    return Source{whole.x[i], whole.x[i].has_value() ? -1 : whole.operands[i]};
  };
  for (std::size_t i = 0; i < p.constants; ++i)
    if (!of.constants[i].has_value())
      rest.constants.push_back(unknown_input()), rest.constant_from.push_back(source(i));
  for (std::size_t i = 0; i < p.carries; ++i)
    if (unknown_carry[i])
      rest.carry.push_back(unknown_input()), rest.carry_from.push_back(source(p.constants + i));
  for (std::size_t i = 0; i < of.xs.size(); ++i)
    if (!of.xs[i].has_value())
      rest.xs.push_back(unknown_input()),
          rest.x_from.push_back(source(p.constants + p.carries + i));

  Program unknown = *halves.unknown;
  unknown.inputs = rest.constants;
  if (rest.number >= 0) unknown.inputs.push_back(rest.number);
  unknown.inputs.insert(unknown.inputs.end(), rest.carry.begin(), rest.carry.end());
  unknown.inputs.insert(unknown.inputs.end(), rest.xs.begin(), rest.xs.end());
  ScanParams q = p;
  q.body = simplify(unknown);
  q.counted = rest.number >= 0;
  q.constants = rest.constants.size();
  q.carries = rest.carry.size();

  Primitive::SplitResult out;
  out.known.resize(wanted.size());
  for (std::size_t i = 0, n = 0; i < whole.results.size(); ++i) {
    if (halves.unknown_outputs[i])
      out.results.push_back(whole.results[i]);
    else
      out.known[at(whole.results[i])] = results[n++];
  }
  out.primitive = &scan_p;
  out.params = make_params(std::move(q));
  out.operands = std::move(rest.constant_from);
  std::ranges::move(rest.carry_from, std::back_inserter(out.operands));
  std::ranges::move(rest.x_from, std::back_inserter(out.operands));
  return out;
}

// --- batching
// -------------------------------------------------------------------------------------------------

// Constants keep their batch axis; that of the carry goes to the front, that of xs behind the axis
// that is scanned.
Batched scan_batch(const Op& op, std::span<const Tensor> x, std::span<const int> axes,
                   std::int64_t size, const Tensor& mask) {
  const auto& p = op.as<ScanParams>();
  const Parts of(p, x);
  std::vector<int> from(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(p.constants));
  if (p.counted) from.push_back(-1);
  Tensors carry, xs;
  std::vector<bool> mapped, y_mapped(p.ys());
  for (std::size_t i = 0; i < p.carries; ++i) {
    const int axis = axes[p.constants + i];
    mapped.push_back(axis >= 0);
    carry.push_back(axis >= 0 ? move_batch(of.carry[i], axis, 0, size) : of.carry[i]);
  }
  from.resize(p.first_x());
  for (std::size_t i = 0; i < of.xs.size(); ++i) {
    const int axis = axes[p.constants + p.carries + i];
    xs.push_back(axis >= 0 ? move_batch(of.xs[i], axis, 1, size) : of.xs[i]);
    from.push_back(axis >= 0 ? 0 : -1);
  }
  const Tensors constants(of.constants.begin(), of.constants.end());
  Closed body;
  for (bool again = true; again;) {
    for (std::size_t i = 0; i < p.carries; ++i) {
      if (mapped[i] && carry[i].dims().size() == of.carry[i].dims().size() &&
          axes[p.constants + i] < 0)
        carry[i] = move_batch(carry[i], -1, 0, size);
      from[p.first_carry() + i] = mapped[i] ? 0 : -1;
    }
    again = false;
    body =
        trace_inner("body", input_types(p, constants, carry, xs), [&](std::span<const Tensor> in) {
          auto [y, to] = batch_of(*p.body, in, from, size, mask);
          for (std::size_t i = 0; i < y.size(); ++i) {
            std::vector<bool>::reference is = i < p.carries ? mapped[i] : y_mapped[i - p.carries];
            again = again || (i < p.carries && to[i] >= 0 && !is);
            is = is || to[i] >= 0;
            if (is) y[i] = move_batch(y[i], to[i], 0, size);
          }
          return std::move(y);
        });
  }
  Tensors y = bind_scan(p, body, constants, carry, xs);
  std::vector<int> out;
  for (const bool m : mapped) out.push_back(m ? 0 : -1);
  for (const bool m : y_mapped) out.push_back(m ? 1 : -1);
  return {std::move(y), std::move(out)};
}

}  // namespace postern
